"""What the frame guard needs to know of a frame: light, contrast, sharpness, and where things lie.

Everything is counted on a grid of sample points (at most 640 x 157), so the cost does not grow with the frame. At each
point the luma is taken there, one px to the right and one px down: that is the full resolution of the sensor, so a
lens out of focus shows in a 12 Mpixel frame as well as in a small one. Luma is (38 R + 75 G + 15 B + 64) >> 7: BT.601's
weights in 7 bits, at most one level from `color: GRAY`'s, at a third of its instructions.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edge_app.errors import ConfigError
from edge_app.preprocess import _native
from edge_app.preprocess.geometry import Region
from edge_app.preprocess.plan import FORMATS, Source

if TYPE_CHECKING:
    from edge_app.preprocess._native import Buffer

Floats = npt.NDArray[np.float32]

MOST_COLUMNS, MOST_ROWS = 640, 157
"""A prime: heights are no multiples of it, so that steps down are no whole px."""
_SCALARS = struct.Struct("9d")
"""What ea_measures begins with."""
_PROFILES = 0, MOST_COLUMNS, 2 * MOST_COLUMNS, 2 * MOST_COLUMNS + MOST_ROWS
"""Where its four profiles begin, in floats behind the scalars."""


@dataclass(frozen=True, slots=True)
class FrameMeasures:
    """Measures of one frame. Luma is 0..255; arrays are float32.

    Attributes:
        mean_luma: mean.
        contrast: 99th less 1st percentile of luma.
        dark_fraction, bright_fraction: share of sample points clipped to black (luma 0..4) or white (251..255), 0..1.
        noise: median step between neighbours, both directions, grey levels: noise where most of the frame is even.
        sharpness: 1 / px, how steep edges are: mean slope of edges, weighted by slope, over contrast. A step over w px
            gives 1 / w, a Gaussian blur of sigma s gives 1 / (3.5 s). It depends on how high and steep edges are, not
            on how many there are. 0: no edge at all.
        sharpness_x, sharpness_y: the same of steps along a row or a column alone; they differ in motion blur.
        edge_fraction: share of steps that count as edges: those above 4 sigma of the noise (1.4826 times the median
            step) or above 0.4 of the contrast, whichever is less, and above 8.
        luma_columns: mean luma of each column of sample points.
        edge_columns: mean step along the row in each column.
        luma_rows: mean luma of each row of sample points.
        edge_rows: mean step along the column in each row.
    """

    mean_luma: float
    contrast: float
    dark_fraction: float
    bright_fraction: float
    noise: float
    sharpness: float
    sharpness_x: float
    sharpness_y: float
    edge_fraction: float
    luma_columns: Floats
    edge_columns: Floats
    luma_rows: Floats
    edge_rows: Floats


@dataclass(frozen=True, slots=True)
class Grid:
    """Sample points of a frame's region, spread evenly: how many along a row and a column.

    Steps that are no whole px come, in turn, to every place of a pattern that repeats itself.
    """

    region: Region
    columns: int
    rows: int

    @classmethod
    def of(cls, source: Source, region: Region | None) -> Grid:
        """At most 640 x 157 points."""
        x0, y0, x1, y1 = region or (0, 0, source.width, source.height)
        return cls((x0, y0, x1, y1), min(x1 - x0, MOST_COLUMNS), min(y1 - y0, MOST_ROWS))


def measure(frame: Buffer, source: Source, region: Region | None = None) -> FrameMeasures:
    """Measure one frame in C, the GIL released.

    Args:
        frame: uint8, one piece of memory, as for Plan.run.
        source: how the frame lies in memory.
        region: x0, y0, x1, y1 that is looked at, px; None: all of it.

    Raises:
        ConfigError: the source or region is impossible.
        TypeError, ValueError: the buffer is too small, not of bytes, or not contiguous.
    """
    grid, native = _plan(source, region)
    return of_result(_native.measure(native, frame), grid)


@lru_cache(maxsize=32)
def _plan(source: Source, region: Region | None) -> tuple[Grid, object]:
    grid = Grid.of(source, region)
    try:
        return grid, _native.build(native_ints(source, grid), (0.0,) * 9)
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"this frame can't be measured: {error}", got=f"{source}, region {region}") from error


def native_ints(source: Source, grid: Grid) -> tuple[int, ...]:
    """Integers of the C spec that samples a grid: to a gray uint8 tensor of its size."""
    x0, y0, x1, y1 = grid.region
    size = grid.columns, grid.rows
    gray, planar, uint8, sample = 2, 0, 1, 3
    return (
        FORMATS.index(source.pixel_format), source.width, source.height, source.matrix == "bt709",
        source.range == "full", source.stride_bytes, *source.chroma_if_nv12,
        x0, y0, x1 - x0, y1 - y0, *size, 0, 0, *size, 0, 0, *size, gray, planar, uint8, sample, 0, 1,
    )  # fmt: skip


def of_result(result: Buffer, grid: Grid) -> FrameMeasures:
    """Measures from ea_measures of measure.h."""
    means = np.frombuffer(result, np.float32, offset=_SCALARS.size)
    luma_columns, edge_columns, luma_rows, edge_rows = (means[start:] for start in _PROFILES)
    mean, contrast, dark, bright, noise, sharpness, sharpness_x, sharpness_y, edges = _SCALARS.unpack_from(result)
    return FrameMeasures(
        mean_luma=mean,
        contrast=contrast,
        dark_fraction=dark,
        bright_fraction=bright,
        noise=noise,
        sharpness=sharpness,
        sharpness_x=sharpness_x,
        sharpness_y=sharpness_y,
        edge_fraction=edges,
        luma_columns=luma_columns[: grid.columns],
        edge_columns=edge_columns[: grid.columns],
        luma_rows=luma_rows[: grid.rows],
        edge_rows=edge_rows[: grid.rows],
    )
