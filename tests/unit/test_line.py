"""The frame loop with a real model on the CPU: one result for every trigger, whatever happens to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
import pytest
import toys

from edge_app.camera.base import Births
from edge_app.config.judge import Judge
from edge_app.config.pipeline import Model
from edge_app.config.runtime import Limits
from edge_app.config.scheduler import Scheduler
from edge_app.config.tensor import Preprocess
from edge_app.detections import Detections
from edge_app.engine import Engine
from edge_app.errors import RuntimeFault
from edge_app.frame import Frame, FrameStatus, PixelFormat
from edge_app.governor import Governor
from edge_app.inspection import Inspection
from edge_app.judge import judge, make_recipe
from edge_app.line import Line
from edge_app.model import resolve
from edge_app.runtime.base import Binding, Session
from edge_app.runtime.cpu import open_cpu
from edge_app.scheduler import Event, EventKind, build_policy
from edge_app.sealing import Ticket
from edge_app.verdict import Judgement, Mode, Placement, PlanKind, PowerMode, Reason, Sealed

GOOD = toys.detector_picture([])
BAD = toys.detector_picture([(2, 2)])
OFFLINE = Limits(pacing="offline", slots=3)


@dataclass
class Kept:
    """An outlet that keeps everything."""

    results: list[Sealed] = field(default_factory=list)
    states: list[tuple[Mode, Mode, str]] = field(default_factory=list)
    alarms: list[tuple[str, bool]] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)

    def result(self, sealed: Sealed) -> None:
        self.results.append(sealed)

    def state(self, mode: Mode, was: Mode, placement: Placement, reason: str) -> None:
        self.states.append((mode, was, reason))

    def alarm(self, name: str, active: bool, text: str, remedy: str) -> None:
        self.alarms.append((name, active))

    def evidence(self, frame: Frame, give_back: Callable[[Frame], None]) -> bool:
        return False

    def note(self, seq: int, text: str) -> None:
        self.notes.append((seq, text))

    @property
    def reasons(self) -> list[Reason]:
        return [one.reason for one in sorted(self.results, key=lambda one: one.frame_id)]


class Pictures:
    """A camera that shows what a test hands it: pictures, frames of a bad status, or pauses (seconds)."""

    live = False
    simulated = True
    pixel_format = PixelFormat.BGR8
    width = height = period_us = trouble = None

    def __init__(self, shown: Iterator[object]) -> None:
        self._shown = shown
        self._births = Births(PixelFormat.BGR8)
        self._stopped = threading.Event()

    def open(self) -> None: ...
    def close(self) -> None: ...
    def recycle(self, frame: Frame) -> None: ...

    def stop(self) -> None:
        self._stopped.set()

    def read(self) -> Frame | None:
        for item in self._shown:
            if self._stopped.is_set():
                return None
            if isinstance(item, float):
                self._stopped.wait(item)
            elif isinstance(item, FrameStatus):
                return self._births.failed(item, "as the test says")
            elif isinstance(item, int):
                self._births.skip(item)
            else:
                assert isinstance(item, np.ndarray)
                return self._births.complete(item, item.shape[1], item.shape[0])
        return None


class Troubled:
    """A real session with trouble put before or behind its runs: `trouble(run number, outputs)`."""

    def __init__(self, session: Session, plan: PlanKind, trouble: Callable[[int, Binding], None]) -> None:
        self._session, self._trouble, self.runs = session, trouble, 0
        self.plan, self.provider, self.simulated = plan, session.provider, session.simulated
        self.input, self.outputs, self.host_nodes = session.input, session.outputs, session.host_nodes

    def bind(self) -> Binding:
        return self._session.bind()

    def run(self, binding: Binding, power_mode: PowerMode) -> None:
        self.runs += 1
        self._session.run(binding, PowerMode.NONE)
        self._trouble(self.runs, binding)

    def close(self) -> None:
        self._session.close()


@dataclass
class Bench:
    """Builds lines on the toy model."""

    folder: Path

    def engine(self, plan: PlanKind = PlanKind.CPU, trouble: Callable[[int, Binding], None] | None = None) -> Engine:
        card = resolve(Model(path=self.folder), Preprocess())
        session: Session = open_cpu(card.file, 1)
        if trouble is not None:
            session = Troubled(session, plan, trouble)
        recipe = make_recipe(Judge(), card.labels, card.score, card.marginal)
        return Engine(session, card.input, card.decoder(session.outputs, recipe.thresholds, card.head))

    def line(
        self,
        shown: Iterator[object],
        *engines: Engine,
        limits: Limits = OFFLINE,
        timeout_ms: int = 3000,
        judged: Callable[[Detections], object] | None = None,
        max_frames: int | None = None,
    ) -> tuple[Line, Kept]:
        card = resolve(Model(path=self.folder), Preprocess())
        recipe = make_recipe(Judge(), card.labels, card.score, card.marginal)
        loaded = {engine.plan: engine for engine in engines or (self.engine(),)}
        kept = Kept()
        inspection = Inspection(lambda _frame: None, judged or (lambda found: judge(found, recipe)))  # type: ignore[arg-type]
        line = Line(Pictures(shown), loaded, governor(tuple(loaded)), inspection, kept, limits, timeout_ms, max_frames)
        return line, kept


def governor(plans: tuple[PlanKind, ...]) -> Governor:
    """The real scheduler, told that these plans are loaded and agree."""
    config = Scheduler.model_validate({"faults": {"backoff_s": 0.001, "backoff_max_s": 0.001}})
    made = Governor(
        build_policy(config, plans, [(plans[0], plan) for plan in plans], None, canaries=False), deadline_us=None
    )
    made.place()  # asks for them to be loaded
    for plan in plans:
        made.tell(Event(EventKind.LOADED, plan, latency_us=1000))
    return made


@pytest.fixture
def bench(toy_model: Path) -> Bench:
    return Bench(toy_model)


def run(line: Line) -> None:
    line.start()
    assert line.wait(20), "the line did not end"
    line.close()


def assert_sealed_once(line: Line, kept: Kept) -> None:
    counts = line.sealer.counts()
    assert [one.seq for one in kept.results] == list(range(1, len(kept.results) + 1))
    assert len({one.trigger_id for one in kept.results}) == len(kept.results) == counts.triggers == counts.sealed


def test_good_and_bad_parts(bench: Bench) -> None:
    line, kept = bench.line(iter([GOOD, BAD, GOOD, BAD, BAD] * 6))
    run(line)
    assert kept.reasons == [Reason.OK, Reason.DEFECT, Reason.OK, Reason.DEFECT, Reason.DEFECT] * 6
    assert_sealed_once(line, kept)
    assert [state[0] for state in kept.states] == [Mode.READY, Mode.RUNNING]
    defect = next(one for one in kept.results if one.reason is Reason.DEFECT).defects[0]
    assert defect.label == "bright"
    assert set(kept.results[0].stage_us) == {"wait", "preprocess", "infer", "decode"}


def test_every_bad_status_has_its_reason(bench: Bench) -> None:
    line, kept = bench.line(iter([
        GOOD, FrameStatus.INCOMPLETE, FrameStatus.STALE, FrameStatus.LOST, GOOD, 2, BAD,
    ]))  # fmt: skip
    run(line)
    assert kept.reasons == [
        Reason.OK, Reason.INCOMPLETE_FRAME, Reason.STALE_FRAME, Reason.CAMERA_LOST, Reason.OK,
        Reason.MISSED_TRIGGER, Reason.MISSED_TRIGGER, Reason.DEFECT,
    ]  # fmt: skip
    assert_sealed_once(line, kept)
    assert kept.alarms == [("CAMERA_LOST", True), ("CAMERA_LOST", False)]


def test_too_many_triggers_are_overrun_and_late_ones_late(bench: Bench) -> None:
    slow = bench.engine(PlanKind.CPU, lambda _run, _binding: time.sleep(0.05))
    limits = Limits(pacing="realtime", deadline_ms=120, slots=2)
    line, kept = bench.line(iter([GOOD] * 10), slow, limits=limits)
    run(line)
    assert_sealed_once(line, kept)
    assert kept.reasons.count(Reason.OVERRUN) >= 6
    assert set(kept.reasons) <= {Reason.OK, Reason.OVERRUN, Reason.LATE}
    assert Reason.OK in kept.reasons


def test_a_late_verdict_is_late_and_never_pass(bench: Bench) -> None:
    slow = bench.engine(PlanKind.CPU, lambda _run, _binding: time.sleep(0.2))
    line, kept = bench.line(iter([GOOD, 0.4]), slow, limits=Limits(pacing="realtime", deadline_ms=50, slots=2))
    run(line)
    assert kept.reasons == [Reason.LATE]
    late = kept.results[0]
    assert late.deadline_us is not None
    assert 0 <= late.t_done_us - late.deadline_us < 100_000, "sealed by the timer, not when the run returned"


def test_a_verdict_that_comes_after_the_seal_is_kept_as_a_note(bench: Bench) -> None:
    line, kept = bench.line(iter([]))
    ticket = Ticket(1, 1, None, 0, 0, None, line.placement)
    assert line.sealer.seal(line.sealer.admit(ticket), Judgement(Reason.LATE))
    assert not line.sealer.seal(ticket, Judgement(Reason.OK))
    assert kept.reasons == [Reason.LATE]
    assert kept.notes == [(1, "a verdict came after the seal: OK ")]


def failing(runs: set[int]) -> Callable[[int, Binding], None]:
    def trouble(run: int, _binding: Binding) -> None:
        if run in runs:
            raise RuntimeFault("ENGINE_ERROR", got="injected")

    return trouble


def test_a_failed_run_is_run_again_on_the_next_plan(bench: Bench) -> None:
    line, kept = bench.line(iter([BAD, GOOD, 0.3, BAD, GOOD]), bench.engine(PlanKind.HTP, failing({2})), bench.engine())
    run(line)
    assert kept.reasons == [Reason.DEFECT, Reason.OK, Reason.DEFECT, Reason.OK]
    by_frame = {one.frame_id: one for one in kept.results}
    assert [by_frame[i].placement.plan for i in (1, 2, 3, 4)] == [PlanKind.HTP, *[PlanKind.CPU] * 3]
    assert "cpu_fallback" in by_frame[2].degraded


def test_without_another_plan_a_fault_is_unknown(bench: Bench) -> None:
    line, kept = bench.line(iter([GOOD, 0.3, GOOD]), bench.engine(PlanKind.CPU, failing({1})))
    run(line)
    assert kept.reasons == [Reason.RUNTIME_FAULT, Reason.RUNTIME_FAULT], "until its session has been built anew"


def test_nan_is_never_an_empty_list(bench: Bench) -> None:
    def poison(run: int, binding: Binding) -> None:
        if run == 1:
            binding.outputs[0][...] = np.nan

    line, kept = bench.line(iter([GOOD, 0.3, GOOD]), bench.engine(PlanKind.CPU, poison))
    run(line)
    assert kept.reasons == [Reason.INVALID_OUTPUT, Reason.RUNTIME_FAULT]
    line, kept = bench.line(iter([BAD, GOOD]), bench.engine(PlanKind.HTP, poison), bench.engine())
    run(line)
    assert kept.reasons == [Reason.DEFECT, Reason.OK]
    assert_sealed_once(line, kept)


def test_a_run_that_never_returns_is_left_behind(bench: Bench) -> None:
    release = threading.Event()

    def hang(run: int, _binding: Binding) -> None:
        if run == 2:
            release.wait(20)

    line, kept = bench.line(
        iter([GOOD, BAD, GOOD, BAD, GOOD]), bench.engine(PlanKind.HTP, hang), bench.engine(), timeout_ms=200
    )
    run(line)
    release.set()
    assert kept.reasons == [Reason.OK, Reason.DEFECT, Reason.OK, Reason.DEFECT, Reason.OK]
    assert_sealed_once(line, kept)
    by_frame = {one.frame_id: one for one in kept.results}
    assert by_frame[2].placement.plan is PlanKind.CPU
    assert by_frame[5].placement.plan is PlanKind.CPU, "the NPU stays out for this process"


def test_out_of_slots_ends_the_process_with_exit_5(bench: Bench) -> None:
    release = threading.Event()
    stuck = bench.engine(PlanKind.CPU, lambda _run, _binding: release.wait(20) and None)
    line, kept = bench.line(iter([GOOD] * 9), stuck, limits=Limits(pacing="offline", slots=1), timeout_ms=100)
    line.start()
    assert line.wait(20)
    with pytest.raises(RuntimeFault, match="every slot is held"):
        line.close()
    release.set()
    assert set(kept.reasons) == {Reason.RUNTIME_FAULT}
    assert_sealed_once(line, kept)


def test_a_bug_in_a_stage_is_unknown_internal(bench: Bench) -> None:
    def broken(_found: Detections) -> object:
        raise KeyError("a bug")

    line, kept = bench.line(iter([GOOD, BAD]), judged=broken)
    run(line)
    assert kept.reasons == [Reason.INTERNAL, Reason.INTERNAL]
    assert kept.alarms == [("INTERNAL", True)]


def test_stop_is_prompt_and_leaves_nothing_unsealed(bench: Bench) -> None:
    def forever() -> Iterator[object]:
        while True:
            yield GOOD

    line, kept = bench.line(forever(), bench.engine(PlanKind.CPU, lambda _r, _b: time.sleep(0.02)))
    line.start()
    time.sleep(0.3)
    line.stop()
    assert line.wait(5)
    line.close()
    assert len(kept.results) > 3
    assert_sealed_once(line, kept)


def test_hold_seals_not_running(bench: Bench) -> None:
    shown: list[object] = [GOOD, 0.3, GOOD, 0.3]
    line, kept = bench.line(iter(shown))
    line.start()
    time.sleep(0.15)
    assert line.change_mode(Mode.HOLD, "the operator held the line")
    assert line.wait(10)
    line.close()
    assert kept.reasons == [Reason.OK, Reason.NOT_RUNNING]


def test_frames_ends_after_so_many(bench: Bench) -> None:
    line, kept = bench.line(iter([GOOD] * 50), max_frames=7)
    run(line)
    assert len(kept.results) == 7


def test_pictures_of_changing_size(bench: Bench) -> None:
    big = cv2.resize(BAD, (160, 160), interpolation=cv2.INTER_NEAREST)
    wide = np.full((64, 128, 3), 30, np.uint8)
    line, kept = bench.line(iter([BAD, big, wide, big, BAD]))
    run(line)
    assert kept.reasons == [Reason.DEFECT, Reason.DEFECT, Reason.OK, Reason.DEFECT, Reason.DEFECT]
    first, second = (next(one for one in kept.results if one.frame_id == i).defects[0].box_px for i in (1, 2))
    assert np.allclose(np.array(second), np.array(first) * 2.5, atol=1.0), "boxes are in the pixels of their own frame"
