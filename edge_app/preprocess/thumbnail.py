"""A frame's luma, small, and how far it has changed: what the motion gate looks at, in C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edge_app.preprocess import _native
from edge_app.preprocess.geometry import Region
from edge_app.preprocess.plan import Fit, Plan, Source, Tensor

if TYPE_CHECKING:
    from edge_app.preprocess._native import Buffer

COLUMNS, ROWS = 64, 48
"""Points of a thumbnail: each is the mean luma of its part of the frame, so the sensor's noise is averaged away."""

Luma = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Difference:
    """Between two thumbnails.

    Attributes:
        shift: mean luma of the first less that of the second, rounded: light that changed everywhere.
        mean: mean of |first - second - shift|, grey levels.
        share: share of points where that is above the threshold, 0..1.
    """

    shift: int
    mean: float
    share: float


class Thumbnailer:
    """Makes thumbnails of one kind of frame.

    Raises:
        ConfigError: the region is not inside the frame, or smaller than a thumbnail.
    """

    def __init__(self, source: Source, region: Region | None = None) -> None:
        grey = Tensor(COLUMNS, ROWS, dtype="uint8", color="GRAY")
        self._plan = Plan(source, grey, Fit(mode="stretch", method="area", region=region))

    def __call__(self, frame: Buffer) -> Luma:
        """The thumbnail, uint8 [ROWS, COLUMNS]. Raises TypeError or ValueError as Plan.run does."""
        luma = np.empty((1, 1, ROWS, COLUMNS), np.uint8)
        self._plan.run(frame, luma)
        thumbnail: Luma = luma[0, 0]
        return thumbnail


def difference(first: Luma, second: Luma, threshold: int) -> Difference:
    """How far two thumbnails are apart, whatever the light did to both alike.

    Raises:
        TypeError, ValueError: they are not of bytes, or not of one size.
    """
    shift, total, changed = _native.difference(first, second, threshold)
    return Difference(shift, total / first.size, changed / first.size)
