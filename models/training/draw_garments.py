"""Draw the garments that come before the mirror as shipped: outlines filled with cloth, laid on a floor.

    python models/training/draw_garments.py models/garment/pictures

Writes LABEL/NUMBER.jpg, 400 x 533. What a drawing shows is known, so the shipped pipeline, its canary and its tests
have a truth and need no photograph. How well a network does on photographs is measured on photographs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
Field = npt.NDArray[np.float64]
Half = list[tuple[float, float]]

WIDTH, HEIGHT = 400, 533
QUALITY = 88
FLOOR = (150.0, 172.0, 190.0)
COLOURS = ((60, 45, 40), (150, 90, 40), (60, 60, 170), (120, 140, 60))
"""BGR of the cloths."""

# Right halves of outlines, from the middle of the neck or waist round to the middle of the hem: x from the middle of
# the picture, in halves of its width; y from the top, in heights.
SHAPES: dict[str, Half] = {
    "dress": [(0, 0.18), (0.10, 0.16), (0.16, 0.07), (0.24, 0.07), (0.26, 0.22), (0.34, 0.30), (0.28, 0.44),
              (0.62, 0.90), (0, 0.93)],
    "longsleeve": [(0, 0.19), (0.12, 0.18), (0.22, 0.14), (0.40, 0.18), (0.56, 0.34), (0.78, 0.78), (0.62, 0.82),
                   (0.44, 0.44), (0.45, 0.84), (0, 0.86)],
    "pants": [(0, 0.08), (0.34, 0.08), (0.40, 0.25), (0.48, 0.93), (0.16, 0.94), (0.03, 0.38), (0, 0.36)],
    "skirt": [(0, 0.22), (0.30, 0.21), (0.34, 0.30), (0.66, 0.80), (0, 0.84)],
    "t-shirt": [(0, 0.20), (0.12, 0.19), (0.22, 0.15), (0.42, 0.19), (0.78, 0.38), (0.60, 0.50), (0.44, 0.42),
                (0.45, 0.60), (0.46, 0.86), (0, 0.88)],
}  # fmt: skip
NECK_Y = {"longsleeve": 0.155, "t-shirt": 0.165}
WAIST = {"pants": (0.08, 0.34), "skirt": (0.22, 0.30)}
"""Top (in heights) and half width (in halves of the width) of a waistband."""


def main() -> None:
    """Each garment in each colour."""
    folder = Path(sys.argv[1])
    for kind, label in enumerate(SHAPES):
        (folder / label).mkdir(parents=True, exist_ok=True)
        for number, colour in enumerate(COLOURS):
            image = draw(label, colour, np.random.default_rng([kind, number]))
            cv2.imwrite(str(folder / label / f"{number}.jpg"), image, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])


def draw(label: str, colour: tuple[int, int, int], rng: np.random.Generator) -> Image:
    """One garment, BGR uint8 [533, 400, 3]."""
    floor = np.array(FLOOR) + 14 * smooth_noise(rng, 60)[..., None] + 5 * smooth_noise(rng, 1)[..., None]
    inside = filled(SHAPES[label])
    shadow = cv2.GaussianBlur(np.roll(inside, (6, 5), (0, 1)), (0, 0), 7)
    folds = 0.16 * smooth_noise(rng, 14) + 0.10 * smooth_noise(rng, 5)
    edge = np.clip(1.4 - cv2.GaussianBlur(1 - inside, (0, 0), 6) * 0.9, 0.6, 1.05)
    cloth = (np.array(colour, float) + 18) * ((1 + folds) * edge)[..., None] + 4 * rng.normal(0, 1, (HEIGHT, WIDTH, 1))
    image = floor * (1 - 0.35 * shadow)[..., None]
    image = image * (1 - inside[..., None]) + cloth * inside[..., None]
    if label in NECK_Y:
        add_neck(image, round(HEIGHT * NECK_Y[label]), colour)
    if label in WAIST:
        add_waistband(image, *WAIST[label], colour)
    return np.clip(cv2.GaussianBlur(image, (0, 0), 0.8), 0, 255).astype(np.uint8)


def filled(half: Half) -> Field:
    """Share of the garment in each pixel, its corners rounded; [533, 400]."""
    right = [(WIDTH / 2 * (1 + x), HEIGHT * y) for x, y in half]
    left = [(WIDTH - x, y) for x, y in reversed(right)]
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    cv2.fillPoly(mask, [np.array(right + left, np.int32)], 255, cv2.LINE_AA)
    rounded = cv2.GaussianBlur(mask, (0, 0), 4).astype(float) / 255
    return np.clip((rounded - 0.4) * 5, 0, 1)


def smooth_noise(rng: np.random.Generator, sigma_px: float) -> Field:
    """Mean about 0, within -1 .. 1; [533, 400]."""
    field = cv2.GaussianBlur(rng.normal(0, 1, (HEIGHT, WIDTH)), (0, 0), sigma_px)
    return np.asarray(field / np.abs(field).max(), np.float64)


def add_neck(image: Field, y: int, colour: tuple[int, int, int]) -> None:
    """A round neck, its inside dark, and the seams of the sleeves."""
    middle, seam, dark = WIDTH // 2, darker(colour, 0.55), darker(colour, 0.35)
    cv2.ellipse(image, (middle, y), (38, 24), 0, 0, 180, seam, 7, cv2.LINE_AA)
    cv2.ellipse(image, (middle, y - 3), (34, 18), 0, 0, 360, dark, -1, cv2.LINE_AA)
    for side in (-1, 1):
        top, bottom = (middle + side * 80, round(HEIGHT * 0.2)), (middle + side * 90, round(HEIGHT * 0.42))
        cv2.line(image, top, bottom, seam, 2, cv2.LINE_AA)


def add_waistband(image: Field, top: float, half: float, colour: tuple[int, int, int]) -> None:
    """A band, a button, a fly."""
    middle, y, reach, seam = WIDTH // 2, round(HEIGHT * top), round(WIDTH / 2 * half) - 3, darker(colour, 0.55)
    cv2.rectangle(image, (middle - reach, y + 3), (middle + reach, y + 20), seam, 2)
    cv2.line(image, (middle, y + 20), (middle, y + 75), seam, 2, cv2.LINE_AA)
    cv2.circle(image, (middle, y + 11), 4, (190, 190, 190), -1, cv2.LINE_AA)


def darker(colour: tuple[int, int, int], factor: float) -> tuple[float, ...]:
    """BGR."""
    return tuple(factor * value for value in colour)


if __name__ == "__main__":
    main()
