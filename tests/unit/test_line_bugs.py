"""Exceptions that nobody raises on purpose, at every place where a line calls something: never silence, never PASS."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from line_bench import BAD, GOOD, PATIENCE_S, Bench, Kept, assert_sealed_once, governor, run
from wire_samples import until

from edge_app.config.runtime import Limits
from edge_app.detections import Detections
from edge_app.engine import Engine, Work
from edge_app.errors import CameraError, ConfigError, EdgeAppError, ExitCode, RuntimeFault
from edge_app.frame import Frame, FrameStatus
from edge_app.line import Line
from edge_app.npu_gate import NpuGate, Turn
from edge_app.sealing import Ticket
from edge_app.verdict import Judgement, PlanKind, Reason, Sealed

BY_TRIGGER = Limits(pacing="realtime", deadline_ms=PATIENCE_S * 1000, slots=3, trigger="software")


@pytest.fixture
def bench(toy_model: Path) -> Bench:
    return Bench(toy_model)


def raising(calls: set[int], error: Exception) -> Callable[..., None]:
    """Raises at some of its calls, counted from 1."""
    count = 0

    def call(*_arguments: object) -> None:
        nonlocal count
        count += 1
        if count in calls:
            raise error

    return call


class Failing(queue.SimpleQueue):  # type: ignore[type-arg]
    """A queue that has nothing to give, from its third call on: there is no memory for it."""

    calls = 0

    def get(self, block: bool = True, timeout: float | None = None) -> object:
        self.calls += 1
        if self.calls > 2:
            raise MemoryError
        return super().get(block, timeout)


@pytest.mark.parametrize("stage", ["guard", "preprocess", "inference"])
def test_a_stage_that_loses_its_thread_ends_the_line_with_an_error(bench: Bench, stage: str) -> None:
    """It was the clean end, with exit code 0, or OVERRUN for ever."""
    line, kept = bench.line(forever())
    owner, name = (line._inference, "_queue") if stage == "inference" else (line, f"_to_{stage}")
    setattr(owner, name, Failing())
    if stage == "guard":
        line.admission._admitted = line._to_guard.put
    with pytest.raises(RuntimeFault, match="no more memory"):
        run(line)
    assert_sealed_once(line, kept)


# -- the session ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [AssertionError("a bug"), TypeError("of a library"), MemoryError()])
def test_a_session_that_raises_anything_is_a_fault_of_its_plan(bench: Bench, error: Exception) -> None:
    broken = bench.engine(PlanKind.HTP, raising({2}, error))
    line, kept = bench.line(iter([BAD, GOOD, BAD]), broken, bench.engine())
    run(line)
    assert kept.reasons == [Reason.DEFECT, Reason.OK, Reason.DEFECT]
    assert [one.placement.plan for one in sorted(kept.results, key=lambda one: one.seq)][1] is PlanKind.CPU
    assert kept.alarms == [("INTERNAL", True)]
    assert type(error).__name__ in kept.alarm_texts[0]
    assert_sealed_once(line, kept)


def test_without_another_plan_it_is_a_runtime_fault(bench: Bench) -> None:
    line, kept = bench.line(iter([GOOD, GOOD]), bench.engine(PlanKind.CPU, raising({1}, ValueError("bad tensor"))))
    run(line)
    assert kept.reasons == [Reason.RUNTIME_FAULT] * 2
    assert "ValueError: bad tensor" in kept.results[0].detail
    assert_sealed_once(line, kept)


def test_a_scheduler_that_raises_at_a_fault_costs_one_frame(bench: Bench) -> None:
    made = governor((PlanKind.CPU,))
    made.fault = raising({1}, KeyError("a bug"))  # type: ignore[method-assign]
    engine = bench.engine(PlanKind.CPU, raising({1}, RuntimeFault("ENGINE_ERROR")))
    line, kept = bench.line(iter([GOOD, BAD]), engine, placer=made)
    run(line)
    assert kept.reasons == [Reason.INTERNAL, Reason.DEFECT]
    assert kept.alarms == [("INTERNAL", True)]


def test_a_hung_run_whose_frame_can_not_go_on_leaves_the_stage_alive(bench: Bench) -> None:
    kept = Kept()
    htp = bench.engine(PlanKind.HTP, lambda number, _binding: kept.after(3)() if number == 1 else None)
    made = governor((PlanKind.HTP, PlanKind.CPU))
    made.retry = raising({1}, KeyError("a bug"))  # type: ignore[method-assign, assignment]
    line, _ = bench.line(
        iter([GOOD, kept.after(1), BAD, GOOD]), htp, bench.engine(), timeout_ms=300, placer=made, kept=kept
    )
    run(line)
    assert kept.reasons == [Reason.INTERNAL, Reason.DEFECT, Reason.OK]
    assert_sealed_once(line, kept)


# -- preprocess, guard, decode, judge ---------------------------------------------------------------------------------


class Clumsy(Engine):
    """Raises where it is told to."""

    at: str = ""

    def preprocess(self, frame: Frame, work: Work) -> None:
        if self.at == "preprocess" and frame.frame_id == 2:
            raise ZeroDivisionError("a bug")
        super().preprocess(frame, work)

    def result(self, work: Work) -> Detections:
        found = super().result(work)
        assert isinstance(found, Detections)
        if self.at == "decode" and len(found.scores):
            raise IndexError("a bug")
        return found


@pytest.mark.parametrize("at", ["preprocess", "decode"])
def test_one_frame_that_breaks_a_stage_is_internal_and_the_next_is_inspected(bench: Bench, at: str) -> None:
    engine = bench.engine()
    engine.__class__ = Clumsy
    assert isinstance(engine, Clumsy)
    engine.at = at
    line, kept = bench.line(iter([GOOD, BAD, GOOD, GOOD, GOOD, GOOD]), engine)
    run(line)
    assert kept.reasons == [Reason.OK, Reason.INTERNAL] + [Reason.OK] * 4
    assert kept.alarms == [("INTERNAL", True)]
    assert_sealed_once(line, kept)


def test_a_guard_that_raises_is_internal(bench: Bench) -> None:
    def guard(frame: Frame) -> Judgement | None:
        if frame.frame_id == 1:
            raise AttributeError("a bug")
        return None

    line, kept = bench.line(iter([GOOD, GOOD]), guard=guard)
    run(line)
    assert kept.reasons == [Reason.INTERNAL, Reason.OK]


def test_want_of_memory_is_no_bug_to_report(bench: Bench) -> None:
    def guard(frame: Frame) -> Judgement | None:
        raise MemoryError

    line, kept = bench.line(iter([GOOD]), guard=guard)
    run(line)
    assert kept.reasons == [Reason.INTERNAL]
    assert kept.alarm_texts == ["stage guard: MemoryError"]
    assert "MemoryMax" in kept.alarm_remedies[0]


def test_a_judge_that_gives_no_judgement_is_internal_once(bench: Bench) -> None:
    line, kept = bench.line(iter([GOOD, BAD]), judged=lambda _found: None)
    run(line)
    assert kept.reasons == [Reason.INTERNAL] * 2
    assert kept.alarms == [("INTERNAL", True)]
    assert_sealed_once(line, kept)


# -- admission --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["place", "admit"])
def test_a_scheduler_that_raises_at_admission_costs_one_frame(bench: Bench, method: str) -> None:
    made = governor((PlanKind.CPU,))
    real, raise_first = getattr(made, method), raising({1}, KeyError("a bug"))

    def first_raises() -> object:
        raise_first()
        return real()

    setattr(made, method, first_raises)
    line, kept = bench.line(iter([GOOD, BAD, GOOD]), placer=made)
    run(line)
    assert kept.reasons == [Reason.INTERNAL, Reason.DEFECT, Reason.OK]
    assert kept.alarms == [("INTERNAL", True)]
    assert_sealed_once(line, kept)


def test_a_camera_that_raises_ends_the_line_with_its_error(bench: Bench) -> None:
    line, kept = bench.line(iter([GOOD, raising({1}, OSError("a driver"))]))
    line.start()
    assert line.wait(PATIENCE_S)
    with pytest.raises(RuntimeFault, match="the camera stage failed"):
        line.close()
    assert kept.reasons == [Reason.OK]
    assert_sealed_once(line, kept)


def test_a_trigger_whose_picture_can_not_be_taken_has_its_result(bench: Bench) -> None:
    lost = raising({1}, CameraError("unplugged"))
    line, kept = bench.line(iter([GOOD, lost]), limits=BY_TRIGGER)
    line.start()
    for number in (1, 2):
        line.admission.trigger(number, None, None)
    assert line.wait(PATIENCE_S)
    line.admission.trigger(3, None, None)
    with pytest.raises(CameraError, match="unplugged"):
        line.close()
    assert {one.trigger_id: one.reason for one in kept.results} == {
        1: Reason.OK, 2: Reason.CAMERA_LOST, 3: Reason.NOT_RUNNING,
    }  # fmt: skip
    assert_sealed_once(line, kept)


def test_the_last_frames_of_a_run_are_those_that_were_asked_for(bench: Bench) -> None:
    """A burst of triggers counted as frames before their pictures were taken: the last of them got none."""
    line, kept = bench.line(iter([GOOD] * 4), limits=BY_TRIGGER, max_frames=3)
    for number in (1, 2, 3):
        line.admission.trigger(number, None, None)
    line.start()
    assert line.wait(PATIENCE_S)
    line.close()
    assert kept.reasons == [Reason.OK] * 3
    assert_sealed_once(line, kept)


def test_a_trigger_by_another_clock_is_refused_and_counts_for_nothing(bench: Bench) -> None:
    """It was sealed LATE, with a latency of 56 years that stood in the summary, and alarms asked for more time."""
    line, kept = bench.line(iter([GOOD]), limits=BY_TRIGGER, max_frames=1)
    with pytest.raises(ConfigError, match="t_us is not by this node's clock"):
        line.admission.trigger(1, None, None, asked_utc_us=0)
    line.admission.trigger(1, None, None)
    line.start()
    assert line.wait(PATIENCE_S)
    line.close()
    assert kept.reasons == [Reason.OK]


class JustSealed:
    """A ticket whose deadline comes between two looks at it."""

    def __init__(self) -> None:
        self._looks = iter([False])

    @property
    def sealed(self) -> bool:
        return next(self._looks, True)


class CountedGate(NpuGate):
    left = 0

    def enter(self, turn: Turn, given_up: Callable[[], bool] = lambda: False) -> bool:
        return True

    def leave(self, turn: Turn) -> None:
        self.left += 1


def test_a_turn_on_the_npu_is_given_back_or_used_whenever_the_deadline_comes(bench: Bench) -> None:
    """Neither happened: from the next frame on the NPU counted as hung, for all lines of the process."""
    line, _ = bench.line(iter([]))
    stage, gate = line._inference, CountedGate()
    stage.gate = gate
    used = stage._granted(Turn("line", None, 1000), JustSealed())  # type: ignore[arg-type]
    assert used is (gate.left == 0)


def test_triggers_of_an_outage_take_no_picture_from_those_after_it(bench: Bench) -> None:
    """Each took one once the camera was back: with as many triggers as pictures the line stayed late for ever."""
    kept, asked = Kept(), threading.Event()
    shown = iter([kept.after(9), GOOD, asked.wait, GOOD, kept.after(10), GOOD])
    line, _ = bench.line(shown, limits=BY_TRIGGER, kept=kept)
    line._camera.live = True  # type: ignore[misc]
    line.start()
    for number in range(1, 10):
        line.admission.trigger(number, None, 1000)
    until(lambda: len(kept.results) == 9)
    until(lambda: not line.admission._triggers)
    line.admission.trigger(10, None, None)
    asked.set()
    until(lambda: len(kept.results) == 10)
    found = {one.trigger_id: (one.reason, one.detail) for one in kept.results}
    assert found[10][0] is Reason.OK
    assert {found[number] for number in range(1, 10)} == {(Reason.LATE, "no picture came by the deadline")}
    line.stop()
    line.wait(PATIENCE_S)


def test_triggers_while_the_camera_is_lost_say_so_until_it_is_back(bench: Bench) -> None:
    back = threading.Event()
    line, kept = bench.line(iter([GOOD, FrameStatus.LOST, back.wait, GOOD, GOOD]), limits=BY_TRIGGER)
    line.start()
    for number in (1, 2, 3):  # the third sees it come back
        line.admission.trigger(number, None, None)
    until(lambda: len(kept.results) == 2 and line.admission._waits)
    line._camera.trouble = "no frame comes"  # type: ignore[misc, assignment]
    for number in (4, 5):
        line.admission.trigger(number, None, None)
    line._camera.trouble = None
    line.admission.trigger(6, None, None)
    back.set()
    until(lambda: len(kept.results) == 6)
    found = {one.trigger_id: (one.reason, one.detail) for one in kept.results}
    assert found[4] == found[5] == (Reason.CAMERA_LOST, "no frame comes")
    assert [found[number][0] for number in (1, 2, 3, 6)] == [Reason.OK, Reason.CAMERA_LOST, Reason.OK, Reason.OK]
    line.stop()
    line.wait(PATIENCE_S)


# -- the outlet -------------------------------------------------------------------------------------------------------


class Broken(Kept):
    """An outlet that raises."""

    at: str = ""

    def result(self, sealed: Sealed) -> None:
        if self.at == "result" and sealed.frame_id == 2:
            raise KeyError("a bug")
        super().result(sealed)

    def evidence(self, frame: Frame, give_back: Callable[[Frame], None]) -> bool:
        if self.at == "evidence" and frame.frame_id == 2:
            raise KeyError("a bug")
        return False

    def alarm(self, name: str, active: bool, text: str, remedy: str) -> None:
        super().alarm(name, active, text, remedy)
        if self.at == "alarm":
            raise KeyError("a bug")

    def note(self, seq: int, text: str) -> None:
        if self.at == "note":
            raise KeyError("a bug")


def broken(at: str) -> Broken:
    kept = Broken()
    kept.at = at
    return kept


def end_of(line: Line) -> EdgeAppError:
    line.start()
    assert line.wait(PATIENCE_S)
    with pytest.raises(EdgeAppError) as caught:
        line.close()
    return caught.value


def forever() -> Iterator[object]:
    while True:
        yield GOOD


def test_a_result_that_can_not_be_handed_over_ends_the_line_loudly(bench: Bench) -> None:
    line, kept = bench.line(forever(), kept=broken("result"))
    error = end_of(line)
    assert error.exit_code is ExitCode.INTERNAL
    assert "KeyError" in str(error)
    counts = line.sealer.counts()
    assert counts.sealed == counts.triggers == len(kept.results) + 1, "counted, and missed by its seq"
    assert 2 not in {one.frame_id for one in kept.results}


def test_evidence_that_raises_costs_neither_result_nor_slot(bench: Bench) -> None:
    line, kept = bench.line(iter([GOOD, BAD] * 8), kept=broken("evidence"))
    run(line)
    assert kept.reasons == [Reason.OK, Reason.DEFECT] * 8
    assert line.queue_depth == 0
    assert kept.alarms == [("INTERNAL", True)]
    assert_sealed_once(line, kept)


def test_evidence_that_raises_at_a_refused_frame_does_not_end_the_line(bench: Bench) -> None:
    line, kept = bench.line(iter([GOOD, FrameStatus.INCOMPLETE, GOOD]), kept=broken("evidence"))
    run(line)
    assert kept.reasons == [Reason.OK, Reason.INCOMPLETE_FRAME, Reason.OK]
    assert kept.alarms == [("INTERNAL", True)]


def test_alarms_that_can_not_be_told_end_the_line(bench: Bench) -> None:
    engine = bench.engine(PlanKind.CPU, raising({2}, KeyError("a bug")))
    line, kept = bench.line(forever(), engine, kept=broken("alarm"))
    assert end_of(line).exit_code is ExitCode.INTERNAL
    assert_sealed_once(line, kept)


def test_a_remark_that_can_not_be_kept_changes_nothing(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    line, kept = bench.line(iter([]), kept=broken("note"))
    ticket = line.sealer.admit(Ticket(1, 1, None, 0, 0, None, line.placement))
    assert line.sealer.seal(ticket, Judgement(Reason.LATE))
    assert not line.sealer.seal(ticket, Judgement(Reason.OK))
    assert kept.reasons == [Reason.LATE]
    assert "a remark on result 1 could not be kept" in caplog.text


def telling(calls: set[int]) -> Callable[[], frozenset[str]]:
    """What is degraded: nothing, or an exception."""
    raise_some = raising(calls, KeyError("a bug"))

    def tell() -> frozenset[str]:
        raise_some()
        return frozenset()

    return tell


def test_a_seal_that_fails_is_tried_again_as_internal(bench: Bench) -> None:
    line, kept = bench.line(iter([GOOD] * 6), degraded=telling({3}))
    run(line)
    assert sorted(kept.reasons) == [Reason.INTERNAL] + [Reason.OK] * 5
    assert kept.alarms == [("INTERNAL", True)]
    assert_sealed_once(line, kept)


def test_what_can_not_be_sealed_at_all_ends_the_line(bench: Bench) -> None:
    line, kept = bench.line(forever(), degraded=telling(set(range(3, 1000))))
    assert end_of(line).exit_code is ExitCode.INTERNAL
    assert kept.reasons == [Reason.OK] * 2
