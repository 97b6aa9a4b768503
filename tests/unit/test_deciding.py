"""Sealing by decision: which frames become results, what they say, and what is counted of the others."""

from __future__ import annotations

import threading

import pytest
from line_bench import Kept

from edge_app.clock import monotonic_us, utc_us
from edge_app.config.mirror import Decision, Energy
from edge_app.deciding import DecisionSealer, Effort, estimated_w
from edge_app.sealing import Ticket
from edge_app.verdict import Judgement, Placement, PlanKind, PowerMode, Reason, SchedReason, Verdict

LABELS = ("hat", "skirt")
RULES = Decision(smooth_s=0.0, dwell_s=0.5, hold_s=2.0)
PLACEMENT = Placement(PlanKind.CPU, PowerMode.NONE, 1.0, SchedReason.CONFIGURED)
GATED = Judgement(Reason.NOT_RUNNING, gated=True)
NOBODY = Judgement(Reason.NO_PART)
START_US = monotonic_us() - 60_000_000
"""A minute ago, so that nothing here lies in the future."""


def frame_says(label: str, probability: float = 0.9) -> Judgement:
    scores = {one: probability if one == label else 1 - probability for one in LABELS}
    return Judgement(Reason.MARGINAL, "one frame decides nothing", classes=tuple(scores.items()))


def ticket(number: int, **more: object) -> Ticket:
    """Of the frame that came `number` tenths of a second after the start."""
    captured = START_US + number * 100_000
    keys = {"deadline_mono_us": None, **more}
    return Ticket(number, number, None, utc_us() - monotonic_us() + captured, captured, placement=PLACEMENT, **keys)  # type: ignore[arg-type]


def sealed(judgements: list[Judgement], rules: Decision = RULES) -> tuple[DecisionSealer, Kept]:
    kept = Kept()
    sealer = DecisionSealer(rules, LABELS, kept)
    for number, judgement in enumerate(judgements):
        sealer.seal(sealer.admit(ticket(number)), judgement)
    return sealer, kept


def test_a_stable_label_is_one_pass() -> None:
    sealer, kept = sealed([frame_says("skirt")] * 20)
    (result,) = kept.results
    assert (result.verdict, result.reason, result.label) == (Verdict.PASS, Reason.OK, "skirt")
    assert result.classes == (("hat", 0.1), ("skirt", 0.9))
    assert (result.seq, result.trigger_id, result.frame_id) == (1, 1, 5)
    assert result.stable_since_us == pytest.approx(result.t_capture_us - 500_000, abs=2000)
    counts = sealer.counts()
    assert (counts.triggers, counts.passed, counts.unknown) == (1, 1, 0)


def test_pictures_that_can_not_be_judged_raise_an_alarm_by_the_frame() -> None:
    """By the decision there was one in ten minutes of darkness. Frames that were left out are no trouble here."""
    dark, left_out = Judgement(Reason.BAD_IMAGE, "dark"), Judgement(Reason.OVERRUN, "no slot")
    _, kept = sealed([frame_says("hat")] * 20 + [left_out] * 40 + [dark] * 7)
    assert kept.alarms == []
    sealer, kept = sealed([frame_says("hat")] * 20 + [dark] * 30)
    assert kept.alarms == [("BAD_IMAGE", True)]
    for number in range(50, 82):
        sealer.seal(sealer.admit(ticket(number)), frame_says("hat"))
    assert kept.alarms == [("BAD_IMAGE", True), ("BAD_IMAGE", False)]


def test_unsure_is_marginal_and_names_nothing() -> None:
    _, kept = sealed([frame_says("hat", 0.55)] * 20)
    (result,) = kept.results
    assert (result.verdict, result.reason, result.label) == (Verdict.UNKNOWN, Reason.MARGINAL, None)
    assert result.classes == (("hat", 0.55), ("skirt", 0.45))


def test_nobody_is_no_part() -> None:
    _, kept = sealed([frame_says("hat")] * 10 + [NOBODY] * 10)
    assert [(one.reason, one.label) for one in kept.results] == [(Reason.OK, "hat"), (Reason.NO_PART, None)]
    assert kept.results[1].classes == ()


