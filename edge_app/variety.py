"""Choosing varied frames out of a stream, by one rule. Pure.

The rule: of all frames seen, keep a given number that lie far apart. While there is room every frame is kept. After
that a frame is kept if it is farther from all those kept than the two closest of them are from each other; it then
takes the place of that one of the two which is nearer to the rest. So the smallest distance among those kept never
falls, and the same frames in the same order give the same choice.

The distance is Euclidean between descriptions of a frame: its mean luma by column and by row in BINS parts each (a
unit is 16 grey levels), its contrast (16 levels), its noise (2 levels) and the width of its edges (a factor of 1.4).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edge_app.preprocess import FrameMeasures

BINS = 16
Description = npt.NDArray[np.float64]


def describe(measures: FrameMeasures) -> Description:
    """What two frames are compared by: float64 [2 BINS + 3]."""
    profiles = [_binned(measures.luma_columns), _binned(measures.luma_rows)]
    sharpness = 2 * np.log2(max(measures.sharpness, 0.01))
    return np.concatenate([*profiles, [measures.contrast / 16, measures.noise / 2, sharpness]])


class Varied:
    """The frames kept so far, by the number under which each was kept: 0 .. count - 1."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._kept: list[Description] = []
        self._apart = np.full((count, count), np.inf)

    @property
    def least_distance(self) -> float:
        """Between the two closest frames kept; infinite below two."""
        return float(self._apart.min())

    def offer(self, description: Description) -> int | None:
        """The number under which this frame is kept now (in place of the one before), or None."""
        distances = np.array([np.linalg.norm(description - kept) for kept in self._kept])
        if len(self._kept) < self._count:
            self._kept.append(description)
            self._place(len(self._kept) - 1, distances)
            return len(self._kept) - 1
        if self._count < 2 or distances.min() <= self.least_distance:
            return None
        one, other = np.unravel_index(int(self._apart.argmin()), self._apart.shape)
        number = int(min(one, other, key=lambda index: np.partition(self._apart[index], 1)[1]))
        self._kept[number] = description
        self._place(number, distances)
        return number

    def _place(self, number: int, distances: npt.NDArray[np.float64]) -> None:
        self._apart[number, : len(distances)] = self._apart[: len(distances), number] = distances
        self._apart[number, number] = np.inf


def _binned(profile: npt.NDArray[np.float32]) -> Description:
    return np.array([part.mean() for part in np.array_split(profile.astype(np.float64), BINS)]) / 16
