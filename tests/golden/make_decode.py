"""Golden vectors of the decode, from the NumPy oracle: `python tests/golden/make_decode.py`.

One line a case: name; kind, classes, anchors, agnostic, max_detections, levels; a row of nine numbers for each level;
IoU and one threshold for each class; seed; how many detections, how many before the limit, and the hash of boxes,
scores and labels. tests/c/test_decode.c draws the same tensors and compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from draw import drawn, drawn_floats, hashed

from edge_app.decode import HeadSpec, Output, YoloDecoder, reference

FILE = Path(__file__).with_name("decode.txt")
SIZE = 160
CELLS = (400, 100, 25)
KINDS = ("yolov8", "yolov5", "yolox", "end2end", "yolov8_cut")


def tensors(spec: HeadSpec, dtype: str, seed: int) -> tuple[list[Output], list[np.ndarray]]:
    """Outputs of a head, drawn: boxes of plausible size all over the picture, scores uniform."""
    if spec.kind == "yolov8_cut":
        return _cut_tensors(spec, dtype, seed)
    n, c = sum(CELLS), spec.classes
    box = {"yolox": [(-1.0, 2.0)] * 4, "end2end": [(0.0, 80.0)] * 2 + [(80.0, 160.0)] * 2}.get(
        spec.kind, [(0.0, 160.0)] * 2 + [(4.0, 60.0)] * 2
    )
    scores = {"yolov8": c, "end2end": 1}.get(spec.kind, 1 + c)
    ranges = np.array([*box, *[(0.0, 1.0)] * scores, *[(0.0, float(c))] * (spec.kind == "end2end")], np.float32)
    shape = (len(ranges), n) if spec.kind == "yolov8" else (n, len(ranges))
    channel = np.arange(n * len(ranges)) // n if spec.kind == "yolov8" else np.arange(n * len(ranges)) % len(ranges)
    values = drawn_floats(seed, ranges[channel, 0], ranges[channel, 1], n * len(ranges)).reshape(1, *shape)
    if spec.kind == "end2end":
        values[:, :, 5] = np.minimum(np.floor(values[:, :, 5]), c - 1)
    return [Output("out", values.shape)], [values]


def _cut_tensors(spec: HeadSpec, dtype: str, seed: int) -> tuple[list[Output], list[np.ndarray]]:
    infos, values = [], []
    for columns, rows, _ in spec.grids():
        for channels in (64, spec.classes):
            seed += 1000
            shape, count = (1, channels, rows, columns), channels * rows * columns
            if dtype == "float32":
                values.append(drawn_floats(seed, -6, 6, count).reshape(shape))
                infos.append(Output("out", shape))
            else:
                values.append((drawn(seed, count) >> (24 if dtype == "uint8" else 16)).astype(dtype).reshape(shape))
                scale, zero = (0.05, 130) if dtype == "uint8" else (0.0002, 31000)
                infos.append(Output("out", shape, dtype, scale, zero))
    return infos, values


def cases() -> Iterator[tuple[str, HeadSpec, str]]:
    """Name, head and type of every case."""
    for kind in KINDS:
        for dtype in ("float32", "uint8", "uint16") if kind == "yolov8_cut" else ("float32",):
            for name, classes, score, agnostic, most in (
                ("one", 1, 0.5, False, 300),
                ("few", 3, (0.9, 0.5, 0.95), False, 300),
                ("agnostic", 6, 0.9, True, 300),
                ("many", 80, 0.99, False, 300),
                ("all", 4, 0.0, False, 2000),
                ("limited", 4, 0.3, False, 7),
            ):
                spec = HeadSpec(
                    kind, classes, SIZE, SIZE, score=score, iou=0.45, agnostic=agnostic, max_detections=most
                )
                yield f"{kind}-{dtype}-{name}", spec, dtype


def lines() -> Iterator[str]:
    """The lines of the file."""
    for seed, (name, spec, dtype) in enumerate(cases(), 1):
        infos, values = tensors(spec, dtype, seed)
        found = reference.decode(spec, infos, values)
        kind, *numbers, iou, thresholds, levels = YoloDecoder(spec, infos).native_arguments
        whole = reference.decode(_unlimited(spec), infos, values)
        data = found.boxes_px.tobytes() + found.scores.tobytes() + found.labels.tobytes()
        fields = [name, kind, *map(int, numbers), len(levels), *(_number(v) for level in levels for v in level)]
        fields += [float(iou).hex(), *(float(t).hex() for t in thresholds), seed, len(found), len(whole)]
        yield " ".join(str(f) for f in fields) + f" {hashed(data):x}\n"


def _number(value: float) -> str:
    return float(np.float32(value)).hex() if isinstance(value, float) else str(value)


def _unlimited(spec: HeadSpec) -> HeadSpec:
    return HeadSpec(
        spec.kind,
        spec.classes,
        SIZE,
        SIZE,
        score=spec.score,
        iou=spec.iou,
        agnostic=spec.agnostic,
        max_detections=10**6,
    )


if __name__ == "__main__":
    FILE.write_text("".join(lines()))
    print(f"{FILE}: {sum(1 for _ in FILE.open())} cases")
