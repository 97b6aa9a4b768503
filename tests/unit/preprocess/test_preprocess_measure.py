"""Frame measures on pictures whose measures are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edge_app.errors import ConfigError
from edge_app.frame import PixelFormat
from edge_app.preprocess import Source, measure


def of(picture: np.ndarray, **options):
    height, width = picture.shape
    return measure(np.ascontiguousarray(picture), Source(width, height, PixelFormat.GRAY8), **options)


def edges(width_px: float, count: int = 20) -> np.ndarray:
    """`count` stripes, 50 to 200, whose edges are Gaussian-blurred steps of sigma width_px."""
    x = np.arange(600, dtype=np.float64)
    profile = np.full(600, 50.0)
    for k in range(count):
        left, right = 10 + k * 29, 24 + k * 29
        step = [0.5 * (1 + math.erf((p - left + 0.5) / width_px / 2**0.5)) for p in x]
        back = [0.5 * (1 + math.erf((p - right + 0.5) / width_px / 2**0.5)) for p in x]
        profile += 150 * (np.array(step) - np.array(back))
    return np.tile(np.rint(profile).astype(np.uint8), (400, 1))


@pytest.mark.parametrize("value", [0, 4, 5, 128, 250, 251, 255])
def test_an_even_picture(value):
    m = of(np.full((300, 500), value, np.uint8))
    assert m.mean_luma == value
    assert (m.contrast, m.noise, m.sharpness, m.edge_fraction) == (0, 0, 0, 0)
    assert m.dark_fraction == (value <= 4)
    assert m.bright_fraction == (value >= 251)
    assert (m.luma_columns == value).all()
    assert (m.edge_rows == 0).all()


def test_clipped_fractions_and_contrast():
    picture = np.full((320, 640), 100, np.uint8)
    picture[:, :160] = 2
    picture[:80, 320:] = 255
    m = of(picture)
    assert m.dark_fraction == pytest.approx(0.25, abs=0.01)
    assert m.bright_fraction == pytest.approx(0.125, abs=0.01)
    assert m.contrast == 253


@pytest.mark.parametrize("sigma", [1.0, 1.5, 2.0])
def test_sharpness_tells_the_blur(sigma):
    assert of(edges(sigma)).sharpness == pytest.approx(1 / (2 * math.sqrt(math.pi) * sigma), rel=0.12)


def test_sharpness_does_not_tell_how_many_edges_there_are():
    few, many = of(edges(1.5, count=3)), of(edges(1.5, count=20))
    assert few.sharpness == pytest.approx(many.sharpness, rel=0.02)
    assert many.edge_fraction > 5 * few.edge_fraction


def test_sharpness_survives_noise():
    noisy = edges(1.0, count=5) + np.random.default_rng(1).normal(0, 4, (400, 600))
    clean, m = of(edges(1.0, count=5)), of(np.clip(np.rint(noisy), 0, 255).astype(np.uint8))
    assert m.noise == pytest.approx(0.6745 * 4 * 2**0.5, abs=1)
    assert m.sharpness == pytest.approx(clean.sharpness, rel=0.15)


def test_motion_blur_shows_in_its_direction():
    board = np.full((600, 600), 50, np.uint8)
    board[::20], board[:, ::20] = 200, 200
    moved = np.mean([np.roll(board, k, axis=1) for k in range(6)], axis=0).astype(np.uint8)
    still, blurred = of(board), of(moved)
    assert blurred.sharpness_x < 0.5 * still.sharpness_x
    assert blurred.sharpness_y > 0.7 * still.sharpness_y


@pytest.mark.parametrize("pitch", [2, 4, 8, 16, 20, 40])
def test_lines_that_repeat_are_seen_whatever_their_pitch(pitch):
    """At 640 px, 160 rows would lie 4 px apart and pass between the lines of such a board, all of them."""
    board = np.full((640, 640), 50, np.uint8)
    board[pitch - 1 :: pitch] = 200
    m = of(board)
    assert (m.contrast, m.sharpness_y) == (150, 1.0)
    assert m.edge_fraction == pytest.approx(1 / pitch, rel=0.3)


def test_profiles_tell_a_shift():
    rng = np.random.default_rng(5)
    board = np.repeat(np.repeat(rng.integers(0, 255, (40, 40), np.uint8), 16, axis=0), 16, axis=1)
    moved = np.roll(board, (12, 20), axis=(0, 1))
    a, b = of(board), of(moved)
    assert (a.luma_columns.size, a.luma_rows.size) == (640, 157)
    for of_a, of_b, step, shift in (
        (a.luma_columns, b.luma_columns, 1, 20),
        (a.edge_columns, b.edge_columns, 1, 20),
        (a.luma_rows, b.luma_rows, 4, 12),
    ):
        scores = [np.corrcoef(np.roll(of_a, k), of_b)[0, 1] for k in range(-20, 21)]
        assert (int(np.argmax(scores)) - 20) * step == shift


def test_row_and_column_profiles_are_means():
    picture = np.random.default_rng(2).integers(0, 256, (157, 640), np.uint8)
    m = of(picture)
    assert (m.luma_columns.shape, m.luma_rows.shape) == ((640,), (157,))
    np.testing.assert_allclose(m.luma_columns, picture.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(m.luma_rows, picture.mean(axis=1), rtol=1e-5)


def test_large_frames_are_sampled_at_full_resolution():
    """Stripes of one px stay sharp in a 12 Mpixel frame: steps are taken between neighbours, not between samples."""
    picture = np.full((3000, 4096), 50, np.uint8)
    picture[:, ::2] = 200
    m = of(picture)
    assert (m.luma_columns.size, m.luma_rows.size) == (640, 157)
    assert m.sharpness_x == pytest.approx(1.0)


def test_the_same_board_in_every_format():
    """A gray board measures alike whatever format carries it (limited-range Y'CbCr to within rounding)."""
    gray = edges(1.5)
    height, width = gray.shape
    luma = np.rint(gray * (219 / 255) + 16).astype(np.uint8)
    frames = {
        PixelFormat.BGR8: gray.repeat(3), PixelFormat.RGB8: gray.repeat(3), PixelFormat.GRAY8: gray,
        PixelFormat.NV12: np.concatenate([luma.ravel(), np.full(width * height // 2, 128, np.uint8)]),
        PixelFormat.YUYV: np.stack([luma, np.full_like(luma, 128)], axis=2),
    }  # fmt: skip
    wanted = of(gray)
    for kind, frame in frames.items():
        m = measure(np.ascontiguousarray(frame), Source(width, height, kind))
        assert m.mean_luma == pytest.approx(wanted.mean_luma, abs=0.6), kind
        assert m.contrast == pytest.approx(wanted.contrast, abs=2), kind
        assert m.sharpness == pytest.approx(wanted.sharpness, rel=0.05), kind


def test_a_region_is_measured_alone():
    picture = np.full((400, 600), 10, np.uint8)
    picture[100:200, 300:400] = 90
    m = of(picture, region=(300, 100, 400, 200))
    assert m.mean_luma == 90
    assert m.luma_rows.shape == (100,)


def test_impossible_regions_and_short_buffers_are_refused():
    with pytest.raises(ConfigError, match="can't be measured"):
        of(np.zeros((100, 100), np.uint8), region=(50, 50, 150, 90))
    with pytest.raises(ConfigError, match="can't be measured"):
        of(np.zeros((100, 100), np.uint8), region=(50, 50, 50, 90))
    with pytest.raises(ValueError, match="at least"):
        measure(np.zeros(10, np.uint8), Source(100, 100, PixelFormat.GRAY8))
