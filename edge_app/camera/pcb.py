"""Draw camera pictures of a printed-circuit-board line: a pure function of (product, seed).

    picture = draw(DEFAULT_PRODUCT, examining_seed(0))
    picture.image      uint8 [640, 640, 3], BGR
    picture.defects    what is wrong with the part and where; empty for a good part

A *product* is one board layout, a *seed* one part of it: intact or with one to four etching defects, under its own
light, noise, blur, shift and rotation. Copper is dark on bright laminate, as in DeepPCB. The board lies on a
conveyor that shows on all sides.

Who may use which: a detector is trained on even products and even seeds, and lines and examinations use odd ones
(`is_training_seed`, `is_training_product`), so that no examined board or part was ever trained on.

The same (product, seed) gives the same defects everywhere, and the same picture wherever OpenCV's resampling rounds
alike (between CPUs and OpenCV releases single grey levels can differ).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import cv2
import numpy as np
import numpy.typing as npt

from edge_app.camera.pcb_defects import LABELS, Defect, etch, places
from edge_app.camera.pcb_layout import APRON_PX, BOARD_PX, CANVAS_PX, SIZE_PX, Mask, lay_out

Image = npt.NDArray[np.uint8]

__all__ = [
    "DEFAULT_PRODUCT",
    "LABELS",
    "SIZE_PX",
    "Conditions",
    "PcbDefect",
    "PcbPicture",
    "defocused",
    "draw",
    "examining_seed",
    "is_training_product",
    "is_training_seed",
    "lamp_off",
    "lens_capped",
    "natural_conditions",
    "planned_defects",
    "shifted",
    "training_seed",
    "without_part",
]

DEFAULT_PRODUCT = 85
"""The product of the shipped line."""
DEFECTIVE_SHARE = 0.4
BOX_MARGIN_PX = 10
"""DeepPCB's boxes reach about this far beyond the changed pixels on every side (median over its train list)."""
NATURAL_SHIFT_PX = 4.0
"""How far, along each axis, a part may lie from its place on the line without anything being wrong."""
NATURAL_TURN_DEG = 0.4
BLACK_LEVEL = 6
_COPPER_BGR, _LAMINATE_BGR, _BELT_BGR = (50, 62, 88), (160, 202, 212), (112, 96, 88)
_NOISE_PX = 1024
_BAND_PX = 80
_NOISE_SCALE = 16.0
_WHAT_HAPPENED, _HOW_IT_LOOKS = 1, 2
"""Separate random streams, so that asking for other defects leaves the light as it was."""


@dataclass(frozen=True)
class PcbDefect:
    """A defect in a picture: its label (one of LABELS) and its box x0, y0, x1, y1 in px (x1 and y1 excluded)."""

    label: str
    box_px: tuple[int, int, int, int]


@dataclass(frozen=True)
class Conditions:
    """How a part is seen.

    gain: light, 1 is nominal, 0 is a closed lens. slope: relative change of light over the picture's width and
    height. tint: factors on blue, green, red. noise_levels: standard deviation in grey levels. blur_px: standard
    deviation of the blur. shift_px: x, y of the part off its place. turn_deg: rotation, counter-clockwise.
    noise_origin: corner of the window cut from the stored noise. part_present: False is an empty conveyor.
    """

    gain: float
    slope: tuple[float, float]
    tint: tuple[float, float, float]
    noise_levels: float
    blur_px: float
    shift_px: tuple[float, float]
    turn_deg: float
    noise_origin: tuple[int, int]
    part_present: bool = True


@dataclass(frozen=True)
class PcbPicture:
    """One drawn frame: image uint8 [SIZE_PX, SIZE_PX, 3] BGR, and everything that is true of it."""

    image: Image
    product: int
    seed: int
    defects: tuple[PcbDefect, ...]
    conditions: Conditions


def training_seed(index: int) -> int:
    """The index-th seed that training may use."""
    return 2 * index


def examining_seed(index: int) -> int:
    """The index-th seed that lines and examinations may use."""
    return 2 * index + 1


def is_training_seed(seed: int) -> bool:
    """Whether a seed is for training (even) rather than for lines and examinations (odd)."""
    return seed % 2 == 0


def is_training_product(product: int) -> bool:
    """Whether a product is for training (even) rather than for lines and examinations (odd)."""
    return product % 2 == 0


def draw(
    product: int,
    seed: int,
    *,
    defects: Sequence[str] | None = None,
    conditions: Conditions | None = None,
    defective_share: float = DEFECTIVE_SHARE,
) -> PcbPicture:
    """Draw one part.

    product, seed: integers >= 0. defects: labels to put on the part, () for an intact one; None lets the seed decide,
    with `defective_share` of the parts defective. conditions: how it is seen; None lets the seed decide within the
    line's tolerances. A defect that the conditions leave outside the picture is not listed.
    Raises ValueError for a negative number or an unknown label, DefectError if the board has no room for `defects`.
    """
    labels = planned_defects(product, seed, defective_share) if defects is None else tuple(defects)
    seen = conditions or natural_conditions(product, seed)
    if not seen.part_present:
        return PcbPicture(_photograph(_belt(product), seen), product, seed, (), seen)
    scene, placed = _part(product, seed, labels)
    listed = tuple(found for defect in placed if (found := _in_picture(defect, seen)) is not None)
    return PcbPicture(_photograph(scene, seen), product, seed, listed, seen)


