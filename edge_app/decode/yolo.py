"""Decode of detection heads: checks what the session gave, calls C, and turns boxes into sensor pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_app.decode import _native
from edge_app.decode.head import BOX_LOGITS, HeadSpec, TensorInfo, cut_pairs
from edge_app.detections import Detections
from edge_app.errors import ConfigError, InvalidOutput

ToSource = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]
_NATIVE_KIND = {"yolov8": 0, "yolov5": 1, "yolox": 2, "end2end": 3, "yolov8_cut": 4}
_NATIVE_TYPE = {"float32": 0, "uint8": 1, "uint16": 2}
_FLOAT = (0, 0, 1.0)


class YoloDecoder:
    """Decodes one inference after the other; made once, for one thread at a time.

    Raises:
        ConfigError: the outputs are not those of the head.
    """

    def __init__(self, spec: HeadSpec, outputs: Sequence[TensorInfo]) -> None:
        self.spec = spec
        self._shapes = [tuple(o.shape) for o in outputs]
        self._dtypes = [np.dtype(o.dtype) for o in outputs]
        self._order, levels, anchors = _plan_cut(spec, outputs) if spec.kind == "yolov8_cut" else _plan(spec, outputs)
        self.native_arguments = (
            _NATIVE_KIND[spec.kind], spec.classes, anchors, spec.agnostic, spec.max_detections, below(spec.iou),
            [below(score) for score in spec.scores], levels,
        )  # fmt: skip
        """As _native.head takes them."""
        try:
            self._head = _native.head(*self.native_arguments)
        except ValueError as error:
            raise ConfigError(f"this head can't be decoded: {error}", got=str(spec)) from error

    def __call__(self, outputs: Sequence[npt.NDArray[Any]], to_source_px: ToSource | None = None) -> Detections:
        """Detections of one inference, best first.

        Args:
            outputs: the session's output arrays, in its order.
            to_source_px: takes boxes [N, 4] of the tensor to the frame (Geometry.to_source_px); None leaves them.

        Raises:
            InvalidOutput: a value is NaN or infinite, or an array has another shape or type than the session said.
        """
        self._check(outputs)
        try:
            boxes, scores, labels, total = _native.decode(self._head, [outputs[i] for i in self._order])
        except ArithmeticError as error:
            raise InvalidOutput(f"the model's output is damaged: {error}") from error
        boxes_px = np.frombuffer(boxes, np.float32).reshape(-1, 4)
        return Detections(
            boxes_px if to_source_px is None else to_source_px(boxes_px),
            np.frombuffer(scores, np.float32),
            np.frombuffer(labels, np.int32),
            truncated=total > self.spec.max_detections,
        )

    def _check(self, outputs: Sequence[npt.NDArray[Any]]) -> None:
        shapes, dtypes = [o.shape for o in outputs], [o.dtype for o in outputs]
        if shapes != self._shapes or dtypes != self._dtypes:
            raise InvalidOutput(
                "the model's outputs have another shape or type than the session said",
                wanted=f"{self._shapes} {[str(dtype) for dtype in self._dtypes]}",
                got=f"{shapes} {[str(dtype) for dtype in dtypes]}",
            )
        for output in outputs:
            if not output.flags.c_contiguous:
                raise InvalidOutput("an output array is not contiguous", got=f"strides {output.strides}")


def below(threshold: float) -> float:
    """The largest float32 that is not above the threshold: float32 scores compare with it as with the threshold."""
    nearest = np.float32(threshold)
    # float(): NumPy would round the threshold to float32 before it compares.
    return float(np.nextafter(nearest, np.float32(-1)) if float(nearest) > threshold else nearest)


_Level = tuple[int, int, int, int, int, float, int, int, float]


def _plan(spec: HeadSpec, outputs: Sequence[TensorInfo]) -> tuple[list[int], list[_Level], int]:
    """Order of the outputs, levels, and number of anchors of a head with one output."""
    shape = tuple(outputs[0].shape) if len(outputs) == 1 else ()
    if len(shape) != 3 or shape[0] != 1 or str(outputs[0].dtype) != "float32":
        raise _misfit(spec, outputs, "one float32 output of three dimensions, the first of them 1")
    channels = {"yolov8": 4 + spec.classes, "end2end": 6}.get(spec.kind, 5 + spec.classes)
    if (shape[1] if spec.kind == "yolov8" else shape[2]) != channels:
        raise _misfit(spec, outputs, f"{channels} values for each anchor")
    anchors = shape[2] if spec.kind == "yolov8" else shape[1]
    levels: list[_Level] = []
    if spec.kind == "yolox":
        levels = [(columns, rows, stride, *_FLOAT, *_FLOAT) for columns, rows, stride in spec.grids()]
        if sum(level[0] * level[1] for level in levels) != anchors:
            raise _misfit(spec, outputs, f"as many anchors as {spec.grids()} have cells")
    return [0], levels, anchors


def _plan_cut(spec: HeadSpec, outputs: Sequence[TensorInfo]) -> tuple[list[int], list[_Level], int]:
    shapes = [tuple(o.shape) for o in outputs]
    grids = sorted(spec.grids(), key=lambda grid: grid[2])
    if len(shapes) != 2 * len(grids) or any(len(s) != 4 for s in shapes):
        raise _misfit(spec, outputs, f"two outputs for each of the strides {spec.strides}")
    order: list[int] = []
    levels: list[_Level] = []
    boxes, scores = cut_pairs(shapes, spec.classes)
    if len(boxes) != len(grids) or len(scores) != len(grids):
        raise _misfit(
            spec, outputs, f"a box output [1, 64, h, w] and a class output [1, {spec.classes}, h, w] a stride"
        )
    for (columns, rows, stride), box, score in zip(grids, boxes, scores, strict=True):
        if shapes[box] != (1, BOX_LOGITS, rows, columns) or shapes[score] != (1, spec.classes, rows, columns):
            raise _misfit(spec, outputs, f"[1, 64, {rows}, {columns}] and [1, {spec.classes}, {rows}, {columns}]")
        order += [box, score]
        levels.append((columns, rows, stride, *_encoding(spec, outputs[box]), *_encoding(spec, outputs[score])))
    return order, levels, sum(level[0] * level[1] for level in levels)


def _encoding(spec: HeadSpec, output: TensorInfo) -> tuple[int, int, float]:
    dtype = str(output.dtype)
    if dtype == "float32":
        return _FLOAT
    if dtype not in _NATIVE_TYPE or output.scale is None or output.zero_point is None:
        raise _misfit(spec, [output], "float32, or uint8 or uint16 with scale and zero point")
    return _NATIVE_TYPE[dtype], output.zero_point, output.scale


def _misfit(spec: HeadSpec, outputs: Sequence[TensorInfo], wanted: str) -> ConfigError:
    return ConfigError(
        f"the outputs are not those of a {spec.kind} head with {spec.classes} classes",
        wanted=wanted,
        got=", ".join(f"{o.name} {list(o.shape)} {o.dtype}" for o in outputs) or "no outputs",
        remedy="correct head and labels in the model's manifest",
    )
