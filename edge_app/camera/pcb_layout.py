"""Lay out the copper of one printed circuit board ("product") of the synthetic line.

A layout is drawn once per product with OpenCV's integer primitives and then kept: fat power traces, poured areas,
component footprints with buses of parallel traces, through-hole pads, single traces with 45-degree bends, and the
product's number in seven-segment digits (no font: fonts differ between OpenCV releases). Every net is a tree, so
that a cut anywhere on a trace really opens it, and nets keep `CLEARANCE_PX` from each other.

Coordinates are pixels of the *canvas*, which is the picture with `APRON_PX` more on each side, so that a shifted or
turned board still has something to show at the picture's edge. Points are (x, y).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import cv2
import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.uint8]
Points = npt.NDArray[np.float64]

SIZE_PX = 640
"""Width and height of a picture."""
APRON_PX = 32
CANVAS_PX = SIZE_PX + 2 * APRON_PX
BOARD_PX = (62, 642)
"""First and last canvas coordinate of the board, in both axes: 30 px of conveyor show around it."""
KEEP_IN_PX = 20
"""Copper stays this far inside the board's edge."""
CLEARANCE_PX = 9
"""Least laminate between two nets."""
COPPER = 255
_DIRECTIONS = np.array([(1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1)], np.float64)
_UNIT = _DIRECTIONS / np.sqrt((_DIRECTIONS**2).sum(axis=1, keepdims=True))
_SEGMENTS = {  # of a digit in a box 1 wide and 2 high
    "a": ((0, 0), (1, 0)), "b": ((1, 0), (1, 1)), "c": ((1, 1), (1, 2)), "d": ((0, 2), (1, 2)),
    "e": ((0, 1), (0, 2)), "f": ((0, 0), (0, 1)), "g": ((0, 1), (1, 1)),
}  # fmt: skip
_DIGITS = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg")


@dataclass(frozen=True)
class Layout:
    """The intact copper of one product. Arrays are read-only and [CANVAS_PX, CANVAS_PX].

    copper: 255 where copper is, else 0.
    nets: number of the net at a pixel, 1.. on copper, 0 on laminate.
    marks: 255 on the copper of the printed number, where no defect is put.
    cuts: float64 [N, 4], points on traces where a cut opens the net: x, y, direction (index of eighths of a turn),
        trace width in px.
    """

    product: int
    copper: Mask
    nets: npt.NDArray[np.int16]
    marks: Mask
    cuts: Points


class _Plotter:
    """Puts nets on a board one by one; a net that would come too near another is refused."""

    def __init__(self, product: int) -> None:
        self.rng = np.random.Generator(np.random.PCG64([product, 0xB0A2D]))
        self.copper: Mask = np.zeros((CANVAS_PX, CANVAS_PX), np.uint8)
        self.marks: Mask = np.zeros_like(self.copper)
        self.nets = np.zeros((CANVAS_PX, CANVAS_PX), np.int16)
        self.count = 0
        self.cuts: list[tuple[float, float, float, float]] = []
        low, high = BOARD_PX[0] + KEEP_IN_PX, BOARD_PX[1] - KEEP_IN_PX
        self.blocked: Mask = np.full_like(self.copper, COPPER)
        self.blocked[low : high + 1, low : high + 1] = 0
        self.low, self.high = low, high

    def integer(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def point(self) -> Points:
        return self.rng.integers(self.low, self.high + 1, 2).astype(np.float64)

    def add(self, nets: list[Mask], *, mark: bool = False) -> bool:
        """Add nets that belong together: all of them, or none if one touches what is there."""
        reach = 2 * CLEARANCE_PX + 1
        near = _window(nets, reach)
        together = np.maximum.reduce([net[near] for net in nets])
        if not together.any() or bool((together & self.blocked[near]).any()):
            return False
        for net in nets:
            if net[near].any():
                self.count += 1
                self.nets[near][net[near] > 0] = self.count
        self.copper[near] |= together
        if mark:
            self.marks[near] |= together
        self.blocked[near] |= _grown(together, reach)
        return True

    def note_cuts(self, path: Points, width_px: int, keep_px: float) -> None:
        """Note where a trace may be cut: on its straight parts, `keep_px` off both their ends."""
        for start, end in pairwise(path):
            length = float(np.hypot(*(end - start)))
            direction = float(np.argmax(_UNIT @ (end - start)))
            for along in np.arange(keep_px, length - keep_px, 6.0):
                x, y = np.rint(start + (end - start) * (along / length))
                self.cuts.append((float(x), float(y), direction, float(width_px)))


def _blank() -> Mask:
    return np.zeros((CANVAS_PX, CANVAS_PX), np.uint8)


def _window(masks: list[Mask], reach_px: int) -> tuple[slice, slice]:
    """Rows and columns of the canvas in which the masks have anything, and `reach_px` about it."""
    boxes = np.array([box for box in map(cv2.boundingRect, masks) if box[2]], np.int64).reshape(-1, 4)
    if not len(boxes):
        return slice(0, 1), slice(0, 1)
    left, top = np.maximum(boxes[:, :2].min(axis=0) - reach_px, 0)
    right, bottom = (boxes[:, :2] + boxes[:, 2:]).max(axis=0) + reach_px
    return slice(top, bottom), slice(left, right)


def _grown(mask: Mask, reach_px: int) -> Mask:
    """The mask with all that lies within a disc of diameter `reach_px` about it."""
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach_px, reach_px))
    return np.asarray(cv2.dilate(mask, kernel), np.uint8)


