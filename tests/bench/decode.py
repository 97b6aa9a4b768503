"""Decode of a YOLOv8 head [1, 84, 8400] against its peers: one thread, turns taken, medians.

    python tests/bench/decode.py [--rounds 200] [--json]

The head is drawn: 40 objects, each seen by its neighbouring anchors, on a background of low scores, of which about 1 in
10 passes at conf 0.001. Peers that are not installed (torch, torchvision, ultralytics) are left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import peers
from timing import Case, Work, report

from edge_app.decode import HeadSpec, Output, make_decoder

CLASSES, SIDE, IOU = 80, 640, 0.7


def head(seed: int) -> np.ndarray:
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

    def work(out: np.ndarray) -> tuple[np.ndarray, ...]:
        scores = out[0, 4:]
        kept = np.flatnonzero(scores.max(axis=0) > conf)
        mine = scores[:, kept]
        labels = mine.argmax(axis=0)
        best = mine[labels, np.arange(len(kept))]
        boxes = out[0, :4, kept].copy()
        boxes[:, :2] -= boxes[:, 2:] / 2
        chosen = np.asarray(cv2.dnn.NMSBoxesBatched(boxes, best, labels.astype(np.int32), conf, IOU), np.int64)[:300]
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

    def work(out: np.ndarray) -> object:
        rows = torch.from_numpy(out)[0].T
        best, labels = rows[:, 4:].max(1)
        hit = best > conf
        boxes, best, labels = rows[hit, :4], best[hit], labels[hit]
        half = boxes[:, 2:] / 2
        corners = torch.cat([boxes[:, :2] - half, boxes[:, :2] + half], 1)
        kept = ops.batched_nms(corners, best, labels, IOU)[:300]
        return corners[kept], best[kept], labels[kept]

    return work


def cases() -> Iterator[Case]:
    """W6 at a line's threshold and at an evaluation's."""
    heads = [head(seed) for seed in range(8)]
    for conf, key in ((0.25, "w6_conf25"), (0.001, "w6_conf001")):
        functions = {
            "ours": ours(conf), "numpy_cv2": numpy_cv2(conf), "ultralytics": ultralytics(conf),
            "torchvision": torchvision(conf), "copy": lambda out: out.copy(),
        }  # fmt: skip
        found = len(functions["ours"](heads[0]))
        title = f"W6 [1, 84, 8400], conf {conf}, {found} found"
        yield Case(key, title, heads, {name: work for name, work in functions.items() if work is not None})


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    torch = peers.optional("torch")
    if torch is not None:
        torch.set_num_threads(1)
    report(cases(), options.rounds, options.json)


if __name__ == "__main__":
    main()