def test_a_dark_mirror_says_so_when_the_label_has_had_its_time() -> None:
    _, kept = sealed([frame_says("hat")] * 11 + [Judgement(Reason.BAD_IMAGE, "dark")] * 30)
    assert [(one.reason, one.label, one.detail) for one in kept.results] == [
        (Reason.OK, "hat", ""), (Reason.BAD_IMAGE, None, "dark")
    ]  # fmt: skip
    assert kept.results[1].frame_id == 30


def test_gated_frames_are_counted_and_are_no_triggers() -> None:
    inferred = ticket(0, stage_us={"infer": 7000})
    kept = Kept()
    sealer = DecisionSealer(RULES, LABELS, kept)
    sealer.seal(sealer.admit(inferred), frame_says("hat"))
    for number in range(1, 5):
        sealer.seal(sealer.admit(ticket(number)), GATED)
    assert sealer.effort == Effort(frames=5, gated=4, inferences=1, infer_us=7000)
    assert sealer.triggers == 5, "frames that came in, by which a run of so many frames ends"
    assert sealer.counts().triggers == 0
    assert kept.results == []


def test_a_frame_is_judged_once() -> None:
    kept = Kept()
    sealer = DecisionSealer(RULES, LABELS, kept)
    one = sealer.admit(ticket(0))
    assert not sealer.seal(one, frame_says("hat"))
    assert one.sealed
    assert not sealer.seal(one, NOBODY)
    assert sealer.effort.frames == 1
    assert sealer.following.coming is not None
    assert sealer.following.coming.label == 0


def test_scores_that_come_too_late_are_not_used() -> None:
    kept = Kept()
    sealer = DecisionSealer(RULES, LABELS, kept)
    for number in range(20):
        sealer.seal(sealer.admit(ticket(number, deadline_mono_us=START_US)), frame_says("hat"))
    assert [(one.reason, one.label) for one in kept.results] == [(Reason.LATE, None)]


def test_one_frame_alone_is_never_ok() -> None:
    kept = Kept()
    sealer = DecisionSealer(RULES, LABELS, kept)
    for number in range(10):
        one = sealer.admit(ticket(number))
        with pytest.raises(AssertionError, match="one frame alone"):
            sealer.seal(one, Judgement(Reason.OK))
        assert not one.sealed
        sealer.seal(one, Judgement(Reason.INTERNAL, "a bug"))
        assert one.sealed
    assert [(result.reason, result.label) for result in kept.results] == [(Reason.INTERNAL, None)]


def test_time_passes_without_frames() -> None:
    """The camera hangs: the label goes when its time is over, told by a result of its own."""
    sealer, kept = sealed([frame_says("hat")] * 10)
    assert [one.label for one in kept.results] == ["hat"]
    assert sealer.pass_time()
    assert not sealer.pass_time(), "told once"
    last = kept.results[-1]
    assert (last.reason, last.label, last.seq, last.trigger_id) == (Reason.CAMERA_LOST, None, 2, 2)
    assert last.frame_id == 0, "it is of no frame, and has no picture"
    assert last.detail.startswith("no frame came for ")
    assert last.t_capture_us > kept.results[0].t_capture_us


def test_the_thread_lets_time_pass() -> None:
    sealer, kept = sealed([frame_says("hat")] * 10)
    sealer.start()
    kept.after(2)()
    sealer.stop()
    assert [one.label for one in kept.results] == ["hat", None]
    assert "decision" not in {thread.name for thread in threading.enumerate()}


def test_the_estimate_lies_between_both_powers() -> None:
    energy = Energy(idle_w=0.4, active_w=1.6)
    assert estimated_w(energy, 0.0) == 0.4
    assert estimated_w(energy, 0.25) == pytest.approx(0.7)
    assert estimated_w(energy, 3.0) == 1.6, "side by side on two processors is still all of the time"
    assert Effort(10, 5, 5, 250_000).duty_cycle(1e6) == 0.25
    assert Effort(0, 0, 0, 0).duty_cycle(0) == 0.0
