"""Another model between two frames: whoever was in flight keeps recipe, plans and placer of the one it began with."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

from line_bench import BAD, GOOD, PATIENCE_S, Bench, assert_sealed_once, governor, run

from edge_app.config.pipeline import Pipeline
from edge_app.in_force import InForce, fit
from edge_app.inspection import Inspection
from edge_app.model import resolve
from edge_app.placed import place_model
from edge_app.runtime.base import Binding
from edge_app.update import fitted
from edge_app.verdict import Judgement, ModelIdentity, PlanKind, Reason

NEW = ModelIdentity("new", "cd" * 32, None, "new@000000000000")


def test_a_frame_in_flight_ends_with_the_model_and_the_recipe_that_it_began_with(toy_model: Path) -> None:
    bench, running, swapped = Bench(toy_model), threading.Event(), threading.Event()

    def held(number: int, _outputs: Binding) -> None:
        if number == 1:
            running.set()
            assert swapped.wait(PATIENCE_S)

    def swap() -> None:
        assert running.wait(PATIENCE_S)
        before = line.in_force.model
        judged = Inspection(lambda _frame: None, lambda _found: Judgement(Reason.MARGINAL), ("other", "sha256:2"))
        line.inspect_with(InForce(judged, fit({PlanKind.CPU: bench.engine()}, governor((PlanKind.CPU,)), 3, NEW)))
        assert line.uses(before)
        swapped.set()

    line, kept = bench.line(iter([BAD, swap, GOOD, BAD]), bench.engine(trouble=held))
    old = line.in_force.model
    run(line)
    assert_sealed_once(line, kept)
    assert kept.reasons == [Reason.DEFECT, Reason.MARGINAL, Reason.MARGINAL]
    assert [(one.model, one.recipe) for one in kept.results] == [
        (None, None), (NEW, ("other", "sha256:2")), (NEW, ("other", "sha256:2")),
    ]  # fmt: skip
    assert not line.uses(old)


def test_a_fault_of_a_frame_in_flight_is_the_old_models_and_the_new_one_is_not_blamed(toy_model: Path) -> None:
    bench, running, swapped = Bench(toy_model), threading.Event(), threading.Event()
    old_placer, new_placer = governor((PlanKind.HTP, PlanKind.CPU)), governor((PlanKind.HTP, PlanKind.CPU))

    def fails(_number: int, _outputs: Binding) -> None:
        running.set()
        assert swapped.wait(PATIENCE_S)
        raise RuntimeError("gone")

    def swap() -> None:
        assert running.wait(PATIENCE_S)
        engines = {PlanKind.HTP: bench.engine(PlanKind.HTP, nothing()), PlanKind.CPU: bench.engine()}
        line.inspect_with(InForce(line.in_force.inspection, fit(engines, new_placer, 3, NEW)))
        swapped.set()

    line, kept = bench.line(
        iter([BAD, swap, GOOD, BAD]), bench.engine(PlanKind.HTP, fails), bench.engine(), placer=old_placer
    )
    run(line)
    assert_sealed_once(line, kept)
    assert kept.reasons == [Reason.DEFECT, Reason.OK, Reason.DEFECT]
    by_frame = sorted(kept.results, key=lambda one: one.frame_id)
    assert [one.placement.plan for one in by_frame] == [PlanKind.CPU, PlanKind.HTP, PlanKind.HTP]
    assert not old_placer.is_ready(PlanKind.HTP)
    assert new_placer.is_ready(PlanKind.HTP)


def test_the_sessions_of_a_model_end_when_it_is_let_go(toy_model: Path) -> None:
    sections = {
        "camera": {"type": "synthetic"}, "model": {"path": str(toy_model)}, "limits": {"pacing": "offline"},
        "runtime": {"provider": "cpu", "threads": 1},
    }  # fmt: skip
    pipeline = Pipeline.model_validate(sections, strict=False)
    card = resolve(pipeline.model, pipeline.preprocess)
    gc.disable()  # what hangs on to itself would stay for a long time in a program that makes little garbage
    try:
        model = fitted(pipeline, None, card, place_model(pipeline, card))
        assert model.placed.mechanic is not None
        model.placed.mechanic.on_decision = partial(print, model.placed)
        session = weakref.ref(model.placed.engines[PlanKind.CPU].session)
        model.placed.retire()
        assert session() is not None, "frames in flight still have it"
        del model
        assert session() is None
    finally:
        gc.enable()


def nothing() -> Callable[[int, Binding], None]:
    return lambda _number, _outputs: None