def planned_defects(product: int, seed: int, defective_share: float = DEFECTIVE_SHARE) -> tuple[str, ...]:
    """Labels of the defects that a seed puts on a part: none, or one to four."""
    rng = _stream(product, seed, _WHAT_HAPPENED)
    if rng.random() >= defective_share:
        return ()
    count = int(rng.choice((1, 2, 3, 4), p=(0.5, 0.25, 0.15, 0.1)))
    return tuple(LABELS[int(index)] for index in rng.integers(0, len(LABELS), count))


def natural_conditions(product: int, seed: int) -> Conditions:
    """The conditions of a part on a line where all is well."""
    rng = _stream(product, seed, _HOW_IT_LOOKS)
    shift_x, shift_y = rng.uniform(-NATURAL_SHIFT_PX, NATURAL_SHIFT_PX, 2)
    slope_x, slope_y = rng.uniform(-0.1, 0.1, 2)
    blue, green, red = rng.uniform(0.97, 1.03, 3)
    left, top = rng.integers(0, _NOISE_PX - SIZE_PX, 2)
    return Conditions(
        gain=float(rng.uniform(0.85, 1.1)),
        slope=(float(slope_x), float(slope_y)),
        tint=(float(blue), float(green), float(red)),
        noise_levels=float(rng.uniform(1.5, 5.0)),
        blur_px=float(rng.uniform(0.6, 1.2)),
        shift_px=(float(shift_x), float(shift_y)),
        turn_deg=float(rng.uniform(-NATURAL_TURN_DEG, NATURAL_TURN_DEG)),
        noise_origin=(int(left), int(top)),
    )


def lens_capped(conditions: Conditions) -> Conditions:
    """No light reaches the sensor."""
    return replace(conditions, gain=0.0)


def lamp_off(conditions: Conditions) -> Conditions:
    """What a hall's own light leaves of the picture."""
    return replace(conditions, gain=0.08)


def defocused(conditions: Conditions, blur_px: float) -> Conditions:
    """Out of focus: `blur_px` is the blur's standard deviation (6 hides every small defect)."""
    return replace(conditions, blur_px=blur_px)


def shifted(conditions: Conditions, dx_px: float, dy_px: float) -> Conditions:
    """The part lies this much further right and down than its seed had put it."""
    x, y = conditions.shift_px
    return replace(conditions, shift_px=(x + dx_px, y + dy_px))


def without_part(conditions: Conditions) -> Conditions:
    """The empty conveyor."""
    return replace(conditions, part_present=False)


@dataclass(frozen=True)
class _Scenery:
    """Coloured canvases of one product, uint8 [CANVAS_PX, CANVAS_PX, 3]: the part, and what it is made of."""

    part: Image
    copper: Image
    laminate: Image


@lru_cache(maxsize=8)
def _scenery(product: int) -> _Scenery:
    laminate, copper, part = _materials(product)
    cv2.rectangle(part, (BOARD_PX[0] - 2, BOARD_PX[0] - 2), (BOARD_PX[1] + 2, BOARD_PX[1] + 2), (78, 70, 66), -1)
    board = slice(BOARD_PX[0], BOARD_PX[1] + 1)
    part[board, board] = laminate[board, board]
    cv2.copyTo(copper, lay_out(product).copper, part)
    for canvas in (part, copper, laminate):
        canvas.setflags(write=False)
    return _Scenery(part, copper, laminate)


@lru_cache(maxsize=1)
def _belt(product: int) -> Image:
    """The conveyor without a part: kept only where a line shows it."""
    return _materials(product)[2]


