"""The frame loop with a real model on the CPU: one result for every trigger, whatever happens to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from line_bench import BAD, GOOD, PATIENCE_S, Bench, Kept, assert_sealed_once, run

from edge_app.clock import monotonic_us
from edge_app.config.runtime import Limits
from edge_app.detections import Detections
from edge_app.errors import RuntimeFault
from edge_app.frame import FrameStatus
from edge_app.runtime.base import Binding
from edge_app.sealing import DeadlineTimer, Sealer, Ticket
from edge_app.verdict import Judgement, Mode, PlanKind, Reason


@pytest.fixture
def bench(toy_model: Path) -> Bench:
    return Bench(toy_model)


def test_good_and_bad_parts(bench: Bench) -> None:
    line, kept = bench.line(iter([GOOD, BAD, GOOD, BAD, BAD] * 6))
    run(line)
    assert kept.reasons == [Reason.OK, Reason.DEFECT, Reason.OK, Reason.DEFECT, Reason.DEFECT] * 6
    assert_sealed_once(line, kept)
    assert [state[0] for state in kept.states] == [Mode.READY, Mode.RUNNING]
    defect = next(one for one in kept.results if one.reason is Reason.DEFECT).defects[0]
    assert defect.label == "bright"
    assert set(kept.results[0].stage_us) == {"wait", "guard", "preprocess", "infer", "decode"}


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


def test_triggers_without_a_free_slot_are_overrun(bench: Bench) -> None:
    all_in = threading.Event()

    def shown() -> Iterator[object]:
        yield from [GOOD] * 10
        all_in.set()

    slow = bench.engine(PlanKind.CPU, lambda _run, _binding: all_in.wait(PATIENCE_S) and None)
    limits = Limits(pacing="realtime", deadline_ms=PATIENCE_S * 1000, slots=2)
    line, kept = bench.line(shown(), slow, limits=limits, timeout_ms=60_000)
    run(line)
    assert_sealed_once(line, kept)
    assert kept.reasons == [Reason.OK] * 2 + [Reason.OVERRUN] * 8


def test_a_late_verdict_is_late_and_never_pass(bench: Bench) -> None:
    kept, sealed_meanwhile = Kept(), []

    def slow(_run: int, _binding: Binding) -> None:
        kept.after(1)()
        sealed_meanwhile.append(kept.reasons)

    limits = Limits(pacing="realtime", deadline_ms=50, slots=2)
    line, _ = bench.line(iter([GOOD]), bench.engine(PlanKind.CPU, slow), limits=limits, timeout_ms=60_000, kept=kept)
    run(line)
    assert sealed_meanwhile == [[Reason.LATE]], "by the timer, not when the run returned"
    assert kept.reasons == [Reason.LATE]
    late = kept.results[0]
    assert late.deadline_us is not None
    assert late.t_done_us >= late.deadline_us


def test_a_line_that_is_always_late_raises_an_alarm_until_it_is_in_time_again(bench: Bench) -> None:
    line, kept = bench.line(iter([]))
    sealer = line.sealer

    def seal(*reasons: Reason) -> None:
        for reason in reasons:
            ticket = Ticket(sealer.triggers + 1, sealer.triggers + 1, None, 0, 0, None, line.placement)
            sealer.seal(sealer.admit(ticket), Judgement(reason))

    seal(*[Reason.OK] * 40, *[Reason.LATE] * 7)
    assert kept.alarms == []
    seal(Reason.OVERRUN)
    assert kept.alarms == [("LATE", True)]
    assert kept.alarm_texts[0].startswith("at least 8 of the last 32 triggers had no verdict in time")
    seal(*[Reason.DEFECT] * 29, *[Reason.CAMERA_LOST] * 100)
    assert kept.alarms == [("LATE", True)], "a frame that never came says nothing about time"
    seal(Reason.BAD_IMAGE)
    assert kept.alarms == [("LATE", True), ("LATE", False)]


def test_pictures_that_can_not_be_judged_raise_an_alarm_that_says_what_is_wrong_with_them(bench: Bench) -> None:
    line, kept = bench.line(iter([]))
    sealer = line.sealer

    def seal(*judgements: Judgement) -> None:
        for judgement in judgements:
            ticket = Ticket(sealer.triggers + 1, sealer.triggers + 1, None, 0, 0, None, line.placement)
            sealer.seal(sealer.admit(ticket), judgement)

    blurred = Judgement(Reason.BAD_IMAGE, "blurred: wanted at least 40, got 3")
    seal(*[Judgement(Reason.OK)] * 40, *[blurred] * 7, *[Judgement(Reason.OVERLOAD)] * 40)
    assert kept.alarms == []
    seal(blurred)
    assert kept.alarms == [("BAD_IMAGE", True)]
    assert kept.alarm_texts[-1].startswith(
        "at least 8 of the last 32 pictures could not be judged; the last one: blurred"
    )
    seal(*[Judgement(Reason.DEFECT)] * 29)
    assert kept.alarms == [("BAD_IMAGE", True)]
    seal(Judgement(Reason.OK))
    assert kept.alarms == [("BAD_IMAGE", True), ("BAD_IMAGE", False)]


def test_refusing_a_trigger_is_no_quick_verdict(bench: Bench) -> None:
    line, _ = bench.line(iter([]))
    sealer, now, place = line.sealer, monotonic_us(), line.placement
    for reason in (Reason.OVERLOAD, Reason.OVERRUN, Reason.CAMERA_LOST, Reason.NOT_RUNNING):
        sealer.seal(sealer.admit(Ticket(1, 1, None, 0, now, None, place)), Judgement(reason))
    assert sealer.latencies_us() == []
    sealer.seal(sealer.admit(Ticket(5, 5, None, 0, now, None, place)), Judgement(Reason.LATE))
    sealer.seal(sealer.admit(Ticket(6, 6, None, 0, now, None, place, stage_us={"wait": 1})), Judgement(Reason.OK))
    assert len(sealer.latencies_us()) == 2


def test_a_deadline_is_kept_behind_triggers_that_were_sealed_before_theirs(bench: Bench) -> None:
    line, kept = bench.line(iter([]))
    sealer, broken = Sealer(kept), list[Exception]()
    timer = DeadlineTimer(sealer, broken.append)
    now, placement = monotonic_us(), line.placement
    tickets = [Ticket(n, n, None, 0, now, now + 20_000 * n, placement) for n in range(1, 7)]
    for ticket in tickets:
        timer.watch(sealer.admit(ticket))
    for ticket in (*tickets[:3], tickets[4]):
        sealer.seal(ticket, Judgement(Reason.INCOMPLETE_FRAME))
    timer.start()
    kept.after(6)()
    timer.stop()
    assert not broken
    assert [(one.trigger_id, one.reason) for one in kept.results[4:]] == [(4, Reason.LATE), (6, Reason.LATE)]


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
    line, kept = bench.line(iter([BAD, GOOD, BAD, GOOD]), bench.engine(PlanKind.HTP, failing({2})), bench.engine())
    run(line)
    assert kept.reasons == [Reason.DEFECT, Reason.OK, Reason.DEFECT, Reason.OK]
    by_frame = {one.frame_id: one for one in kept.results}
    assert [by_frame[i].placement.plan for i in (1, 2, 3, 4)] == [PlanKind.HTP, *[PlanKind.CPU] * 3]
    assert "cpu_fallback" in by_frame[2].degraded


def test_without_another_plan_a_fault_is_unknown(bench: Bench) -> None:
    line, kept = bench.line(iter([GOOD, GOOD]), bench.engine(PlanKind.CPU, failing({1})))
    run(line)
    assert kept.reasons == [Reason.RUNTIME_FAULT, Reason.RUNTIME_FAULT], "until its session has been built anew"


def test_nan_is_never_an_empty_list(bench: Bench) -> None:
    def poison(run: int, binding: Binding) -> None:
        if run == 1:
            binding.outputs[0][...] = np.nan

    kept = Kept()
    line, _ = bench.line(iter([GOOD, kept.after(1), GOOD]), bench.engine(PlanKind.CPU, poison), kept=kept)
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
            release.wait(PATIENCE_S)

    line, kept = bench.line(
        iter([GOOD, BAD, GOOD, BAD, GOOD]), bench.engine(PlanKind.HTP, hang), bench.engine(), timeout_ms=1500
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
    stuck = bench.engine(PlanKind.CPU, lambda _run, _binding: release.wait(PATIENCE_S) and None)
    line, kept = bench.line(iter([GOOD] * 9), stuck, limits=Limits(pacing="offline", slots=1), timeout_ms=100)
    line.start()
    assert line.wait(PATIENCE_S)
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
    kept.after(4)()
    line.stop()
    assert line.wait(PATIENCE_S)
    line.close()
    assert len(kept.results) > 3
    assert_sealed_once(line, kept)


def test_hold_seals_not_running(bench: Bench) -> None:
    kept, held = Kept(), threading.Event()
    line, _ = bench.line(iter([GOOD, lambda: held.wait(PATIENCE_S), GOOD]), kept=kept)
    line.start()
    kept.after(1)()
    assert line.change_mode(Mode.HOLD, "the operator held the line")
    held.set()
    assert line.wait(PATIENCE_S)
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


def test_a_frame_too_small_for_the_region_is_no_bug_but_a_bad_image(bench: Bench) -> None:
    wide = np.full((64, 128, 3), 30, np.uint8)
    line, kept = bench.line(iter([BAD, wide]), bench.engine(region_px=(0, 0, 100, 64)))
    run(line)
    assert kept.reasons == [Reason.BAD_IMAGE, Reason.OK]
    assert kept.results[0].detail.startswith("the region to look at is not inside the frame: wanted 0 <= x0 < x1 <= 64")
    assert not kept.alarms
