"""Decode of a YOLOv8 head [1, 84, 8400] against its peers: one thread, turns taken, medians.

The head is drawn: 40 objects, each seen by its neighbouring anchors, on a background of low scores, of which about 1 in
10 passes at conf 0.001.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from edge_app.bench import floor, peers
from edge_app.bench.figures import Figures, Options
from edge_app.bench.timing import Case, Work, run
from edge_app.decode import HeadSpec, Output, make_decoder

Head = npt.NDArray[np.float32]
CLASSES, SIDE, IOU = 80, 640, 0.7


def head(seed: int) -> Head:
    """One output tensor, float32 [1, 84, 8400]."""
    rng = np.random.default_rng(seed)
    centres = np.concatenate(
        [np.stack(np.meshgrid(*[np.arange(SIDE // s) * s + s / 2] * 2), -1).reshape(-1, 2) for s in (8, 16, 32)]
    )
    n = len(centres)
    out = np.empty((4 + CLASSES, n), np.float32)
    out[:2], out[2:4] = centres.T + rng.normal(0, 3, (2, n)), rng.uniform(8, 90, (2, n))
    out[4:] = 1 / (1 + np.exp(-rng.normal(-12, 1.2, (CLASSES, n))))
    unsure = rng.random(n) < 0.1
    out[4 + rng.integers(0, CLASSES, n)[unsure], np.flatnonzero(unsure)] = rng.uniform(0.001, 0.02, unsure.sum())
    for _ in range(40):
        x, y, w, h = *rng.uniform(40, SIDE - 40, 2), *rng.uniform(20, 120, 2)
        near = (np.abs(centres[:, 0] - x) < w / 4) & (np.abs(centres[:, 1] - y) < h / 4)
        out[:4, near] = np.array([[x], [y], [w], [h]]) + rng.normal(0, 2, (4, near.sum()))
        out[4 + rng.integers(CLASSES), near] = rng.uniform(0.3, 0.95, near.sum())
    return out[None]


def ours(conf: float) -> Work:
    """The C decode."""
    spec = HeadSpec("yolov8", CLASSES, score=conf, iou=IOU, max_detections=300)
    decode = make_decoder(spec, [Output("out", (1, 4 + CLASSES, 8400))])
    return lambda out: decode([out])


def numpy_cv2(conf: float) -> Work:
    """Maximum along the contiguous axis, survivors only from then on, OpenCV's batched NMS."""
    suppress: Any = cv2.dnn.NMSBoxesBatched  # its stub asks for lists; it takes arrays

    def work(out: Head) -> tuple[Head, ...]:
        scores = out[0, 4:]
        kept = np.flatnonzero(scores.max(axis=0) > conf)
        mine = scores[:, kept]
        labels = mine.argmax(axis=0)
        best = mine[labels, np.arange(len(kept))]
        boxes = out[0, :4, kept].copy()
        boxes[:, :2] -= boxes[:, 2:] / 2
        chosen = np.asarray(suppress(boxes, best, labels.astype(np.int32), conf, IOU), np.int64)[:300]
        return boxes[chosen], best[chosen], labels[chosen]

    return work


def ultralytics(conf: float) -> Work | None:
    """Its non_max_suppression, single label."""
    torch, nms = peers.optional("torch"), peers.optional("ultralytics.utils.nms")
    if torch is None or nms is None:
        return None
    return lambda out: nms.non_max_suppression(torch.from_numpy(out), conf, IOU, max_det=300)


def torchvision(conf: float) -> Work | None:
    """max, mask, batched_nms."""
    torch, ops = peers.optional("torch"), peers.optional("torchvision.ops")
    if torch is None or ops is None:
        return None

    def work(out: Head) -> object:
        rows = torch.from_numpy(out)[0].T
        best, labels = rows[:, 4:].max(1)
        hit = best > conf
        boxes, best, labels = rows[hit, :4], best[hit], labels[hit]
        half = boxes[:, 2:] / 2
        corners = torch.cat([boxes[:, :2] - half, boxes[:, :2] + half], 1)
        kept = ops.batched_nms(corners, best, labels, IOU)[:300]
        return corners[kept], best[kept], labels[kept]

    return work


def edgefirst(conf: float) -> Work | None:
    """Its decoder, classes apart; the head lies in a tensor of its own before the clock starts.

    It looks at fewer candidates than the others (47 boxes where they find 58), which makes it faster.
    """
    package = peers.optional("edgefirst.decoder")
    if package is None:
        return None
    named = [(package.DimName.Batch, 1), (package.DimName.NumFeatures, 4 + CLASSES), (package.DimName.NumBoxes, 8400)]
    decoder = package.Decoder.new_from_outputs(
        [package.Output.detection(dshape=named)], conf, IOU, package.Nms.ClassAware, input_dims=(SIDE, SIDE)
    )
    tensors: dict[int, Any] = {}  # the heads outlive it

    def work(out: Head) -> object:
        if id(out) not in tensors:
            tensors[id(out)] = package.Tensor(list(out.shape), "float32")
            tensors[id(out)].from_numpy(out)
        return decoder.decode([tensors[id(out)]], 300)

    return work


def figures(options: Options) -> Iterator[Figures]:
    """W6 at a line's threshold and at an evaluation's."""
    peers.one_thread()
    heads = [head(seed) for seed in range(8)]
    for conf, key in ((0.25, "w6_conf25"), (0.001, "w6_conf001")):
        if not key.startswith(options.only):
            continue
        functions = {
            "ours": ours(conf), "floor": floor.of_head(4 + CLASSES, heads[0].strides[1]),
            "numpy_cv2": numpy_cv2(conf), "ultralytics": ultralytics(conf), "torchvision": torchvision(conf),
            "edgefirst": edgefirst(conf), "head_copy": lambda out: out.copy(),
        }  # fmt: skip
        yield run(Case(key, f"YOLOv8 head [1, 84, 8400], conf {conf}", heads, functions), options.rounds)
