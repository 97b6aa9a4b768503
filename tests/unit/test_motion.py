"""The motion gate: its decision by example and by property, and on frames."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from edge_app.config.mirror import Gate
from edge_app.errors import CameraError
from edge_app.frame import Frame, FrameStatus, PixelFormat
from edge_app.motion import GateState, Look, MotionGate, step

GATE = Gate(settle_s=0.5, keep_alive_s=2.0, most_per_s=10.0)
SECOND = 1_000_000


def looks(gate: Gate, seen: list[tuple[float, float | None, float | None]]) -> list[Look]:
    """The gate's answers to (seconds, changed, differs)."""
    state, answers = GateState(), []
    for second, changed, differs in seen:
        state, look = step(gate, state, round(second * SECOND), changed, differs)
        answers.append(look)
    return answers


def test_the_first_frame_is_inferred():
    assert looks(GATE, [(0, None, None)]) == [Look.MOVING]


def test_a_still_scene_is_inferred_until_it_has_settled_then_once_in_the_keep_alive_time():
    seen = [(k / 10, None if k == 0 else 0.0, 1.0) for k in range(61)]
    answers = looks(GATE, seen)
    assert answers[:6] == [Look.MOVING] * 6  # quiet from 0.1 s on, settled at 0.6 s
    assert [k for k, look in enumerate(answers) if look is Look.KEEP_ALIVE] == [25, 45]
    assert set(answers[6:]) == {Look.STILL, Look.KEEP_ALIVE}


def test_movement_opens_the_gate_at_once():
    quiet = [(k / 10, None if k == 0 else 0.0, 1.0) for k in range(10)]
    assert looks(GATE, [*quiet, (1.0, GATE.moving, 1.0)])[-1] is Look.MOVING


def test_between_both_thresholds_it_stays_as_it_was():
    between = (GATE.still + GATE.moving) / 2
    moving = [(k / 10, None if k == 0 else between, 1.0) for k in range(20)]
    assert set(looks(GATE, moving)) == {Look.MOVING}
    settled = [(k / 10, None if k == 0 else 0.0, 1.0) for k in range(7)]
    assert looks(GATE, [*settled, (0.7, between, 1.0)])[-1] is Look.STILL


def test_while_something_moves_inferences_are_paced():
    seen = [(k / 40, None if k == 0 else 0.5, 1.0) for k in range(9)]
    paced = [Look.PACED] * 3
    assert looks(GATE, seen) == [Look.MOVING, *paced, Look.MOVING, *paced, Look.MOVING]
    assert set(looks(GATE.model_copy(update={"most_per_s": None}), seen)) == {Look.MOVING}


def test_nobody_there_needs_no_inference_whatever_moves():
    below, at = 0.03, 0.04
    assert looks(GATE, [(0, None, below), (1, 0.5, below), (9, 0.0, below), (9.1, 0.5, at)]) == [
        Look.EMPTY, Look.EMPTY, Look.EMPTY, Look.MOVING
    ]  # fmt: skip
    without = GATE.model_copy(update={"somebody": None})
    assert looks(without, [(0, None, 0.0)]) == [Look.MOVING]


@st.composite
def histories(draw):
    steps = draw(st.lists(st.tuples(st.integers(1, 400_000), st.floats(0, 0.03), st.floats(0, 0.1)), max_size=80))
    now, seen = 0, [(0, None, 1.0)]
    for gap, changed, differs in steps:
        now += gap
        seen.append((now, changed, differs))
    return seen


@settings(max_examples=300, deadline=None)
@given(histories())
def test_no_movement_is_skipped_and_no_scene_goes_unlooked(history):
    """Whoever is there and moves is inferred within the pace; whoever is there and still, within the keep-alive."""
    state, inferred = GateState(), []
    for now, changed, differs in history:
        state, look = step(GATE, state, now, changed, differs)
        if look.inferred:
            inferred.append(now)
        here = differs >= GATE.somebody
        assert (look is Look.EMPTY) == (not here)
        waited = now - inferred[-1]
        if here:
            assert waited < GATE.keep_alive_s * SECOND
            if changed is None or changed >= GATE.moving:
                assert waited < SECOND / GATE.most_per_s
    assert all(later - earlier >= SECOND / GATE.most_per_s for earlier, later in pairwise(inferred))


# -- on frames ------------------------------------------------------------------------------------------------------


def frame(pixels: np.ndarray | None, second: float) -> Frame:
    status = FrameStatus.COMPLETE if pixels is not None else FrameStatus.INCOMPLETE
    now = round(second * SECOND)
    return Frame(1 + now, 1 + now, now, now, status, PixelFormat.GRAY8, 320, 240, pixels)


def scene(rng: np.random.Generator, person_x: int | None = None, light: int = 0) -> np.ndarray:
    """A still background with the sensor's noise; a person is 60 px wide."""
    ramp = np.linspace(60, 160, 320)[None, :] + np.zeros((240, 1))
    if person_x is not None:
        ramp[60:, person_x : person_x + 60] = 30
    return np.clip(ramp + light + rng.normal(0, 4, (240, 320)), 0, 255).astype(np.uint8)


def test_somebody_comes_stands_still_and_goes():
    gate, rng = MotionGate(GATE), np.random.default_rng(1)
    script = [None] * 20 + list(range(0, 120, 6)) + [120] * 40 + [None] * 10
    answers = [gate.see(frame(scene(rng, x), k / 10)) for k, x in enumerate(script)]
    assert set(answers[:20]) == {Look.EMPTY}
    assert set(answers[20:40]) == {Look.MOVING}
    assert set(answers[48:80]) == {Look.STILL, Look.KEEP_ALIVE}
    assert answers[48:80].count(Look.KEEP_ALIVE) == 1
    assert set(answers[80:]) == {Look.EMPTY}
    assert gate.counts == {look: answers.count(look) for look in set(answers)}
    assert gate.last is Look.EMPTY


def test_a_lamp_that_dims_is_nobody():
    gate, rng = MotionGate(GATE), np.random.default_rng(2)
    assert {gate.see(frame(scene(rng, None, light), light)) for light in range(40)} == {Look.EMPTY}


def test_a_scene_that_never_moves_becomes_the_empty_one():
    gate, rng = MotionGate(GATE.model_copy(update={"relearn_s": 5.0})), np.random.default_rng(3)
    gate.see(frame(scene(rng), 0))
    answers = [gate.see(frame(scene(rng, 100), 1 + k / 10)) for k in range(70)]
    assert Look.EMPTY not in answers[:50]
    assert answers[-1] is Look.EMPTY


def test_a_frame_of_another_size_starts_anew():
    gate, rng = MotionGate(GATE), np.random.default_rng(4)
    gate.see(frame(scene(rng), 0))
    small = np.ascontiguousarray(scene(rng, 100)[:120, :160])
    other = Frame(9, 9, SECOND, SECOND, FrameStatus.COMPLETE, PixelFormat.GRAY8, 160, 120, small)
    assert gate.see(other) is Look.EMPTY


def test_a_frame_without_pixels_is_refused():
    with pytest.raises(CameraError, match="without pixels"):
        MotionGate(GATE).see(frame(None, 0))


def test_thresholds_that_would_flap_are_refused():
    with pytest.raises(ValidationError, match="would flap"):
        Gate(still=0.02, moving=0.01)
