"""The oracle of the C decode: the same detections, bit for bit, in NumPy and in the plainest order. For tests.

All arithmetic is float32, in the order in which the C code does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_app.decode.head import BOX_LOGITS, HeadSpec, TensorInfo, cut_pairs
from edge_app.detections import Detections
from edge_app.errors import InvalidOutput

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
F = np.float32


def decode(spec: HeadSpec, infos: Sequence[TensorInfo], outputs: Sequence[npt.NDArray[Any]]) -> Detections:
    """Detections in tensor px.

    Raises:
        InvalidOutput: NaN, infinity, or a class number that is none.
    """
    if not all(np.isfinite(o).all() for o in outputs):
        raise InvalidOutput("NaN or infinite")
    boxes, scores, labels = _FIND[spec.kind](spec, infos, outputs)
    if not np.isfinite(boxes).all():
        raise InvalidOutput("NaN or infinite")
    order = np.argsort(-scores, kind="stable")
    boxes, scores, labels = boxes[order], scores[order], labels[order]
    kept = np.arange(len(scores)) if spec.kind == "end2end" else nms(boxes, labels, spec.iou, spec.agnostic)
    first = kept[: spec.max_detections]
    return Detections(
        boxes[first].astype(F), scores[first].astype(F), labels[first].astype(np.int32), len(kept) > spec.max_detections
    )


def nms(boxes: Floats, labels: Ints, iou: float, agnostic: bool) -> Ints:
    """Indices of the boxes (best first) that no better one of the same class covers by more than `iou`."""
    kept: list[int] = []
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for i in range(len(boxes)):
        others = np.array([k for k in kept if agnostic or labels[k] == labels[i]], np.int64)
        if len(others) == 0 or not (_iou(boxes, areas, i, others) > iou).any():
            kept.append(i)
    return np.array(kept, np.int64)


def _iou(boxes: Floats, areas: Floats, i: int, others: Ints) -> npt.NDArray[np.float64]:
    low = np.maximum(boxes[i, :2], boxes[others, :2])
    high = np.minimum(boxes[i, 2:], boxes[others, 2:])
    sides = np.maximum(high - low, F(0))
    inside = sides[:, 0] * sides[:, 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio: Floats = inside / (areas[others] + areas[i] - inside)
    return ratio.astype(np.float64)


Found = tuple[Floats, Floats, Ints]


def _best(spec: HeadSpec, ranking: npt.NDArray[Any], scores: Floats) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Of [N, C]: the class that ranks first among those above their threshold, and where there is one."""
    above = scores.astype(np.float64) > np.array(spec.scores)
    ranked = np.where(above, ranking.astype(np.float64), -np.inf)
    hit: npt.NDArray[np.bool_] = np.asarray(above.any(axis=1))
    return ranked.argmax(axis=1), hit


def _centred(x: Floats, y: Floats, w: Floats, h: Floats) -> Floats:
    w, h = w * F(0.5), h * F(0.5)
    return np.stack([x - w, y - h, x + w, y + h], axis=1)


def _yolov8(spec: HeadSpec, infos: Sequence[TensorInfo], outputs: Sequence[npt.NDArray[Any]]) -> Found:
    rows = outputs[0][0].T
    scores = rows[:, 4:]
    labels, hit = _best(spec, scores, scores)
    boxes = _centred(rows[hit, 0], rows[hit, 1], rows[hit, 2], rows[hit, 3])
    return boxes, scores[hit, labels[hit]], labels[hit]


def _yolov5(spec: HeadSpec, infos: Sequence[TensorInfo], outputs: Sequence[npt.NDArray[Any]]) -> Found:
    rows = outputs[0][0]
    scores = rows[:, 4:5] * rows[:, 5:]
    labels, hit = _best(spec, scores, scores)
    boxes = _centred(rows[hit, 0], rows[hit, 1], rows[hit, 2], rows[hit, 3])
    return boxes, scores[hit, labels[hit]], labels[hit]


def _yolox(spec: HeadSpec, infos: Sequence[TensorInfo], outputs: Sequence[npt.NDArray[Any]]) -> Found:
    rows = outputs[0][0]
    scores = rows[:, 4:5] * rows[:, 5:]
    labels, hit = _best(spec, scores, scores)
    x, y, stride = _cells(spec)
    rows, x, y, stride = rows[hit], x[hit], y[hit], stride[hit]
    boxes = _centred(
        (rows[:, 0] + x) * stride, (rows[:, 1] + y) * stride, exp(rows[:, 2]) * stride, exp(rows[:, 3]) * stride
    )
    return boxes, scores[hit, labels[hit]], labels[hit]


