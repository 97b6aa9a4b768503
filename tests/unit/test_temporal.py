"""The temporal decision: by example, and what must hold for every history."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from edge_app.config.mirror import Decision
from edge_app.temporal import Following, Shown, Stable, follow, wait
from edge_app.verdict import Reason

RULES = Decision(smooth_s=0.0, name_at=0.7, keep_at=0.4, dwell_s=0.5, hold_s=2.0)
SECOND = 1_000_000
STILL = Shown(Reason.OK)
NOBODY = Shown(Reason.NO_PART)
DARK = Shown(Reason.BAD_IMAGE, detail="dark")


def sure(label: int, probability: float = 0.9) -> Shown:
    """Three labels, one of them with this probability."""
    scores = np.full(3, (1 - probability) / 2, np.float32)
    scores[label] = probability
    return Shown(Reason.OK, scores)


def told(shown: list[Shown | None], rules: Decision = RULES) -> list[tuple[float, str, int | None]]:
    """(seconds, reason, label) of every change; frames come every 0.1 s, None: no frame came."""
    state, changes = Following(), []
    for k, one in enumerate(shown):
        now = round(k * SECOND / 10)
        state, stable = wait(rules, state, now) if one is None else follow(rules, state, one, now)
        if stable is not None:
            changes.append((round(now / SECOND, 3), stable.reason.value, stable.label))
    return changes


def test_a_label_is_told_once_when_it_has_lasted():
    assert told([sure(1)] * 30) == [(0.5, "OK", 1)]


def test_since_tells_when_it_was_first_seen():
    state, stable = Following(), None
    for k in range(6):
        state, stable = follow(RULES, state, sure(1), 1000 + k * 100_000)
    assert stable == Stable(Reason.OK, 1, 1000)


def test_a_short_change_is_not_told():
    assert told([sure(1)] * 10 + [sure(2)] * 4 + [sure(1)] * 10) == [(0.5, "OK", 1)]


def test_a_lasting_change_is_told_once():
    assert told([sure(1)] * 10 + [sure(2)] * 10) == [(0.5, "OK", 1), (1.5, "OK", 2)]


def test_between_keep_and_name_the_label_stays_but_is_not_given():
    assert told([sure(1)] * 10 + [sure(1, 0.5)] * 30) == [(0.5, "OK", 1)]
    assert told([sure(1, 0.5)] * 30) == [(0.5, "MARGINAL", None)]


def test_below_keep_it_is_unknown():
    assert told([sure(1)] * 10 + [sure(1, 0.35)] * 10) == [(0.5, "OK", 1), (1.5, "MARGINAL", None)]


def test_nobody_ends_the_label_and_what_was_smoothed():
    rules = RULES.model_copy(update={"smooth_s": 1.0})
    assert told([sure(1)] * 10 + [NOBODY] * 6 + [sure(2)] * 6, rules) == [
        (0.5, "OK", 1), (1.5, "NO_PART", None), (2.1, "OK", 2)
    ]  # fmt: skip


def test_smoothing_is_exponential_in_time():
    rules = RULES.model_copy(update={"smooth_s": 1.0})
    state, _ = follow(rules, Following(), sure(0, 1.0), 0)
    state, _ = follow(rules, state, sure(1, 1.0), SECOND)
    assert state.average == pytest.approx([np.exp(-1), 1 - np.exp(-1), 0], abs=1e-6)


def test_smoothing_does_not_depend_on_the_frame_rate():
    rules = RULES.model_copy(update={"smooth_s": 0.7})
    averages = []
    for rate in (5, 30):
        state, _ = follow(rules, Following(), sure(0, 1.0), 0)
        for k in range(1, rate + 1):
            state, _ = follow(rules, state, sure(1, 1.0), k * SECOND // rate)
        averages.append(state.average)
    assert averages[0] == pytest.approx(averages[1], abs=1e-4)


def test_frames_that_the_gate_skipped_stand_for_the_last_inference():
    assert told([sure(1)] + [STILL] * 10) == [(0.5, "OK", 1)]


def test_a_label_goes_if_the_gate_skips_for_too_long():
    """The NPU may be gone: a scene that is said to be still is no reason to believe an old inference for ever."""
    assert told([sure(1)] * 11 + [STILL] * 40) == [(0.5, "OK", 1), (3.0, "MARGINAL", None)]


def test_a_label_is_kept_in_the_dark_for_its_time_and_no_longer():
    assert told([sure(1)] * 11 + [DARK] * 40) == [(0.5, "OK", 1), (3.0, "BAD_IMAGE", None)]


def test_without_a_label_the_dark_is_told_when_it_has_lasted():
    assert told([DARK] * 10) == [(0.5, "BAD_IMAGE", None)]
    assert told([NOBODY] * 10 + [DARK] * 20) == [(0.5, "NO_PART", None), (1.9, "BAD_IMAGE", None)]


def test_frames_lost_among_others_change_nothing():
    late = Shown(Reason.LATE)
    assert told([sure(1), late, late] * 20) == [(0.6, "OK", 1)]


def test_if_no_frame_comes_at_all_the_label_goes():
    assert told([sure(1)] * 11 + [None] * 40) == [(0.5, "OK", 1), (3.0, "CAMERA_LOST", None)]
    state, _ = follow(RULES, Following(), sure(1), 0)
    state, _ = follow(RULES, state, STILL, SECOND)
    assert state.told is not None
    state, gone = wait(RULES, state, 2 * SECOND)
    assert (gone.reason, gone.detail) == (Reason.CAMERA_LOST, "no frame came for 1.0 s")
    assert state.now_us == SECOND, "of the last frame: its age goes on"
    state, _ = follow(RULES, state, sure(2), 2 * SECOND - 400_000)  # it was on its way when the camera counted as gone
    state, change = follow(RULES, state, sure(2), 2 * SECOND + 100_000)
    assert change is None, "less than dwell_s after the last change"
    back = told([sure(1)] * 11 + [None] * 25 + [sure(2)] * 10)
    assert back[1:] == [(3.0, "CAMERA_LOST", None), (4.1, "OK", 2)]


def test_that_nobody_is_there_has_its_time_too():
    assert told([NOBODY] * 11 + [None] * 40) == [(0.5, "NO_PART", None), (3.0, "CAMERA_LOST", None)]


def test_frames_that_are_left_out_on_purpose_may_be_many():
    busy = Shown(Reason.OVERLOAD)
    assert told(([sure(1)] + [busy] * 12) * 4) == [(1.3, "OK", 1)]
    assert told([sure(1)] * 11 + [busy] * 40)[1:] == [(3.0, "OVERLOAD", None)]


def test_a_gate_that_skips_for_too_long_is_no_lost_camera():
    state = Following()
    for k in range(11):
        state, _ = follow(RULES, state, sure(1), k * 100_000)
    state, _ = follow(RULES, state, STILL, 2_950_000)
    state, gone = wait(RULES, state, 3_000_000)
    assert (gone.reason, gone.label) == (Reason.MARGINAL, None)
    assert told([None] * 40) == []


@pytest.mark.parametrize(("last", "reason"), [(NOBODY, "NO_PART"), (DARK, "BAD_IMAGE"), (None, "MARGINAL")])
def test_that_nobody_is_there_for_less_than_its_dwell_keeps_no_label_longer(last, reason):
    seen, still, nobody = [sure(1)] * 11, [STILL] * 16, [NOBODY] * 3
    assert told([*seen, *still, *nobody, *[last] * 2])[1:] == [(3.0, reason, None)]


def test_rules_that_contradict_themselves_are_refused():
    with pytest.raises(ValidationError, match="keep_at"):
        Decision(keep_at=0.8, name_at=0.7)
    with pytest.raises(ValidationError, match="twice dwell_s"):
        Decision(dwell_s=1.0, hold_s=1.9)


@st.composite
def histories(draw):
    """Rules, and (microseconds, what was shown; None: no frame) in the order of time."""
    dwell = draw(st.floats(0.05, 1.0))
    keep = draw(st.floats(0.2, 0.9))
    rules = Decision(
        smooth_s=draw(st.sampled_from([0.0, 0.1, 0.5])), keep_at=keep, name_at=draw(st.floats(keep, 1.0)),
        dwell_s=dwell, hold_s=draw(st.floats(2 * dwell, 4.0)),
    )  # fmt: skip
    others = st.sampled_from([STILL, STILL, NOBODY, DARK, Shown(Reason.RUNTIME_FAULT), None])
    seen = st.builds(sure, st.integers(0, 2), st.floats(0.34, 1.0))
    runs = draw(st.lists(st.tuples(st.one_of(seen, seen, others), st.integers(1, 15)), max_size=12))
    frames = [one for one, count in runs for _ in range(count)]
    now, history = 0, []
    for one in frames:
        now += draw(st.integers(0, 300_000))
        history.append((now, one))
    return rules, history


@settings(max_examples=400, deadline=None)
@given(histories())
def test_what_must_hold_for_every_history(case):
    rules, history = case
    state, last_change, inferred = Following(), None, None
    for now, one in history:
        before = state
        state, stable = wait(rules, state, now) if one is None else follow(rules, state, one, now)
        if one is not None and one.scores is not None:
            inferred = now
        if stable is not None:
            assert not stable.same_as(before.told)
            assert stable is state.told
            assert (stable.reason is Reason.OK) == (stable.label is not None)
            if last_change is not None:  # never flaps faster than its dwell
                assert now - last_change >= rules.dwell_s * 1e6 - 1
            last_change = now
            if stable.label is not None:  # unsure never names a label
                assert state.average is not None
                assert int(np.argmax(state.average)) == stable.label
                assert state.average[stable.label] >= rules.name_at
                assert now - stable.since_us >= rules.dwell_s * 1e6
        if state.told is not None and state.told.label is not None:  # no label is held longer than its time
            assert inferred is not None
            assert now - inferred < rules.hold_s * 1e6
