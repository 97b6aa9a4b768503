"""Frames as pictures that people can look at."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from edge_app.frame import Frame, PixelFormat

TO_BGR = {
    PixelFormat.RGB8: cv2.COLOR_RGB2BGR,
    PixelFormat.NV12: cv2.COLOR_YUV2BGR_NV12,
    PixelFormat.YUYV: cv2.COLOR_YUV2BGR_YUY2,
    PixelFormat.BAYER_RG8: cv2.COLOR_BayerRGGB2BGR,
    PixelFormat.BAYER_GB8: cv2.COLOR_BayerGBRG2BGR,
    PixelFormat.BAYER_GR8: cv2.COLOR_BayerGRBG2BGR,
    PixelFormat.BAYER_BG8: cv2.COLOR_BayerBGGR2BGR,
}


def bgr_of(frame: Frame) -> npt.NDArray[np.uint8]:
    """A frame as BGR or grey, uint8 [H, W, 3] or [H, W].

    Raises:
        ValueError: it has no pixels.
    """
    if frame.pixels is None:
        raise ValueError("a frame without pixels has no picture")
    pixels = np.asarray(frame.pixels, np.uint8)
    if frame.pixel_format is PixelFormat.YUYV:
        pixels = pixels.reshape(frame.height, frame.width, 2)
    code = TO_BGR.get(frame.pixel_format)
    return pixels if code is None else np.asarray(cv2.cvtColor(pixels, code), np.uint8)


def to_jpeg(frame: Frame, quality: int, longest_px: int | None = None) -> bytes:
    """A frame as JPEG, its longer side at most `longest_px`.

    Raises:
        ValueError: it has no pixels, or OpenCV can't encode it.
    """
    picture = bgr_of(frame)
    scale = 1.0 if longest_px is None else longest_px / max(frame.width, frame.height)
    if scale < 1:
        size = (max(1, round(frame.width * scale)), max(1, round(frame.height * scale)))
        picture = np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)
    done, encoded = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise ValueError(f"a {frame.width}x{frame.height} {frame.pixel_format} picture can't be encoded")
    return encoded.tobytes()
