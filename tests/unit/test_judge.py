"""The judge: what is FAIL, what is UNKNOWN, and that nothing else is PASS."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_app.config.judge import ClassRule, Judge, Region
from edge_app.detections import Detections
from edge_app.errors import ConfigError
from edge_app.judge import inside, judge, make_recipe
from edge_app.verdict import Reason, Verdict

LABELS = ("open", "short")
SCORE, MARGINAL = {"open": 0.5, "short": 0.6}, {"open": 0.3, "short": 0.6}


def detections(*rows: tuple[str, float, float, float, float, float], truncated: bool = False) -> Detections:
    """Rows of label, score, x0, y0, x1, y1."""
    return Detections(
        np.array([row[2:] for row in rows], np.float32).reshape(-1, 4),
        np.array([row[1] for row in rows], np.float32),
        np.array([LABELS.index(row[0]) for row in rows], np.int32),
        truncated,
    )


SQUARE = ((0.0, 0.0), (50.0, 0.0), (50.0, 50.0), (0.0, 50.0))


@pytest.mark.parametrize(
    ("rules", "rows", "reason"),
    [
        (Judge(), [], Reason.OK),
        (Judge(), [("open", 0.5, 0, 0, 10, 10)], Reason.DEFECT),
        (Judge(), [("open", 0.49, 0, 0, 10, 10)], Reason.MARGINAL),
        (Judge(), [("open", 0.29, 0, 0, 10, 10)], Reason.OK),
        (Judge(), [("short", 0.59, 0, 0, 10, 10)], Reason.OK),
        (Judge(), [("open", 0.4, 0, 0, 9, 9), ("short", 0.6, 0, 0, 9, 9)], Reason.DEFECT),
        (Judge(classes={"open": ClassRule(score=0.9)}), [("open", 0.8, 0, 0, 10, 10)], Reason.MARGINAL),
        (Judge(classes={"open": ClassRule(score=0.2)}), [("open", 0.2, 0, 0, 10, 10)], Reason.DEFECT),
        (Judge(classes={"open": ClassRule(min_size_px=11)}), [("open", 0.9, 0, 0, 10, 4)], Reason.OK),
        (Judge(classes={"open": ClassRule(min_size_px=10)}), [("open", 0.9, 0, 0, 10, 4)], Reason.DEFECT),
        (Judge(classes={"open": ClassRule(max_count=1)}), [("open", 0.9, 0, 0, 9, 9)], Reason.OK),
        (Judge(classes={"open": ClassRule(max_count=1)}), [("open", 0.9, 0, 0, 9, 9)] * 2, Reason.DEFECT),
        (
            Judge(regions=(Region(name="a", kind="ignore", polygon_px=SQUARE),)),
            [("open", 0.9, 10, 10, 20, 20)],
            Reason.OK,
        ),
        (
            Judge(regions=(Region(name="a", kind="inspect", polygon_px=SQUARE),)),
            [("open", 0.9, 60, 60, 70, 70)],
            Reason.OK,
        ),
        (
            Judge(regions=(Region(name="a", kind="inspect", polygon_px=SQUARE),)),
            [("open", 0.9, 40, 40, 58, 58)],
            Reason.DEFECT,
        ),
    ],
)
def test_rules(rules: Judge, rows: list[tuple[str, float, float, float, float, float]], reason: Reason) -> None:
    assert judge(detections(*rows), make_recipe(rules, LABELS, SCORE, MARGINAL)).reason is reason


@pytest.mark.parametrize("box", [(20, 20, 10, 10), (20, 20, 20, 30), (640, 20, 640, 30), (float("nan"),) * 4])
@pytest.mark.parametrize(
    "rules",
    [
        Judge(),
        Judge(default=ClassRule(min_size_px=40)),
        Judge(regions=(Region(name="a", kind="inspect", polygon_px=SQUARE),)),
        Judge(regions=(Region(name="a", kind="ignore", polygon_px=SQUARE),)),
    ],
)
def test_a_box_without_an_area_is_no_excuse(rules: Judge, box: tuple[float, float, float, float]) -> None:
    """A head whose sides have no bound can turn a box inside out, whatever its score: that was PASS."""
    recipe = make_recipe(rules, LABELS, SCORE, MARGINAL)
    assert judge(detections(("open", 0.9, *box)), recipe).reason is Reason.DEFECT
    assert judge(detections(("open", 0.4, *box)), recipe).reason is Reason.MARGINAL


def test_a_cut_list_is_never_pass() -> None:
    recipe = make_recipe(Judge(classes={"open": ClassRule(max_count=5)}), LABELS, SCORE, MARGINAL)
    judgement = judge(detections(("open", 0.9, 0, 0, 9, 9), truncated=True), recipe)
    assert judgement.verdict is Verdict.UNKNOWN


@given(
    st.lists(st.tuples(st.sampled_from(LABELS), st.floats(0, 1), st.floats(0, 600), st.floats(0, 600)), max_size=20),
    st.booleans(),
)
def test_pass_means_nothing_in_or_above_the_grey_band(
    found: list[tuple[str, float, float, float]], truncated: bool
) -> None:
    recipe = make_recipe(Judge(), LABELS, SCORE, MARGINAL)
    rows = [(label, score, x, y, x + 10, y + 10) for label, score, x, y in found]
    given_detections = detections(*rows, truncated=truncated)
    judgement = judge(given_detections, recipe)
    firm = [s >= recipe.score[i] for s, i in zip(given_detections.scores, given_detections.labels, strict=True)]
    grey = [s >= recipe.thresholds[i] for s, i in zip(given_detections.scores, given_detections.labels, strict=True)]
    assert (judgement.verdict is Verdict.FAIL) == any(firm)
    assert (judgement.verdict is Verdict.PASS) == (not any(grey) and not truncated)
    assert len(judgement.defects) == sum(grey)


def test_a_rule_for_an_unknown_label_is_refused() -> None:
    with pytest.raises(ConfigError, match="opne"):
        make_recipe(Judge(classes={"opne": ClassRule()}), LABELS, SCORE, MARGINAL)


def test_a_grey_band_above_its_score_is_refused() -> None:
    with pytest.raises(ConfigError, match="grey band of open"):
        make_recipe(Judge(classes={"open": ClassRule(marginal=0.7)}), LABELS, SCORE, MARGINAL)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=3, max_size=8),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_inside_agrees_with_opencv(corners: list[tuple[int, int]], x: int, y: int) -> None:
    polygon = np.array(corners, np.float64)
    distance = cv2.pointPolygonTest(np.array(corners, np.float32).reshape(-1, 1, 2), (x + 0.25, y + 0.37), True)
    if abs(distance) > 1e-3:  # on an edge both answers are right
        assert bool(inside(np.array([[x + 0.25, y + 0.37]]), polygon)[0]) == (distance > 0)
