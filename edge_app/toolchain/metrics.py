"""Accuracy of a detector: COCO's mean average precision, and recall and precision at given scores.

The matching and the precision curves are pycocotools', the reference implementation of COCO's metric (101 recall
points, IoU 0.50 to 0.95 in steps of 0.05). Everything here is pure: detections and truth in, figures out.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from edge_app.detections import Detections
from edge_app.errors import ConfigError

LOWEST_SCORE = 0.001
"""COCO's habit: the precision curve needs detections down to here."""
IOU_50 = 0.5


@dataclass(frozen=True, slots=True)
class Truth:
    """What is really in one picture.

    Attributes:
        boxes_px: float32 [M, 4], x0, y0, x1, y1 in pixels of the picture.
        labels: int32 [M], index into the model's label list.
    """

    boxes_px: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int32]

    def __post_init__(self) -> None:
        if self.boxes_px.shape != (self.labels.shape[0], 4):
            raise ValueError(f"boxes_px {self.boxes_px.shape}, labels {self.labels.shape}: wanted [M, 4], [M]")

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    @classmethod
    def none(cls) -> Self:
        """A picture without an object."""
        return cls(np.zeros((0, 4), np.float32), np.zeros(0, np.int32))


@dataclass(frozen=True, slots=True)
class AveragePrecision:
    """COCO's mean average precision, 0..1; labels without a true box take no part in the means."""

    images: int
    map50: float
    map50_95: float
    by_label: dict[str, tuple[float, float]]
    """Label -> (AP at IoU 0.5, mean AP at 0.5 to 0.95)."""


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """Counts at IoU 0.5 of detections at or above the operating scores."""

    true_positives: int
    false_positives: int
    missed: int
    by_label: dict[str, tuple[int, int, int]]
    """Label -> (true positives, false positives, missed)."""

    @property
    def recall50(self) -> float:
        """Share of true boxes that were found; NaN without any."""
        return _share(self.true_positives, self.missed)

    @property
    def precision50(self) -> float:
        """Share of detections that are true; NaN without any."""
        return _share(self.true_positives, self.false_positives)


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its bootstrap interval (percentile method)."""

    value: float
    low: float
    high: float


def average_precision(found: Sequence[Detections], truth: Sequence[Truth], labels: Sequence[str]) -> AveragePrecision:
    """COCO's mAP of one model; `found[i]` and `truth[i]` belong to one picture.

    For a comparable figure, detections must be given down to a low score (0.001) and not cut below 300 a picture.

    Raises:
        ConfigError: no picture, or no true box at all: nothing can be measured, so no figure is given.
    """
    return _summary(_evaluated(found, truth, labels), labels)


def operating_point(
    found: Sequence[Detections], truth: Sequence[Truth], labels: Sequence[str], score: Mapping[str, float]
) -> OperatingPoint:
    """Recall and precision at IoU 0.5 with the scores of the manifest; every label needs a score.

    Raises:
        ConfigError: a label has no operating score, or nothing can be measured.
    """
    if lacking := [label for label in labels if label not in score]:
        raise ConfigError("labels without an operating score", wanted=", ".join(labels), got=f"none for {lacking}")
    least = np.array([score[label] for label in labels], np.float32)
    kept = [_at_least(one, least) for one in found]
    evaluation = _evaluated(kept, truth, labels)
    by_label = dict.fromkeys(labels, (0, 0, 0))
    for image in filter(None, evaluation.evalImgs):
        label = labels[image["category_id"]]
        hits = int(np.count_nonzero(image["dtMatches"][0]))
        extra = len(image["dtIds"]) - hits
        missed = len(image["gtIds"]) - int(np.count_nonzero(image["gtMatches"][0]))
        tp, fp, fn = by_label[label]
        by_label[label] = (tp + hits, fp + extra, fn + missed)
    total = np.array(list(by_label.values())).sum(axis=0)
    return OperatingPoint(int(total[0]), int(total[1]), int(total[2]), by_label)


def bootstrap_map50_95(
    found: Sequence[Detections],
    truth: Sequence[Truth],
    labels: Sequence[str],
    *,
    reference: Sequence[Detections] | None = None,
    resamples: int = 300,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """mAP50-95, or with `reference` its difference to the reference's, with a bootstrap interval over pictures.

    The two are resampled together (the same pictures are drawn for both), so that what the pictures have in common
    cancels out.
    """
    evaluation = _evaluated(found, truth, labels)
    other = None if reference is None else _evaluated(reference, truth, labels)
    draw = np.random.default_rng(seed)
    images = len(truth)

    def estimate(order: npt.NDArray[np.int64]) -> float:
        own = _map50_95_of(evaluation, order)
        return own if other is None else own - _map50_95_of(other, order)

    values = [estimate(draw.integers(0, images, images)) for _ in range(resamples)]
    tail = 50 * (1 - confidence)
    low, high = np.nanpercentile(values, [tail, 100 - tail])
    return Interval(estimate(np.arange(images)), float(low), float(high))


def _share(part: int, rest: int) -> float:
    return part / (part + rest) if part + rest else float("nan")


def _at_least(found: Detections, least: npt.NDArray[np.float32]) -> Detections:
    keep = found.scores >= least[found.labels]
    return Detections(found.boxes_px[keep], found.scores[keep], found.labels[keep], found.truncated)


def _evaluated(found: Sequence[Detections], truth: Sequence[Truth], labels: Sequence[str]) -> Any:
    """A COCOeval after its matching step."""
    if len(found) != len(truth):
        raise ValueError(f"{len(found)} results for {len(truth)} pictures")
    if not any(len(one) for one in truth):
        raise ConfigError(
            "no true box in any picture: accuracy can't be measured",
            wanted="a labelled data set",
            got=f"{len(truth)} pictures without a box",
            remedy="check the labels folder of the data set",
        )
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints its progress on stdout
        evaluation = COCOeval(_coco(truth, labels), _coco(found, labels), "bbox")
        evaluation.params.maxDets = [max(1, *(len(one) for one in found))]
        evaluation.params.areaRng = [[0, 1e10]]
        evaluation.params.areaRngLbl = ["all"]
        evaluation.evaluate()
    return evaluation


def _coco(pictures: Sequence[Truth | Detections], labels: Sequence[str]) -> Any:
    annotations: list[dict[str, Any]] = []
    for image, picture in enumerate(pictures):
        scores = picture.scores if isinstance(picture, Detections) else np.ones(len(picture))
        for box, label, score in zip(picture.boxes_px.tolist(), picture.labels.tolist(), scores.tolist(), strict=True):
            x0, y0, x1, y1 = box
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image,
                    "category_id": label,
                    "score": score,
                    "iscrowd": 0,
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": (x1 - x0) * (y1 - y0),
                }
            )
    coco = COCO()
    coco.dataset = {
        "images": [{"id": image} for image in range(len(pictures))],
        "categories": [{"id": index, "name": label} for index, label in enumerate(labels)],
        "annotations": annotations,
    }
    coco.createIndex()
    return coco


def _accumulated(evaluation: Any) -> npt.NDArray[np.float64]:
    """Precision [IoU, recall point, label]; -1 for labels without a true box."""
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.accumulate()
    precision: npt.NDArray[np.float64] = evaluation.eval["precision"][:, :, :, 0, 0]
    return precision


def _summary(evaluation: Any, labels: Sequence[str]) -> AveragePrecision:
    precision = _accumulated(evaluation)
    by_label = {
        label: (float(precision[0, :, index].mean()), float(precision[:, :, index].mean()))
        for index, label in enumerate(labels)
        if precision[0, 0, index] >= 0
    }
    ap50, ap = np.array(list(by_label.values())).mean(axis=0)
    return AveragePrecision(len(evaluation.params.imgIds), float(ap50), float(ap), by_label)


def _map50_95_of(evaluation: Any, order: npt.NDArray[np.int64]) -> float:
    """mAP50-95 of the pictures `order` (indices, with repetition). COCOeval keeps [label][picture] in one flat list."""
    matched = evaluation.evalImgs
    images = len(order)
    evaluation.evalImgs = [
        matched[label * images + image] for label in range(len(evaluation.params.catIds)) for image in order
    ]
    try:
        precision = _accumulated(evaluation)
    finally:
        evaluation.evalImgs = matched
    known = precision[0, 0] >= 0
    return float(precision[:, :, known].mean()) if known.any() else float("nan")
