"""Which versions may take the running one's place; what is refused says in what it differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from line_bench import Bench, governor

from edge_app.config.pipeline import Model, Pipeline
from edge_app.config.tensor import Preprocess
from edge_app.engine import Engine
from edge_app.errors import ConfigError, EdgeAppError, ModelError, RuntimeFault
from edge_app.mechanic import Mechanic
from edge_app.model import resolve
from edge_app.placed import Placed, place_model
from edge_app.runtime.base import Binding
from edge_app.update_checks import refuse_hung, refuse_lesser, refuse_other_lines, refuse_other_shape
from edge_app.verdict import PlanKind


@pytest.mark.parametrize(
    ("axis", "change"),
    [
        ("task", {"task": "classify"}),
        ("labels", {"labels": ("other", "bright")}),
        ("input width", {"width": 96}),
        ("input height", {"height": 96}),
        ("input fit", {"fit": "stretch"}),
        ("input shorter_side", {"shorter_side": 80}),
    ],
)
def test_the_refusal_names_the_axis(toy_model: Path, axis: str, change: dict[str, object]) -> None:
    card = resolve(Model(path=toy_model), Preprocess())
    of_input = axis.startswith("input")
    other = replace(card, input=card.input.model_copy(update=change)) if of_input else replace(card, **change)  # type: ignore[arg-type]
    refuse_other_shape(card, card)
    with pytest.raises(ModelError) as error:
        refuse_other_shape(card, other)
    assert error.value.what == f"this model differs from the running one in {axis}"
    (new,) = change.values()
    assert error.value.got == f"{axis}: {', '.join(new) if isinstance(new, tuple) else new}"


def placed(toy_model: Path, prove: object = lambda _engine: None, **openers: object) -> Placed:
    """A model whose plans run on the CPU, whatever they are called, with the real scheduler and mechanic."""
    pipeline = Pipeline.model_validate(
        {"camera": {"type": "synthetic"}, "model": {"path": str(toy_model)}, "limits": {"pacing": "offline"},
         "runtime": {"provider": "cpu", "threads": 1}}, strict=False,
    )  # fmt: skip
    made = place_model(pipeline, resolve(pipeline.model, pipeline.preprocess))
    plans = {PlanKind(name): opener for name, opener in openers.items()}
    chosen = governor(tuple(plans))
    mechanic = Mechanic(chosen, plans, prove, 1)  # type: ignore[arg-type]
    for plan, opener in plans.items():
        try:
            mechanic.engines[plan] = opener()  # type: ignore[operator]
        except EdgeAppError as error:
            mechanic.errors[plan] = error
    return replace(made, mechanic=mechanic, placer=chosen, engines=mechanic.engines)


def test_a_version_with_fewer_plans_or_one_that_can_not_be_proven_is_refused(toy_model: Path) -> None:
    bench = Bench(toy_model)

    def htp() -> Engine:
        return bench.engine(PlanKind.HTP, trouble)

    def absent() -> Engine:
        raise ModelError("a file of the model is not there")

    running = placed(toy_model, htp=htp, cpu=bench.engine)
    refuse_lesser(running, placed(toy_model, htp=htp, cpu=bench.engine))
    with pytest.raises(RuntimeFault, match="wanted: plans htp, cpu\n  got: plans cpu"):
        refuse_lesser(running, placed(toy_model, cpu=bench.engine))
    with pytest.raises(RuntimeFault, match="plan htp: a file of the model is not there"):
        refuse_lesser(running, placed(toy_model, htp=absent, cpu=bench.engine))

    def only_htp(engine: Engine) -> str | None:
        return None if engine.plan is PlanKind.HTP else "label 0 at 0.90: not found again"

    with pytest.raises(RuntimeFault, match="plan cpu: the canary did not give what was stored"):
        refuse_lesser(running, placed(toy_model, only_htp, htp=htp, cpu=bench.engine))
    with pytest.raises(RuntimeFault, match="can't take the running one's place"):
        refuse_lesser(running, replace(placed(toy_model, htp=htp, cpu=bench.engine), simulated=True))


def trouble(_run: int, _outputs: Binding) -> None:
    """None at all."""


def test_nothing_new_comes_onto_an_npu_that_has_hung(toy_model: Path) -> None:
    running = placed(toy_model, htp=lambda: Bench(toy_model).engine(PlanKind.HTP, trouble))
    refuse_hung(running)
    running.placer.npu_hung = PlanKind.HTP, "a run did not return"  # type: ignore[attr-defined]
    with pytest.raises(RuntimeFault, match="has hung"):
        refuse_hung(running)


def test_a_line_that_replays_a_recording_has_no_model_to_change(toy_model: Path) -> None:
    sections = {"camera": {"type": "synthetic"}, "model": {"path": str(toy_model)}, "limits": {"pacing": "offline"}}
    refuse_other_lines(Pipeline.model_validate(sections, strict=False))
    with pytest.raises(ConfigError, match="replays a recording"):
        refuse_other_lines(Pipeline.model_validate({**sections, "runtime": {"provider": "null"}}, strict=False))
