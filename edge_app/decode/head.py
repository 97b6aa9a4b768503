"""What a model's outputs are, and how they are to be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from edge_app.errors import ConfigError

HeadKind = Literal["yolov8", "yolov8_cut", "yolov5", "yolox", "end2end", "classify"]
KINDS: tuple[HeadKind, ...] = ("yolov8", "yolov8_cut", "yolov5", "yolox", "end2end", "classify")
BOX_LOGITS = 64
"""Channels of a cut v8 head's box tensor: 16 bins for each of 4 sides."""


class TensorInfo(Protocol):
    """An output tensor as the session knows it. real = (q - zero_point) * scale for integers."""

    @property
    def name(self) -> str:
        """As in the graph."""

    @property
    def shape(self) -> Sequence[int]:
        """With the batch of one."""

    @property
    def dtype(self) -> Any:
        """float32, uint8 or uint16, by name or as numpy.dtype."""

    @property
    def scale(self) -> float | None:
        """Of an integer tensor."""

    @property
    def zero_point(self) -> int | None:
        """Of an integer tensor."""


@dataclass(frozen=True, slots=True)
class Output:
    """A TensorInfo for those who have no other."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    scale: float | None = None
    zero_point: int | None = None


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """How to read the outputs.

    Attributes:
        kind: which head the model has.
            yolov8: [1, 4+C, N], x y w h in px and scores (v8, v11, v12).
            yolov8_cut: the same cut before its distribution decode, two tensors a stride: box logits [1, 64, h, w] and
                class logits [1, C, h, w], float or quantised.
            yolov5: [1, N, 5+C], x y w h in px, objectness, class scores; score = objectness * class score.
            yolox: as yolov5, boxes relative to their grid cell, w and h as logarithms, all in strides.
            end2end: [1, N, 6], x0 y0 x1 y1 score class, already suppressed (v10, 26).
            classify: [1, C].
        classes: how many the model knows.
        input_width, input_height: px of the model's input; grids follow from it and the strides.
        score: threshold, one for all classes or one each; a score counts above it (strictly).
        iou: of two boxes; above it (strictly) the lower score falls.
        agnostic: boxes of different classes suppress each other.
        max_detections: more are cut off, which marks the result as truncated.
        strides: px per cell of each feature map, in the order of the anchors.
        softmax: classify: the output is logits.
        temperature: classify: logits are divided by this first.
    """

    kind: HeadKind
    classes: int
    input_width: int = 0
    input_height: int = 0
    score: float | tuple[float, ...] = 0.25
    iou: float = 0.45
    agnostic: bool = False
    max_detections: int = 300
    strides: tuple[int, ...] = (8, 16, 32)
    softmax: bool = False
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError("unknown kind of head", wanted=", ".join(KINDS), got=repr(self.kind))
        if self.classes < 1:
            raise ConfigError("a head needs classes", wanted="at least 1", got=str(self.classes))
        if len(self.scores) != self.classes or not all(0 <= s <= 1 for s in self.scores):
            raise ConfigError(
                "score thresholds do not fit the head",
                wanted=f"one of 0..1, or one for each of the {self.classes} classes",
                got=str(self.score),
            )
        if not 0 <= self.iou <= 1 or self.max_detections < 1 or self.temperature <= 0:
            raise ConfigError(
                "a setting of the head is out of range",
                wanted="iou 0..1, max_detections at least 1, temperature above 0",
                got=f"iou {self.iou}, max_detections {self.max_detections}, temperature {self.temperature}",
            )

    @property
    def scores(self) -> tuple[float, ...]:
        """One threshold a class."""
        return self.score if isinstance(self.score, tuple) else (self.score,) * self.classes

    def grids(self) -> tuple[tuple[int, int, int], ...]:
        """Columns, rows and stride of each feature map.

        Raises:
            ConfigError: the input size is not a multiple of a stride, or not known.
        """
        for stride in self.strides:
            if self.input_width < 1 or self.input_height < 1 or self.input_width % stride or self.input_height % stride:
                raise ConfigError(
                    "the strides do not fit the model's input",
                    wanted=f"sides that are multiples of {self.strides}",
                    got=f"{self.input_width}x{self.input_height} px",
                )
        return tuple((self.input_width // s, self.input_height // s, s) for s in self.strides)


def recognise(
    shapes: Sequence[Sequence[int]], classes: int | None = None, input_size: tuple[int, int] | None = None
) -> HeadKind:
    """The kind of head that gives outputs of these shapes, for an input of width, height px.

    Raises:
        ConfigError: none or more than one does. yolov5 and raw yolox have one shape; only the number of anchors
            tells them apart (3 a cell, or 1), so without `input_size` the manifest must say which.
    """
    found = _by_anchors(_candidates([tuple(shape) for shape in shapes], classes), shapes, input_size)
    if len(found) == 1:
        return found[0]
    raise ConfigError(
        "the outputs fit more than one kind of head" if found else "the outputs fit no known kind of head",
        wanted=", ".join(found or KINDS),
        got=f"shapes {[list(s) for s in shapes]}, classes {'unknown' if classes is None else classes}",
        remedy="set head.kind in the model's manifest",
    )


def classes_of(kind: HeadKind, shapes: Sequence[Sequence[int]]) -> int | None:
    """How many classes a recognised head has; None: its outputs do not say."""
    if kind == "yolov8":
        return shapes[0][1] - 4
    return shapes[0][2] - 5 if kind in ("yolov5", "yolox") else None


def _candidates(shapes: list[tuple[int, ...]], classes: int | None) -> list[HeadKind]:
    if len(shapes) > 1:
        return ["yolov8_cut"] if _is_cut(shapes, classes) else []
    if not shapes:
        return []
    shape = shapes[0]
    if len(shape) == 2 and shape[0] == 1 and classes in (None, shape[1]):
        return ["classify"]
    if len(shape) != 3 or shape[0] != 1:
        return []
    found: list[HeadKind] = []
    _, first, last = shape
    if last == 6 and (classes is None or classes > 1 or first <= 1000):
        found.append("end2end")
    if first == 4 + classes if classes is not None else 4 < first < last:
        found.append("yolov8")
    if last == 5 + classes if classes is not None else 5 < last < first:
        found += ["yolov5", "yolox"]
    return found


def _by_anchors(
    found: list[HeadKind], shapes: Sequence[Sequence[int]], input_size: tuple[int, int] | None
) -> list[HeadKind]:
    """Of yolov5 and yolox, the one whose anchors fill the usual strides 8, 16 and 32."""
    if input_size is None or not {"yolov5", "yolox"} <= set(found):
        return found
    cells = sum((input_size[0] // stride) * (input_size[1] // stride) for stride in (8, 16, 32))
    anchors: dict[HeadKind, int] = {"yolov5": 3 * cells, "yolox": cells}
    return [kind for kind in found if anchors.get(kind, shapes[0][1]) == shapes[0][1]]


def _is_cut(shapes: list[tuple[int, ...]], classes: int | None) -> bool:
    if len(shapes) % 2 or any(len(s) != 4 or s[0] != 1 for s in shapes):
        return False
    boxes, scores = cut_pairs(shapes, classes)
    return len(boxes) == len(scores) and all(shapes[b][2:] == shapes[s][2:] for b, s in zip(boxes, scores, strict=True))


def cut_pairs(shapes: Sequence[Sequence[int]], classes: int | None) -> tuple[list[int], list[int]]:
    """Indices of a cut head's box and class tensors, both by falling size of the feature map.

    Where C is 64, both have one shape, and boxes are taken to come first in each pair.
    """
    places = sorted(range(len(shapes)), key=lambda i: (-shapes[i][2] * shapes[i][3], i))
    if classes == BOX_LOGITS:
        return places[0::2], places[1::2]
    boxes = [i for i in places if shapes[i][1] == BOX_LOGITS]
    return boxes, [i for i in places if shapes[i][1] != BOX_LOGITS and classes in (None, shapes[i][1])]
