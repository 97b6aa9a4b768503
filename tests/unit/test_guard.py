from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_app.errors import ConfigError
from edge_app.frame import PixelFormat
from edge_app.guard import SAMPLES, Product, check, match_anywhere, match_in_place, signature_of
from edge_app.guard_learning import learn
from edge_app.preprocess import FrameMeasures, Source, measure
from edge_app.verdict import Reason

WIDTH, HEIGHT = 480, 360
SIZE = (WIDTH, HEIGHT)


def measured(picture: np.ndarray) -> FrameMeasures:
    picture = np.ascontiguousarray(picture)
    return measure(picture, Source(picture.shape[1], picture.shape[0], PixelFormat.GRAY8))


@lru_cache(maxsize=8)
def board(product: int, dark: int = 60, bright: int = 190) -> np.ndarray:
    """A wide canvas of dark boxes, 60 px larger than a picture on every side."""
    rng = np.random.default_rng(product)
    canvas = np.full((HEIGHT + 120, WIDTH + 120), bright, np.uint8)
    for _ in range(60):
        x, y = rng.integers(0, WIDTH + 100), rng.integers(0, HEIGHT + 100)
        width, height = rng.integers(8, 90, 2)
        cv2.rectangle(canvas, (int(x), int(y)), (int(x + width), int(y + height)), dark, -1)
    return canvas


def photograph(product: int, seed: int, shift: tuple[int, int] = (0, 0), gain: float = 1.0) -> np.ndarray:
    """A part `shift` px off its place, in light of its own, with noise and blur."""
    rng = np.random.default_rng([product, seed])
    x, y = 60 - shift[0], 60 - shift[1]
    picture = board(product)[y : y + HEIGHT, x : x + WIDTH].astype(np.float64) * gain * rng.uniform(0.95, 1.05)
    picture = cv2.GaussianBlur(picture + rng.normal(0, 2, picture.shape), (0, 0), 0.8)
    return np.clip(picture, 0, 255).astype(np.uint8)


@lru_cache(maxsize=4)
def learnt(product: int = 1) -> Product:
    rng = np.random.default_rng(99)
    places = [tuple(int(part) for part in rng.integers(-3, 4, 2)) for _ in range(24)]
    good = [measured(photograph(product, seed, place)) for seed, place in enumerate(places)]
    return learn(f"board-{product}", SIZE, good).product


