from __future__ import annotations

import numpy as np
import pytest

from edge_app.detections import Detections
from edge_app.errors import ConfigError
from edge_app.toolchain.metrics import Truth, average_precision, bootstrap_map50_95, operating_point

LABELS = ("open", "short")


def truth(*rows: tuple[float, float, float, float, int]) -> Truth:
    table = np.array(rows, np.float32).reshape(-1, 5)
    return Truth(table[:, :4], table[:, 4].astype(np.int32))


def found(*rows: tuple[float, float, float, float, float, int]) -> Detections:
    table = np.array(rows, np.float32).reshape(-1, 6)
    return Detections(table[:, :4], table[:, 4], table[:, 5].astype(np.int32))


def test_perfect_detections_score_one() -> None:
    pictures = [truth((0, 0, 10, 10, 0), (20, 20, 40, 40, 1)), truth((5, 5, 9, 9, 1))]
    same = [found((0, 0, 10, 10, 0.9, 0), (20, 20, 40, 40, 0.8, 1)), found((5, 5, 9, 9, 0.7, 1))]
    result = average_precision(same, pictures, LABELS)
    assert result.images == 2
    assert (result.map50, result.map50_95) == pytest.approx((1.0, 1.0))
    assert result.by_label["open"] == pytest.approx((1.0, 1.0))
    assert result.by_label["short"] == pytest.approx((1.0, 1.0))


def test_a_wrong_label_scores_zero_and_an_absent_label_takes_no_part() -> None:
    result = average_precision([found((0, 0, 10, 10, 0.9, 1))], [truth((0, 0, 10, 10, 0))], LABELS)
    assert result.map50 == 0.0
    assert result.by_label == {"open": (0.0, 0.0)}


def test_box_of_iou_073_counts_for_five_of_ten_thresholds() -> None:
    # 10 x 10 against 10 x 7.3 inside it: IoU 0.73, so hits at 0.50, 0.55, 0.60, 0.65, 0.70
    result = average_precision([found((0, 0, 10, 7.3, 0.9, 0))], [truth((0, 0, 10, 10, 0))], LABELS)
    assert result.map50 == pytest.approx(1.0)
    assert result.map50_95 == pytest.approx(0.5)


def test_no_detection_is_zero_not_nan() -> None:
    assert average_precision([Detections.none()], [truth((0, 0, 10, 10, 0))], LABELS).map50_95 == 0.0


def test_no_true_box_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no true box"):
        average_precision([found((0, 0, 1, 1, 0.9, 0))], [Truth.none()], LABELS)


def test_more_than_a_hundred_detections_a_picture_all_count() -> None:
    boxes = [(x * 20.0, 0.0, x * 20.0 + 10, 10.0) for x in range(150)]
    result = average_precision(
        [found(*((*box, 0.9, 0) for box in boxes))], [truth(*((*box, 0) for box in boxes))], LABELS
    )
    assert result.map50 == 1.0


def test_operating_point_counts_hits_extras_and_misses() -> None:
    point = operating_point(
        [found((0, 0, 10, 10, 0.5, 0), (50, 50, 60, 60, 0.9, 0), (20, 20, 40, 40, 0.39, 1))],
        [truth((0, 0, 10, 10, 0), (20, 20, 40, 40, 1))],
        LABELS,
        {"open": 0.5, "short": 0.4},
    )
    assert point.by_label == {"open": (1, 1, 0), "short": (0, 0, 1)}
    assert (point.recall50, point.precision50) == (0.5, 0.5)


def test_operating_point_needs_a_score_for_every_label() -> None:
    with pytest.raises(ConfigError, match="short"):
        operating_point([Detections.none()], [truth((0, 0, 1, 1, 0))], LABELS, {"open": 0.5})


def test_bootstrap_of_a_model_against_itself_is_exactly_zero() -> None:
    pictures = [truth((0, 0, 10, 10, 0)), truth((5, 5, 20, 20, 1)), truth((1, 1, 9, 9, 0))]
    some = [found((0, 0, 10, 9, 0.9, 0)), found((5, 5, 20, 16, 0.8, 1)), Detections.none()]
    interval = bootstrap_map50_95(some, pictures, LABELS, reference=some, resamples=20)
    assert (interval.value, interval.low, interval.high) == (0.0, 0.0, 0.0)


def test_bootstrap_interval_holds_the_estimate_and_leaves_it_unchanged() -> None:
    rng = np.random.default_rng(1)
    pictures = [truth((0, 0, 10, 10, 0)) for _ in range(30)]
    some = [found((0, 0, 10, float(h), 0.9, 0)) for h in rng.uniform(4, 10, 30)]
    interval = bootstrap_map50_95(some, pictures, LABELS, resamples=100)
    assert interval.value == average_precision(some, pictures, LABELS).map50_95
    assert interval.low < interval.value < interval.high
