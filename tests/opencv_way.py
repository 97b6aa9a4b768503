"""What OpenCV makes of a frame of any pixel format: the same work in its own steps."""

from __future__ import annotations

import cv2
import numpy as np

from edge_app.frame import PixelFormat
from edge_app.preprocess import Plan

BAYER = {
    PixelFormat.BAYER_RG8: cv2.COLOR_BayerRGGB2RGB,
    PixelFormat.BAYER_GR8: cv2.COLOR_BayerGRBG2RGB,
    PixelFormat.BAYER_GB8: cv2.COLOR_BayerGBRG2RGB,
    PixelFormat.BAYER_BG8: cv2.COLOR_BayerBGGR2RGB,
}


def rgb(kind: PixelFormat, frame: np.ndarray, width: int, height: int) -> np.ndarray:
    """An unpadded frame as uint8 [H, W, 3], red first."""
    if kind is PixelFormat.RGB8:
        return frame.reshape(height, width, 3)
    if kind is PixelFormat.BGR8:
        return cv2.cvtColor(frame.reshape(height, width, 3), cv2.COLOR_BGR2RGB)
    if kind is PixelFormat.GRAY8:
        return cv2.cvtColor(frame.reshape(height, width), cv2.COLOR_GRAY2RGB)
    if kind is PixelFormat.NV12:
        return cv2.cvtColor(frame.reshape(height * 3 // 2, width), cv2.COLOR_YUV2RGB_NV12)
    if kind is PixelFormat.YUYV:
        return cv2.cvtColor(frame.reshape(height, width, 2), cv2.COLOR_YUV2RGB_YUYV)
    return cv2.cvtColor(frame.reshape(height, width), BAYER[kind])


def pixels(plan: Plan, frame: np.ndarray, interpolation: int = cv2.INTER_LINEAR) -> np.ndarray:
    """The tensor's pixels, uint8 [H, W, C], padding included, by cvtColor, resize and copyMakeBorder."""
    picture = rgb(plan.source.pixel_format, frame, plan.source.width, plan.source.height)
    x0, y0, x1, y1 = plan.geometry.region
    picture = np.ascontiguousarray(picture[y0:y1, x0:x1])
    if plan.tensor.color == "GRAY":
        picture = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    elif plan.tensor.color == "BGR":
        picture = cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)
    g = plan.geometry
    resized = cv2.resize(picture, (g.resized_width, g.resized_height), interpolation=interpolation)
    inner = resized[g.crop_y : g.crop_y + g.inner_height, g.crop_x : g.crop_x + g.inner_width]
    right, bottom = plan.tensor.width - g.inner_width - g.pad_x, plan.tensor.height - g.inner_height - g.pad_y
    value = (plan.fit.pad_value,) * 3
    bordered = cv2.copyMakeBorder(inner, g.pad_y, bottom, g.pad_x, right, cv2.BORDER_CONSTANT, value=value)
    return bordered.reshape(plan.tensor.height, plan.tensor.width, -1)
