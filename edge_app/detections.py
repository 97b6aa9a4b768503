"""What a model found in one frame: structs of arrays, in sensor pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Detections:
    """N detections, best score first.

    Attributes:
        boxes_px: float32 [N, 4], x0, y0, x1, y1 in sensor pixels.
        scores: float32 [N], 0..1.
        labels: int32 [N], index into the model's label list.
        truncated: more candidates passed the threshold than the decoder may return; the list is not whole.
        unsure: further boxes, not listed, whose label is not sure (two-stage pipelines).
    """

    boxes_px: npt.NDArray[np.float32]
    scores: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int32]
    truncated: bool = False
    unsure: int = 0

    def __post_init__(self) -> None:
        n = self.scores.shape[0]
        if self.boxes_px.shape != (n, 4) or self.labels.shape != (n,):
            raise ValueError(
                f"boxes_px {self.boxes_px.shape}, scores {self.scores.shape}, labels {self.labels.shape}:"
                " wanted [N, 4], [N], [N]"
            )

    def __len__(self) -> int:
        return int(self.scores.shape[0])

    @classmethod
    def none(cls) -> Self:
        """A valid inference that found nothing. Never use it for a failure: raise InvalidOutput instead."""
        return cls(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int32))


def iou(box: npt.NDArray[np.float32], others: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Intersection over union of one box [4] with others [N, 4]."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    inner = np.prod(np.clip(high - low, 0, None), axis=1)
    union = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - inner
    return np.asarray(inner / np.maximum(union, 1e-9), np.float32)


@dataclass(frozen=True, slots=True)
class Classes:
    """Scores of a classifier: float32 [C], summing to 1, in the order of the model's label list."""

    scores: npt.NDArray[np.float32]
    crops: int = 1
    """Two-stage pipelines: how many there were; these scores are the largest one's."""

    @property
    def best(self) -> int:
        """Index of the highest score; the first where scores are equal."""
        return int(np.argmax(self.scores))