def _cells(spec: HeadSpec) -> tuple[Floats, Floats, Floats]:
    """Column, row and stride of each anchor."""
    parts = []
    for columns, rows, stride in spec.grids():
        y, x = np.mgrid[0:rows, 0:columns]
        parts.append(np.stack([x.ravel(), y.ravel(), np.full(x.size, stride)]))
    x, y, stride = np.concatenate(parts, axis=1).astype(F)
    return x, y, stride


def _end2end(spec: HeadSpec, infos: Sequence[TensorInfo], outputs: Sequence[npt.NDArray[Any]]) -> Found:
    rows = outputs[0][0]
    rows = rows[rows[:, 4] > min(spec.scores)]
    labels = rows[:, 5].astype(np.int64)
    if (labels != rows[:, 5]).any() or (labels < 0).any() or (labels >= spec.classes).any():
        raise InvalidOutput("a class number is none of the model's")
    hit = rows[:, 4].astype(np.float64) > np.array(spec.scores)[labels]
    return rows[hit, :4], rows[hit, 4], labels[hit]


def _yolov8_cut(spec: HeadSpec, infos: Sequence[TensorInfo], outputs: Sequence[npt.NDArray[Any]]) -> Found:
    grids = sorted(spec.grids(), key=lambda grid: grid[2])
    boxes_at, scores_at = cut_pairs([o.shape for o in outputs], spec.classes)
    found: list[Found] = []
    for (columns, _, stride), b, s in zip(grids, boxes_at, scores_at, strict=True):
        logits = _real(infos[s], outputs[s]).reshape(spec.classes, -1).T
        scores = sigmoid(logits)
        labels, hit = _best(spec, logits, scores)
        cell = np.flatnonzero(hit)
        side = _distances(_real(infos[b], outputs[b]).reshape(BOX_LOGITS, -1)[:, cell])
        x, y = (cell % columns).astype(F) + F(0.5), (cell // columns).astype(F) + F(0.5)
        corners = np.stack([x - side[0], y - side[1], x + side[2], y + side[3]], axis=1) * F(stride)
        found.append((corners, scores[cell, labels[cell]], labels[cell]))
    boxes, best, classes = (np.concatenate(part) for part in zip(*found, strict=True))
    return boxes, best, classes


def _real(info: TensorInfo, values: npt.NDArray[Any]) -> Floats:
    if values.dtype == F:
        return values
    assert info.scale is not None
    assert info.zero_point is not None
    return (values.astype(np.int32) - info.zero_point).astype(F) * F(info.scale)


def _distances(logits: Floats) -> Floats:
    """[64, n] to [4, n]: mean bin under softmax, summed bin by bin."""
    bins = logits.reshape(4, 16, -1)
    powers = exp(bins - bins.max(axis=1, keepdims=True))
    total, weighted = np.zeros_like(powers[:, 0]), np.zeros_like(powers[:, 0])
    for i in range(16):
        total = total + powers[:, i]
        weighted = weighted + powers[:, i] * F(i)
    return weighted / total


def exp(x: Floats) -> Floats:
    """e^x, in the very steps of exp.h."""
    with np.errstate(over="ignore", invalid="ignore"):
        inside = np.clip(x, F(-87), F(88.7))
        k = np.rint(inside * F(1.44269504))
        r = (inside - k * F(0.693359375)) - k * F(-2.12194440e-4)
        p = np.full_like(r, F(1.0) / F(5040.0))
        for term in (F(1) / F(720), F(1) / F(120), F(1) / F(24), F(1) / F(6), F(0.5), F(1), F(1)):
            p = p * r + term
        half = np.trunc(k / 2).astype(np.int32)
        y = np.ldexp(np.ldexp(p, half), k.astype(np.int32) - half)
    return np.where(x < F(-87), F(0), np.where(x > F(88.7), F(np.inf), y)).astype(F)


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + e^-x)."""
    with np.errstate(over="ignore"):
        return F(1) / (F(1) + exp(-x))


_FIND: dict[str, Callable[[HeadSpec, Sequence[TensorInfo], Sequence[npt.NDArray[Any]]], Found]] = {
    "yolov8": _yolov8,
    "yolov5": _yolov5,
    "yolox": _yolox,
    "end2end": _end2end,
    "yolov8_cut": _yolov8_cut,
}