def blurred(sigma: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda picture: cv2.GaussianBlur(picture, (0, 0), sigma)


def test_one_product_makes_one_reference_and_limits_around_what_was_seen() -> None:
    product = learnt()
    assert product.columns.shape == product.rows.shape == (1, SAMPLES)
    assert 4 <= product.limits.largest_shift_px <= 8
    assert product.limits.luma[0] < measured(photograph(1, 50)).mean_luma < product.limits.luma[1]


@pytest.mark.parametrize("seed", range(100, 112))
def test_good_parts_are_accepted(seed: int) -> None:
    assert check(measured(photograph(1, seed, (seed % 4, -(seed % 3)))), [learnt()], SIZE) is None


def test_a_part_with_defects_is_accepted() -> None:
    picture = photograph(1, 200)
    for x in (50, 150, 250, 350):
        cv2.circle(picture, (x, 100 + x // 4), 7, 60 if x % 100 else 190, -1)
    assert check(measured(picture), [learnt()], SIZE) is None


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        (np.zeros_like, Reason.BAD_IMAGE, "dark: wanted a mean luma of 10 at least, got 0.0"),
        (lambda p: np.full_like(p, 255), Reason.BAD_IMAGE, "flat: wanted a contrast of 20 at least, got 0"),
        (lambda p: np.full_like(p, 128), Reason.BAD_IMAGE, "flat"),
        (lambda p: (p * 0.05).astype(np.uint8), Reason.BAD_IMAGE, "dark"),
        (lambda p: (p * 0.4).astype(np.uint8), Reason.BAD_IMAGE, "brightness (board-1): wanted a mean luma of"),
        (lambda p: np.clip(p * 1.9, 0, 255).astype(np.uint8), Reason.BAD_IMAGE, "(board-1): wanted"),
        (blurred(4), Reason.BAD_IMAGE, "blurred"),
        (blurred(8), Reason.BAD_IMAGE, "blurred"),
        (lambda p: np.roll(p, 20, 1), Reason.BAD_IMAGE, "shifted (board-1): wanted at most"),
        (lambda p: np.roll(p, -20, 0), Reason.BAD_IMAGE, "shifted (board-1)"),
        (lambda p: np.flip(p, 1), Reason.NO_PART, "part: wanted a match of 0.80 with a reference of board-1, got"),
        (lambda p: np.rot90(p, 2), Reason.NO_PART, "part"),
        (lambda p: photograph(2, 0), Reason.NO_PART, "part"),
    ],
)  # fmt: skip
def test_faults_are_found(change: Callable[[np.ndarray], np.ndarray], reason: Reason, words: str) -> None:
    finding = check(measured(change(photograph(1, 300))), [learnt()], SIZE)
    assert finding is not None
    assert finding.reason is reason
    assert words in finding.detail
    assert ", got " in finding.detail


def test_a_noisy_picture_is_bad() -> None:
    rng = np.random.default_rng(0)
    picture = photograph(1, 301).astype(float) + rng.normal(0, 25, (HEIGHT, WIDTH))
    finding = check(measured(np.clip(picture, 0, 255).astype(np.uint8)), [learnt()], SIZE)
    assert finding is not None
    assert finding.reason is Reason.BAD_IMAGE


@settings(max_examples=40, deadline=None)
@given(st.integers(-36, 36), st.integers(-36, 36))
def test_shifts(dx: int, dy: int) -> None:
    """Within what was learnt a part is accepted; well beyond it is refused, and its place is told."""
    product = learnt()
    finding = check(measured(photograph(1, 400, (dx, dy))), [product], SIZE)
    off = max(abs(dx), abs(dy))
    if off <= product.limits.largest_shift_px - 2:
        assert finding is None
    elif off >= product.limits.largest_shift_px + 4:
        assert finding is not None
        found = match_anywhere(signature_of(measured(photograph(1, 400, (dx, dy)))), product)
        if off <= 20:  # further off too much of the picture is new
            assert finding.reason is Reason.BAD_IMAGE
            assert found.shift_px == pytest.approx((dx, dy), abs=1.5)


def test_products_keep_their_own_limits() -> None:
    """A black-and-white board may be clipped where a grey one may not."""
    binary = [np.where(photograph(5, seed) < 125, 0, 255).astype(np.uint8) for seed in range(24)]
    two = [learnt(), learn("binary", SIZE, [measured(p) for p in binary]).product]
    assert check(measured(binary[0]), two, SIZE) is None
    assert check(measured(photograph(1, 500)), two, SIZE) is None
    as_binary = np.where(photograph(1, 500) < 125, 0, 255).astype(np.uint8)
    finding = check(measured(as_binary), two, SIZE)
    assert finding is not None
    assert "board-1" in finding.detail


def test_another_size_is_no_part() -> None:
    finding = check(measured(photograph(1, 0)[:200, :200]), [learnt()], (200, 200))
    assert finding is not None
    assert (finding.reason, finding.detail) == (Reason.NO_PART, "size: wanted 480x360 (board-1), got 200x200 px")


def test_without_products_only_what_needs_none_is_checked() -> None:
    assert check(measured(photograph(2, 0)), [], SIZE) is None
    assert check(measured(np.roll(photograph(1, 0), 20, 1)), [], SIZE) is None
    finding = check(measured(np.zeros((HEIGHT, WIDTH), np.uint8)), [], SIZE)
    assert finding is not None
    assert finding.reason is Reason.BAD_IMAGE


def test_a_shift_along_stripes_can_not_be_seen_but_one_across_can() -> None:
    rng = np.random.default_rng(3)
    stripes = np.repeat(np.where(rng.random(WIDTH // 8) < 0.5, 50, 200), 8).astype(np.uint8)
    picture = np.tile(stripes, (HEIGHT, 1))
    product = learn("stripes", SIZE, [measured(picture)] * 3).product
    assert [bool(axis[0]) for axis in product.structured] == [True, False]
    assert check(measured(np.roll(picture, 20, 0)), [product], SIZE) is None
    assert check(measured(np.roll(picture, 20, 1)), [product], SIZE) is not None


def test_frames_that_teach_nothing_are_left_out_and_named() -> None:
    frames = [measured(photograph(1, 0)), measured(np.full((HEIGHT, WIDTH), 255, np.uint8)), measured(photograph(1, 1))]
    result = learn("x", SIZE, frames)
    assert [index for index, _ in result.left_out] == [1]
    assert "flat" in result.left_out[0][1].detail
    with pytest.raises(ConfigError, match="no good frame to learn from"):
        learn("x", SIZE, frames[1:2])
    with pytest.raises(ConfigError, match="no frames at all"):
        learn("x", SIZE, [])


def test_parts_far_apart_become_references_of_their_own() -> None:
    good = [measured(photograph(1, seed, (20 * (seed % 2), 0))) for seed in range(24)]
    product = learn("two places", SIZE, good).product
    assert len(product.detail) == 2
    assert product.limits.largest_shift_px == pytest.approx(4, abs=0.5)
    for dx, accepted in ((0, True), (20, True), (10, False), (31, False)):
        match = match_in_place(signature_of(measured(photograph(1, 90, (dx, 0)))), product)
        assert (match is not None) == accepted, dx
