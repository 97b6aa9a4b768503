"""Drawn heads: C and the NumPy oracle give the same detections, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from golden import make_decode
from golden.draw import drawn_floats
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_app.decode import HeadSpec, make_decoder, reference
from edge_app.decode.reference import exp, sigmoid


def same(a, b) -> bool:
    return (
        a.boxes_px.tobytes() == b.boxes_px.tobytes()
        and a.scores.tobytes() == b.scores.tobytes()
        and a.labels.tobytes() == b.labels.tobytes()
        and a.truncated == b.truncated
    )


@pytest.mark.parametrize("case", list(make_decode.cases()), ids=lambda case: case[0])
def test_golden_cases(case):
    _, spec, dtype = case
    infos, values = make_decode.tensors(spec, dtype, 7)
    assert same(make_decoder(spec, infos)(values), reference.decode(spec, infos, values))


@st.composite
def heads(draw):
    kind = draw(st.sampled_from(make_decode.KINDS))
    classes = draw(st.integers(1, 9))
    score = draw(st.one_of(st.floats(0, 1), st.lists(st.floats(0, 1), min_size=classes, max_size=classes).map(tuple)))
    spec = HeadSpec(
        kind, classes, 160, 160, score=score, iou=draw(st.floats(0, 1)), agnostic=draw(st.booleans()),
        max_detections=draw(st.integers(1, 400)),
    )  # fmt: skip
    return spec, draw(st.sampled_from(["float32", "uint8", "uint16"])) if kind == "yolov8_cut" else "float32"


@settings(max_examples=150, deadline=None)
@given(heads(), st.integers(0, 10**6))
def test_drawn_heads(head, seed):
    spec, dtype = head
    infos, values = make_decode.tensors(spec, dtype, seed)
    assert same(make_decoder(spec, infos)(values), reference.decode(spec, infos, values))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6))
def test_equal_scores_keep_the_order_of_anchors(seed, levels):
    """Scores of few distinct values: ties everywhere."""
    spec = HeadSpec("yolov8", 3, 160, 160, score=0.2, iou=0.3)
    infos, values = make_decode.tensors(spec, "float32", seed)
    values[0][:, 4:] = np.floor(values[0][:, 4:] * levels) / levels
    assert same(make_decoder(spec, infos)(values), reference.decode(spec, infos, values))


def test_exp_and_sigmoid_are_accurate():
    x = drawn_floats(3, -86, 88, 200_000)
    np.testing.assert_allclose(exp(x), np.exp(x.astype(np.float64)), rtol=2.5e-7)
    np.testing.assert_allclose(sigmoid(x), 1 / (1 + np.exp(-x.astype(np.float64))), rtol=3e-7)
    assert exp(np.float32([0, -200, 200])).tolist() == [1, 0, np.inf]
    assert sigmoid(np.float32([0, -200, 200])).tolist() == [0.5, 0, 1]