def _whole(point: Points) -> tuple[int, int]:
    return int(np.rint(point[0])), int(np.rint(point[1]))


def _stroke(net: Mask, path: Points, width_px: int) -> None:
    cv2.polylines(net, [np.rint(path).astype(np.int32)], False, COPPER, width_px)


def _round_pad(net: Mask, centre: Points, radius_px: int, hole_px: int = 0) -> None:
    cv2.circle(net, _whole(centre), radius_px, COPPER, -1)
    if hole_px:
        cv2.circle(net, _whole(centre), hole_px, 0, -1)


def _box_pad(net: Mask, centre: Points, half: tuple[int, int]) -> None:
    x, y = _whole(centre)
    cv2.rectangle(net, (x - half[0], y - half[1]), (x + half[0], y + half[1]), COPPER, -1)


def _path(board: _Plotter, start: Points, direction: int, lengths: tuple[int, ...]) -> Points:
    """A trace's centre line: straight parts, bent by 45 degrees there and back, so that it never meets itself."""
    turn = int(board.rng.choice((-1, 1)))
    points = [start]
    for index, length in enumerate(lengths):
        heading = (direction + turn * (index % 2)) % 8
        points.append(points[-1] + length * _UNIT[heading])
    return np.array(points)


def _beside(path: Points, offset_px: float) -> Points:
    """The path that runs `offset_px` to the left of `path` (mitred at the bends)."""
    steps = np.diff(path, axis=0)
    steps /= np.sqrt((steps**2).sum(axis=1, keepdims=True))
    normals = np.stack([steps[:, 1], -steps[:, 0]], axis=1)
    before = np.vstack([normals[:1], normals])
    after = np.vstack([normals, normals[-1:]])
    mitre = (before + after) / (1 + (before * after).sum(axis=1, keepdims=True))
    return np.asarray(path + offset_px * mitre, np.float64)


