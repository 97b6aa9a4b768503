from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from edge_app.camera.base import Births
from edge_app.camera.live import LiveSource
from edge_app.config.camera import VideoCamera
from edge_app.engine import source_of
from edge_app.frame import PixelFormat
from edge_app.preprocess import Fit, Plan, Tensor

DEVICE: dict[str, Any] = {"type": "video", "path": "/dev/video0", "pixel_format": PixelFormat.NV12}

LUMA, CHROMA = (100 - 16) * 255 / 219, 255 / 224


def rgb_of(births: Births, luma: int, u: int, v: int) -> list[int]:
    """What the preprocessing makes of an even NV12 picture."""
    pixels = np.full((12, 8), luma, np.uint8)
    pixels[8:, 0::2], pixels[8:, 1::2] = u, v
    frame = births.complete(pixels, 8, 8)
    plan = Plan(source_of(frame), Tensor(8, 8, dtype="uint8", layout="NHWC"), Fit(mode="stretch"))
    out = plan.tensor.empty()
    plan.prepare(out)
    plan.run(pixels, out)
    return [int(value) for value in out[0, 4, 4]]


# R = Y + 1.402 V, B = Y + 1.772 U (BT.601) or 1.5748 and 1.8556 (BT.709); limited range stretches 219 and 224 steps.
@pytest.mark.parametrize(
    ("matrix", "span", "wanted"),
    [
        ("bt601", "full", [100 + 1.402 * 40, 100 - 0.344 * 20 - 0.714 * 40, 100 + 1.772 * 20]),
        ("bt709", "full", [100 + 1.5748 * 40, 100 - 0.1873 * 20 - 0.4681 * 40, 100 + 1.8556 * 20]),
        ("bt601", "limited", [LUMA + 1.402 * 40 * CHROMA, None, LUMA + 1.772 * 20 * CHROMA]),
        ("bt709", "limited", [LUMA + 1.5748 * 40 * CHROMA, None, LUMA + 1.8556 * 20 * CHROMA]),
    ],
)
def test_a_device_says_how_its_colours_are_coded(matrix: Any, span: Any, wanted: list[float | None]) -> None:
    section = VideoCamera(**DEVICE, yuv_matrix=matrix, yuv_range=span)
    got = rgb_of(LiveSource(section)._births, 100, 128 + 20, 128 + 40)
    for value, should in zip(got, wanted, strict=True):
        assert should is None or abs(value - should) <= 1


@pytest.mark.parametrize("change", [{"pixel_format": PixelFormat.BGR8}, {"path": "film.mp4"}, {"path": "rtsp://x/y"}])
def test_what_opencv_decodes_has_no_coding_of_its_own(change: dict[str, Any]) -> None:
    VideoCamera(**{**DEVICE, **change})
    with pytest.raises(ValidationError, match="go with a device"):
        VideoCamera(**{**DEVICE, **change}, yuv_matrix="bt709")
