"""Put etching defects into a laid-out board: the six kinds that DeepPCB names, each truly there.

A defect is drawn as an irregular shape, and accepted only if it changed what its name says (`TOPOLOGY`): an open has
broken a net in two, a short has joined two, a pin-hole is closed all round, a spur touches one net and no other.
Sizes go from `LEAST_PX` up. Coordinates are those of the canvas (see pcb_layout).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
import numpy.typing as npt

from edge_app.camera.pcb_layout import APRON_PX, BOARD_PX, COPPER, Layout, Mask, Points, lay_out

LABELS = ("open", "short", "mousebite", "spur", "copper", "pin-hole")
"""DeepPCB's classes in DeepPCB's order."""
LEAST_PX = 6
"""The longer side of the smallest defect."""
APART_PX = 56
"""Least distance between the centres of two defects of a part."""
TOPOLOGY: dict[str, tuple[int | None, int | None]] = {
    "open": (1, None),
    "short": (-1, None),
    "mousebite": (0, 0),
    "spur": (0, 0),
    "copper": (1, 0),
    "pin-hole": (0, 1),
}
"""By how much a defect changes the number of pieces of copper and of laminate; None: does not matter."""
_LEAST_AREA_PX2 = 18
_ATTEMPTS = 400
_MARGIN_PX = 46
"""Surroundings in which pieces are counted: wider than the widest trace."""


class DefectError(RuntimeError):
    """A board offers no place for a defect that was asked for by name."""


@dataclass(frozen=True)
class Defect:
    """One defect: its label and the tight box (x0, y0, x1, y1; x1 and y1 excluded) of the changed canvas pixels."""

    label: str
    box: tuple[int, int, int, int]


@dataclass(frozen=True)
class Places:
    """Where on a product defects can go. Edges are float64 [N, 4]: x, y and the unit normal out of the copper."""

    edges: Points
    inside: npt.NDArray[np.int16]
    outside: npt.NDArray[np.int16]
    depth: npt.NDArray[np.float32]
    room: npt.NDArray[np.float32]


Shape = tuple[Mask, tuple[int, int, int, int]]
"""255 where the defect changes the copper, and the window (x0, y0, x1, y1) of the canvas that it stands for."""


@lru_cache(maxsize=8)
def places(product: int) -> Places:
    """Where defects of each kind can go on a product; the last few are kept.

    depth and room, float32 [CANVAS_PX, CANVAS_PX]: distance in px to the next laminate, and to the next copper.
    """
    layout = lay_out(product)
    allowed = np.zeros(layout.copper.shape, bool)
    allowed[BOARD_PX[0] + 16 : BOARD_PX[1] - 16, BOARD_PX[0] + 16 : BOARD_PX[1] - 16] = True
    allowed &= cv2.dilate(layout.marks, np.ones((25, 25), np.uint8)) == 0
    depth = cv2.distanceTransform(layout.copper, cv2.DIST_L2, 5)
    room = cv2.distanceTransform(cv2.bitwise_not(layout.copper), cv2.DIST_L2, 5)
    soft = cv2.GaussianBlur(layout.copper, (0, 0), 2.0)
    slope_x = cv2.Sobel(soft, cv2.CV_16S, 1, 0)
    slope_y = cv2.Sobel(soft, cv2.CV_16S, 0, 1)
    y, x = np.nonzero((depth > 0) & (depth < 1.5) & allowed)
    normal = -np.stack([slope_x[y, x], slope_y[y, x]], axis=1).astype(np.float64)
    length = np.sqrt((normal**2).sum(axis=1))
    steep = length > 0
    edges = np.column_stack([x[steep], y[steep], normal[steep] / length[steep, None]]).astype(np.float64)
    inside = np.argwhere((depth >= 6.5) & allowed)[:, ::-1].astype(np.int16)  # a quarter of what argwhere takes
    outside = np.argwhere((room >= 9.0) & allowed)[:, ::-1].astype(np.int16)
    return Places(edges, inside, outside, np.asarray(depth, np.float32), np.asarray(room, np.float32))


def etch(product: int, rng: np.random.Generator, labels: Sequence[str]) -> tuple[Mask, tuple[Defect, ...]]:
    """The copper of one part with one defect per label.

    Returns the canvas mask (255 copper) and the defects in the order of `labels`.
    Raises DefectError if the product has no place left for one of them, ValueError for an unknown label.
    """
    layout = lay_out(product)
    copper = layout.copper.copy()
    defects: list[Defect] = []
    for label in labels:
        if label not in _SHAPES:
            raise ValueError(f"defect label: wanted one of {', '.join(LABELS)}, got {label!r}")
        defects.append(_put(layout, copper, rng, label, defects))
    return copper, tuple(defects)


def _put(layout: Layout, copper: Mask, rng: np.random.Generator, label: str, others: Sequence[Defect]) -> Defect:
    """Draw one defect into `copper` at the first random place where it is what it is called."""
    where = places(layout.product)
    for _ in range(_ATTEMPTS):
        shape = _SHAPES[label](layout, where, rng)
        if shape is None:
            continue
        change, window = shape
        x0, y0, x1, y1 = window
        before = copper[y0:y1, x0:x1]
        after = before | change if label in _ADDS_COPPER else before & ~change
        box = _changed_box(before, after)
        if box is None or not _is_apart(box, window, others):
            continue
        if _is_what_it_is_called(label, before, after):
            copper[y0:y1, x0:x1] = after
            return Defect(label, (x0 + box[0], y0 + box[1], x0 + box[2], y0 + box[3]))
    raise DefectError(f"product {layout.product}: no place for a defect {label!r} beside {len(others)} others")


def _changed_box(before: Mask, after: Mask) -> tuple[int, int, int, int] | None:
    """Tight box of the changed pixels, or None if they are too few to see."""
    changed = before != after
    if int(changed.sum()) < _LEAST_AREA_PX2:
        return None
    y, x = np.nonzero(changed)
    box = (int(x.min()), int(y.min()), int(x.max()) + 1, int(y.max()) + 1)
    return box if max(box[2] - box[0], box[3] - box[1]) >= LEAST_PX else None


def _is_apart(box: tuple[int, int, int, int], window: tuple[int, int, int, int], others: Sequence[Defect]) -> bool:
    x, y = window[0] + (box[0] + box[2]) / 2, window[1] + (box[1] + box[3]) / 2
    for other in others:
        dx = x - (other.box[0] + other.box[2]) / 2
        dy = y - (other.box[1] + other.box[3]) / 2
        if max(abs(dx), abs(dy)) < APART_PX:
            return False
    return True


def _is_what_it_is_called(label: str, before: Mask, after: Mask) -> bool:
    copper, laminate = TOPOLOGY[label]
    if copper is not None and pieces(after, 8) - pieces(before, 8) != copper:
        return False
    return laminate is None or pieces(~after, 4) - pieces(~before, 4) == laminate


def pieces(mask: Mask, connectivity: int) -> int:
    """Number of connected pieces of a mask (8 for copper, 4 for the laminate between it)."""
    return int(cv2.connectedComponents(mask, connectivity=connectivity)[0]) - 1


def _blob(rng: np.random.Generator, centre: Points, along: Points, half: tuple[float, float]) -> Shape:
    """An irregular blob, about an ellipse with half axes `half` px along and across the direction `along`."""
    angles = (np.arange(9) + rng.uniform(-0.3, 0.3, 9)) * (2 * np.pi / 9)
    radii = rng.uniform(0.8, 1.15, 9)
    across = np.array([-along[1], along[0]])
    offsets = np.outer(np.cos(angles) * radii * half[0], along) + np.outer(np.sin(angles) * radii * half[1], across)
    return _polygon(centre + offsets)


def _polygon(corners: Points) -> Shape:
    """A filled polygon and a window around it."""
    x0, y0 = np.floor(corners.min(axis=0)).astype(int) - _MARGIN_PX
    x1, y1 = np.ceil(corners.max(axis=0)).astype(int) + _MARGIN_PX
    x0, y0, x1, y1 = max(int(x0), 0), max(int(y0), 0), int(x1), int(y1)
    limit = BOARD_PX[1] + APRON_PX
    x1, y1 = min(x1, limit), min(y1, limit)
    mask = np.zeros((y1 - y0, x1 - x0), np.uint8)
    sixteenths = np.rint((corners - (x0, y0)) * 16).astype(np.int32)
    cv2.fillPoly(mask, [sixteenths], COPPER, shift=4)
    return mask, (x0, y0, x1, y1)


def _open(layout: Layout, where: Places, rng: np.random.Generator) -> Shape | None:
    """A ragged, often slanted cut right across a trace."""
    if len(layout.cuts) == 0:
        return None
    x, y, direction, width = layout.cuts[rng.integers(len(layout.cuts))]
    angle = direction * np.pi / 4
    along = np.array([np.cos(angle), np.sin(angle)])
    across = np.array([-along[1], along[0]])
    half_gap = rng.uniform(LEAST_PX, 18) / 2
    slant = rng.uniform(-0.4, 0.4)
    sides = np.linspace(-1.0, 1.0, 5) * (width / 2 + 2.5)
    left = [across * s + along * (s * slant - half_gap + rng.uniform(-1.2, 1.2)) for s in sides]
    right = [across * s + along * (s * slant + half_gap + rng.uniform(-1.2, 1.2)) for s in sides[::-1]]
    return _polygon(np.array([x, y]) + np.array(left + right))


def _short(layout: Layout, where: Places, rng: np.random.Generator) -> Shape | None:
    """A crooked bridge of copper from the edge of one net to another."""
    x, y, nx, ny = where.edges[rng.integers(len(where.edges))]
    start, normal = np.array([x, y]), np.array([nx, ny])
    for gap in range(3, 41):
        px, py = np.rint(start + normal * gap).astype(int)
        met = layout.nets[py, px]
        if met:
            break
    else:
        return None
    if met == layout.nets[int(y), int(x)] or layout.marks[py, px]:
        return None
    across = np.array([-ny, nx])
    line = [start - normal * 2]
    for share in (0.3, 0.6):
        line.append(start + normal * (gap * share) + across * rng.uniform(-2.5, 2.5))
    line.append(start + normal * (gap + 2))
    halves = rng.uniform(2.0, 4.5, 4)[:, None]
    return _polygon(np.vstack([line + across * halves, (line - across * halves)[::-1]]))


def _mousebite(layout: Layout, where: Places, rng: np.random.Generator) -> Shape | None:
    """A bite out of an edge of the copper that leaves at least 3 px of it."""
    x, y, nx, ny = where.edges[rng.integers(len(where.edges))]
    thickness = _thickness(layout, x, y, nx, ny)
    deepest = min(thickness - 3.5, 0.7 * thickness, 11.0)
    if deepest < 4.0 or _is_at_hole(layout, x, y, nx, ny):
        return None
    deep = rng.uniform(4.0, deepest)
    along = np.array([-ny, nx])
    return _blob(rng, np.array([x, y]), along, (rng.uniform(LEAST_PX / 2 + 0.5, 9.0), deep))


def _thickness(layout: Layout, x: float, y: float, nx: float, ny: float) -> float:
    """Copper in px from an edge inwards, 40 at most."""
    for inwards in range(1, 41):
        if not layout.copper[int(np.rint(y - ny * inwards)), int(np.rint(x - nx * inwards))]:
            return float(inwards)
    return 40.0


def _is_at_hole(layout: Layout, x: float, y: float, nx: float, ny: float) -> bool:
    """Whether the edge is a hole's: the same net again, straight ahead and near."""
    for outwards in range(3, 36):
        met = layout.nets[int(np.rint(y + ny * outwards)), int(np.rint(x + nx * outwards))]
        if met:
            return bool(met == layout.nets[int(y), int(x)])
    return False


