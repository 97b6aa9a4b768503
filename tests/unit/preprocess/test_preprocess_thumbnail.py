"""Thumbnails and their difference: the C kernel against the oracle, and values that are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edge_app.errors import ConfigError
from edge_app.frame import PixelFormat
from edge_app.preprocess import Fit, Plan, Source, Tensor, Thumbnailer, _native, difference, reference
from edge_app.preprocess.thumbnail import COLUMNS, ROWS


@st.composite
def pairs(draw):
    size = draw(st.integers(1, 300))
    return tuple(draw(arrays.arrays(np.uint8, size)) for _ in range(2))


@settings(max_examples=300, deadline=None)
@given(pairs(), st.integers(-1, 512))
def test_the_kernel_gives_what_the_oracle_gives(pair, threshold):
    first, second = pair
    assert _native.difference(first, second, threshold) == reference.difference(first, second, threshold)


def test_the_largest_pictures_and_the_largest_steps_do_not_overflow():
    dark, bright = np.zeros(1 << 20, np.uint8), np.full(1 << 20, 255, np.uint8)
    half = dark.copy()
    half[::2] = 255
    assert _native.difference(bright, dark, 0) == (255, 0, 0)
    assert _native.difference(dark, half, 127) == reference.difference(dark, half, 127) == (-127, 2**19 * 255, 2**19)


def test_light_that_changes_everywhere_is_no_change():
    rng = np.random.default_rng(3)
    scene = rng.integers(40, 200, (ROWS, COLUMNS), np.uint8)
    found = difference(scene + np.uint8(30), scene, 4)
    assert (found.shift, found.mean, found.share) == (30, 0.0, 0.0)


def test_a_part_that_changes_is_counted():
    scene = np.full((ROWS, COLUMNS), 90, np.uint8)
    other = scene.copy()
    other[:12, :16] = 190
    found = difference(other, scene, 20)
    assert found.share == 12 * 16 / (ROWS * COLUMNS)
    assert found.shift == round(100 * found.share)


@pytest.mark.parametrize("pixel_format", [PixelFormat.NV12, PixelFormat.YUYV, PixelFormat.BGR8, PixelFormat.BAYER_RG8])
def test_a_thumbnail_is_the_mean_luma_of_each_part(pixel_format):
    source = Source(640, 480, pixel_format)
    whole = Plan(source, Tensor(COLUMNS, ROWS, dtype="uint8", color="GRAY"), Fit("stretch", "area"))
    frame = np.random.default_rng(5).integers(0, 256, whole.frame_bytes, np.uint8)
    assert (Thumbnailer(source)(frame) == reference.run(whole, frame)[0, 0]).all()


def test_a_thumbnail_of_a_region():
    frame = np.full((480, 640), 10, np.uint8)
    frame[100:400, 200:500] = 77
    assert (Thumbnailer(Source(640, 480, PixelFormat.GRAY8), (200, 100, 500, 400))(frame) == 77).all()


def test_frames_smaller_than_a_thumbnail_are_refused():
    with pytest.raises(ConfigError):
        Thumbnailer(Source(40, 30, PixelFormat.GRAY8))


@pytest.mark.parametrize(
    ("first", "second", "error", "words"),
    [
        (np.zeros(4, np.uint8), np.zeros(5, np.uint8), ValueError, "one size"),
        (np.zeros(0, np.uint8), np.zeros(0, np.uint8), ValueError, "one size"),
        (np.zeros(4, np.float32), np.zeros(16, np.uint8), TypeError, "bytes"),
        (np.zeros((4, 4), np.uint8)[:, ::2], np.zeros(8, np.uint8), ValueError, "contiguous"),
    ],
)
def test_what_can_not_be_compared_is_refused(first, second, error, words):
    with pytest.raises(error, match=words):
        _native.difference(first, second, 1)