def _materials(product: int) -> tuple[Image, Image, Image]:
    """Canvases of laminate, copper and conveyor alone."""
    rng = np.random.Generator(np.random.PCG64([product, 0xC0104]))
    weave = ((np.arange(CANVAS_PX) // 3) % 2) * 3
    laminate = _textured(_LAMINATE_BGR, _grain(rng, 0.8, 24) + np.add.outer(weave, weave))
    copper = _textured(_COPPER_BGR, _grain(rng, 1.5, 60))
    return laminate, copper, _textured(_BELT_BGR, _grain(rng, 2.0, 120))


def _grain(rng: np.random.Generator, blur_px: float, contrast: int) -> npt.NDArray[np.int64]:
    """Blurred noise about 0."""
    noise = rng.integers(128 - contrast, 128 + contrast + 1, (CANVAS_PX, CANVAS_PX)).astype(np.uint8)
    return cv2.GaussianBlur(noise, (0, 0), blur_px).astype(np.int64) - 128


def _textured(colour_bgr: tuple[int, int, int], grain: npt.NDArray[np.int64]) -> Image:
    return np.clip(np.array(colour_bgr) + grain[:, :, None], 0, 255).astype(np.uint8)


def _part(product: int, seed: int, labels: tuple[str, ...]) -> tuple[Image, tuple[Defect, ...]]:
    """The coloured canvas of one part, and its defects in canvas coordinates."""
    scenery = _scenery(product)
    if not labels:
        return scenery.part, ()
    copper, defects = etch(product, _stream(product, seed, _WHAT_HAPPENED), labels)
    scene = scenery.part.copy()
    for defect in defects:
        _recolour(scene, copper, scenery, defect.box)
    return scene, defects


def _recolour(scene: Image, copper: Mask, scenery: _Scenery, box: tuple[int, int, int, int]) -> None:
    x0, y0, x1, y1 = box
    is_copper = copper[y0:y1, x0:x1, None] > 0
    scene[y0:y1, x0:x1] = np.where(is_copper, scenery.copper[y0:y1, x0:x1], scenery.laminate[y0:y1, x0:x1])


def _to_picture(conditions: Conditions) -> npt.NDArray[np.float64]:
    """The affine map [2, 3] from canvas to picture: a turn about the middle, then the shift."""
    middle = (CANVAS_PX - 1) / 2
    matrix = np.asarray(cv2.getRotationMatrix2D((middle, middle), conditions.turn_deg, 1.0), np.float64)
    matrix[:, 2] += np.array(conditions.shift_px) - APRON_PX
    return matrix


def _in_picture(defect: Defect, conditions: Conditions) -> PcbDefect | None:
    """A defect's box as a labeller would draw it, or None if it is out of view."""
    x0, y0, x1, y1 = defect.box
    middle = _to_picture(conditions) @ np.array([(x0 + x1 - 1) / 2, (y0 + y1 - 1) / 2, 1.0])
    half = np.array([(x1 - x0) / 2, (y1 - y0) / 2]) + BOX_MARGIN_PX
    low = np.clip(np.rint(middle + 0.5 - half), 0, SIZE_PX).astype(int)
    high = np.clip(np.rint(middle + 0.5 + half), 0, SIZE_PX).astype(int)
    if not bool((high > low).all()):
        return None
    return PcbDefect(defect.label, (int(low[0]), int(low[1]), int(high[0]), int(high[1])))


def _photograph(scene: Image, conditions: Conditions) -> Image:
    """The canvas as the camera sees it."""
    image = cv2.warpAffine(
        scene, _to_picture(conditions), (SIZE_PX, SIZE_PX), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )
    image = cv2.GaussianBlur(image, (0, 0), conditions.blur_px)
    for top in range(0, SIZE_PX, _BAND_PX):  # the light of a whole picture at once would be 12 MB of floats
        band = slice(top, top + _BAND_PX)
        cv2.multiply(image[band], _light(conditions, band), dst=image[band], dtype=cv2.CV_8U)
    left, top = conditions.noise_origin
    noise = _noise()[top : top + SIZE_PX, left : left + SIZE_PX]
    weight = conditions.noise_levels / _NOISE_SCALE
    return np.asarray(cv2.addWeighted(image, 1.0, noise, weight, BLACK_LEVEL - 128.0 * weight), np.uint8)


def _light(conditions: Conditions, band: slice) -> npt.NDArray[np.float32]:
    """Factors float32 [rows of the band, SIZE_PX, 3] by which the light changes every pixel."""
    across = np.linspace(-0.5, 0.5, SIZE_PX, dtype=np.float32)
    plane = np.add.outer(across[band] * np.float32(conditions.slope[1]), across * np.float32(conditions.slope[0]))
    plane = (plane + np.float32(1.0)) * np.float32(conditions.gain)
    return np.asarray(cv2.merge([plane * np.float32(factor) for factor in conditions.tint]), np.float32)


def forget_products() -> None:
    """Lets go of what is kept of the last products (10 MB each); whoever draws them again makes it again."""
    for kept in (lay_out, places, _scenery, _belt):
        kept.cache_clear()


@lru_cache(maxsize=1)
def _noise() -> Image:
    """Noise about 128, standard deviation about _NOISE_SCALE, mostly the same in all three channels."""
    rng = np.random.Generator(np.random.PCG64(0x5E4504))
    grey = rng.standard_normal((_NOISE_PX, _NOISE_PX, 1), np.float32)
    colour = rng.standard_normal((_NOISE_PX, _NOISE_PX, 3), np.float32)
    noise: Image = np.clip(np.rint(128 + _NOISE_SCALE * (0.9 * grey + 0.44 * colour)), 0, 255).astype(np.uint8)
    noise.setflags(write=False)
    return noise


def _stream(product: int, seed: int, purpose: int) -> np.random.Generator:
    if product < 0 or seed < 0:
        raise ValueError(f"product and seed: wanted integers >= 0, got {product} and {seed}")
    return np.random.Generator(np.random.PCG64([product, seed, purpose]))