def _power_trace(board: _Plotter) -> None:
    width = board.integer(20, 44)
    direction = 2 * board.integer(0, 3)
    lengths = (board.integer(60, 200), board.integer(50, 140), board.integer(60, 200))
    path = _path(board, board.point(), direction, lengths)
    net = _blank()
    _stroke(net, path, width)
    hole = board.integer(8, 12)
    for end in (path[0], path[-1]):
        _round_pad(net, end, max(width // 2, hole) + board.integer(8, 12), hole)
    if board.add([net]) and width <= 30:
        board.note_cuts(path, width, keep_px=46)


def _pour(board: _Plotter) -> None:
    left, top = _whole(board.point())
    width, height = board.integer(60, 150), board.integer(50, 120)
    cut = board.integer(8, 30)
    right, bottom = left + width, top + height
    upper = [(left, top + cut), (left + cut, top), (right, top)]
    lower = [(right, bottom - cut), (right - cut, bottom), (left, bottom)]
    net = _blank()
    cv2.fillPoly(net, [np.array([*upper, *lower], np.int32)], COPPER)
    if board.rng.random() < 0.6:
        cv2.circle(net, (left + width // 2, top + height // 2), board.integer(9, 16), 0, -1)
    board.add([net])


def _footprint(board: _Plotter) -> None:
    """A row of component pads, each with its trace of a bus that ends in staggered pads."""
    count = board.integer(3, 7)
    width = board.integer(8, 10)
    pitch = width + board.integer(12, 15)
    direction = 2 * board.integer(0, 3)
    along = _UNIT[direction]
    lengths = (board.integer(40, 110), board.integer(40, 120), board.integer(30, 120))
    path = _path(board, board.point(), direction, lengths)
    half = (13, 7) if along[0] else (7, 13)
    nets, paths = [], []
    for index in range(count):
        own = _beside(path, (index - (count - 1) / 2) * pitch)
        own[-1] += along * (26 * (index % 2))
        net = _blank()
        _stroke(net, own, width)
        _box_pad(net, own[0], half)
        _round_pad(net, own[-1], width // 2 + 4)
        nets.append(net)
        paths.append(own)
    if _apart(nets) and board.add(nets):
        for own in paths:
            board.note_cuts(own, width, keep_px=28)


def _apart(nets: list[Mask]) -> bool:
    """Whether the nets of a bus leave at least 7 px between each other."""
    near = _window(nets, 7)
    taken = np.zeros_like(nets[0][near])
    for net in nets:
        grown = _grown(net[near], 7)
        if (grown & taken).any():
            return False
        taken |= grown
    return True


def _single_trace(board: _Plotter) -> None:
    """One trace between two pads of any kind."""
    width = board.integer(8, 14)
    lengths = (board.integer(45, 140), board.integer(35, 120), board.integer(45, 120))
    path = _path(board, board.point(), board.integer(0, 7), lengths)
    net = _blank()
    _stroke(net, path, width)
    for end in (path[0], path[-1]):
        kind = board.integer(0, 2)
        if kind == 0:
            _box_pad(net, end, (board.integer(9, 16), board.integer(9, 16)))
        else:
            hole = board.integer(7, 10)
            _round_pad(net, end, hole + board.integer(8, 12), hole)
    if board.add([net]):
        board.note_cuts(path, width, keep_px=32)


def _chip_pads(board: _Plotter) -> None:
    """Two pads of a two-legged component."""
    first = board.point()
    along = _UNIT[2 * board.integer(0, 1)]
    half = (board.integer(9, 14), board.integer(9, 14))
    nets = []
    for centre in (first, first + along * (2 * max(half) + board.integer(12, 22))):
        net = _blank()
        _box_pad(net, centre, half)
        nets.append(net)
    board.add(nets)


def _number(board: _Plotter, number: int) -> bool:
    """The product's number in seven-segment digits, three at least."""
    corner = board.point()
    height, stroke = board.integer(15, 18), 6
    digits = []
    for place, digit in enumerate(f"{number:03d}"):
        net = _blank()
        advance = np.array((place * 2.0, 0.0))
        for name in _DIGITS[int(digit)]:
            _stroke(net, corner + height * (np.array(_SEGMENTS[name], np.float64) + advance), stroke)
        digits.append(net)
    return board.add(digits, mark=True)


@lru_cache(maxsize=8)
def lay_out(product: int) -> Layout:
    """The layout of a product (any integer >= 0); the last few are kept."""
    board = _Plotter(product)
    while not _number(board, product % 1000):
        pass
    wanted = (
        (_pour, board.integer(1, 3)),
        (_power_trace, board.integer(8, 16)),
        (_footprint, board.integer(40, 70)),
        (_single_trace, board.integer(80, 160)),
        (_chip_pads, board.integer(10, 50)),
    )
    for element, tries in wanted:
        for _ in range(tries):
            element(board)
    for array in (board.copper, board.nets, board.marks):
        array.setflags(write=False)
    cuts = np.array(board.cuts, np.float64).reshape(-1, 4)
    cuts.setflags(write=False)
    return Layout(product, board.copper, board.nets, board.marks, cuts)
