"""Every pixel format, read back by OpenCV (an independent decoder), must show the picture it was made from."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_app.camera.base import PixelPool, Pixels
from edge_app.camera.convert import Converter, array_shape, stored_size
from edge_app.frame import PixelFormat

# OpenCV names a Bayer pattern by its second row: its "BayerBG" is the sensor's RGGB.
BACK = {
    PixelFormat.RGB8: cv2.COLOR_RGB2BGR,
    PixelFormat.NV12: cv2.COLOR_YUV2BGR_NV12,
    PixelFormat.YUYV: cv2.COLOR_YUV2BGR_YUYV,
    PixelFormat.BAYER_RG8: cv2.COLOR_BayerBG2BGR,
    PixelFormat.BAYER_BG8: cv2.COLOR_BayerRG2BGR,
    PixelFormat.BAYER_GR8: cv2.COLOR_BayerGB2BGR,
    PixelFormat.BAYER_GB8: cv2.COLOR_BayerGR2BGR,
}


def smooth_colours(height: int, width: int) -> Pixels:
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = (60 + 100 * x / width, 200 - 120 * y / height, 90 + 60 * (x + y) / (width + height))
    return np.stack(planes, axis=2).astype(np.uint8)


@pytest.mark.parametrize("pixel_format", BACK)
@pytest.mark.parametrize("align", [1, 64])
def test_the_picture_comes_back(pixel_format: PixelFormat, align: int) -> None:
    bgr = smooth_colours(48, 70)
    pixels, width, height = Converter(pixel_format, PixelPool(), align).convert(bgr)
    assert (width, height) == (70, 48)
    assert pixels.shape == array_shape(pixel_format, 70, 48)
    assert pixels.strides[0] % align == 0
    packed = np.ascontiguousarray(pixels)
    if pixel_format is PixelFormat.YUYV:
        packed = packed.reshape(48, 70, 2)
    back = cv2.cvtColor(packed, BACK[pixel_format])
    error = np.abs(back.astype(int) - bgr.astype(int))[4:-4, 4:-4]  # demosaicing invents the edge
    assert error.max() <= 6


def test_gray_is_opencvs_luma_and_bgr_is_a_copy() -> None:
    bgr = smooth_colours(5, 7)
    gray, _, _ = Converter(PixelFormat.GRAY8, PixelPool(), 8).convert(bgr)
    np.testing.assert_array_equal(gray, cv2.cvtColor(bgr, cv2.COLOR_BGR2GRAY))
    same, _, _ = Converter(PixelFormat.BGR8, PixelPool(), 32).convert(bgr)
    np.testing.assert_array_equal(same, bgr)
    assert same.strides == (32, 3, 1)


@given(st.sampled_from(PixelFormat), st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 4, 16]))
def test_any_size(pixel_format: PixelFormat, width: int, height: int, align: int) -> None:
    bgr = np.full((height, width, 3), 77, np.uint8)
    expected = stored_size(pixel_format, width, height)
    converter = Converter(pixel_format, PixelPool(), align)
    if 0 in expected:
        with pytest.raises(ValueError, match="too small"):
            converter.convert(bgr)
        return
    pixels, got_width, got_height = converter.convert(bgr)
    assert (got_width, got_height) == expected
    assert pixels.shape == array_shape(pixel_format, *expected)


def test_steady_state_allocates_nothing() -> None:
    pool = PixelPool()
    converter = Converter(PixelFormat.NV12, pool, 64)
    bgr = smooth_colours(16, 16)
    addresses = set()
    for _ in range(5):
        pixels, _, _ = converter.convert(bgr)
        addresses.add(pixels.ctypes.data)
        pool.take_back(pixels)
    assert len(addresses) == 1