def _spur(layout: Layout, where: Places, rng: np.random.Generator) -> Shape | None:
    """A tongue of copper that sticks out of an edge and stops 4 px short of the next net at least."""
    x, y, nx, ny = where.edges[rng.integers(len(where.edges))]
    if _is_at_hole(layout, x, y, nx, ny):
        return None
    reach = rng.uniform(5.5, 14.0)
    tip = np.rint((x + nx * reach, y + ny * reach)).astype(int)
    if where.room[tip[1], tip[0]] < max(4.0, 0.75 * reach):
        return None
    half_width = rng.uniform(LEAST_PX / 2, 5.5)
    lean = rng.uniform(-0.25, 0.25)
    normal = np.array([nx - ny * lean, ny + nx * lean])
    across = np.array([-ny, nx])
    root = np.array([x, y]) - np.array([nx, ny]) * 1.5
    outline = [
        root + across * half_width * rng.uniform(0.9, 1.2),
        root + normal * reach * 0.6 + across * half_width * rng.uniform(0.6, 1.1),
        root + normal * (reach + 1.5) + across * half_width * rng.uniform(0.2, 0.5),
        root + normal * (reach + 1.5) - across * half_width * rng.uniform(0.2, 0.5),
        root + normal * reach * 0.6 - across * half_width * rng.uniform(0.6, 1.1),
        root - across * half_width * rng.uniform(0.9, 1.2),
    ]
    return _polygon(np.array(outline))


def _copper(layout: Layout, where: Places, rng: np.random.Generator) -> Shape | None:
    """An island of copper on bare laminate."""
    centre = where.outside[rng.integers(len(where.outside))].astype(np.float64)
    half = rng.uniform(LEAST_PX / 2 + 0.3, 11.0)
    if where.room[int(centre[1]), int(centre[0])] < 1.15 * half + 5.0:
        return None
    return _blob(rng, centre, _any_direction(rng), (half, max(half * rng.uniform(0.5, 1.0), 2.8)))


def _pin_hole(layout: Layout, where: Places, rng: np.random.Generator) -> Shape | None:
    """A hole in the middle of copper."""
    centre = where.inside[rng.integers(len(where.inside))].astype(np.float64)
    half = rng.uniform(LEAST_PX / 2 + 0.3, 9.0)
    if where.depth[int(centre[1]), int(centre[0])] < 1.15 * half + 2.5:
        return None
    return _blob(rng, centre, _any_direction(rng), (half, max(half * rng.uniform(0.5, 1.0), 2.8)))


def _any_direction(rng: np.random.Generator) -> Points:
    angle = rng.uniform(0, np.pi)
    return np.array([np.cos(angle), np.sin(angle)])


_ADDS_COPPER = frozenset({"short", "spur", "copper"})
_SHAPES: dict[str, Callable[[Layout, Places, np.random.Generator], Shape | None]] = {
    "open": _open,
    "short": _short,
    "mousebite": _mousebite,
    "spur": _spur,
    "copper": _copper,
    "pin-hole": _pin_hole,
}
