"""BGR pictures in any pixel format a camera may deliver, so that every format can be had from pictures and drawings.

YUV is BT.601 in limited range, as OpenCV writes it. NV12 has colour for blocks of 2x2 pixels and YUYV for pairs, so
the last column (and for NV12 the last row) of a picture with an odd size is cut off.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from edge_app.camera.base import PixelPool, Pixels
from edge_app.frame import PixelFormat

_FIRST_ROW_BGR = {  # which of B, G, R the sensor sees at (0, 0) and (0, 1); the second row follows from them
    PixelFormat.BAYER_RG8: (2, 1),
    PixelFormat.BAYER_BG8: (0, 1),
    PixelFormat.BAYER_GR8: (1, 2),
    PixelFormat.BAYER_GB8: (1, 0),
}
_SECOND_ROW_BGR = {
    PixelFormat.BAYER_RG8: (1, 0),
    PixelFormat.BAYER_BG8: (1, 2),
    PixelFormat.BAYER_GR8: (0, 1),
    PixelFormat.BAYER_GB8: (2, 1),
}


def stored_size(pixel_format: PixelFormat, width: int, height: int) -> tuple[int, int]:
    """Width and height of a picture once it is in this format: even where the format needs it."""
    if pixel_format is PixelFormat.NV12:
        return width & ~1, height & ~1
    if pixel_format is PixelFormat.YUYV:
        return width & ~1, height
    return width, height


def array_shape(pixel_format: PixelFormat, width: int, height: int) -> tuple[int, ...]:
    """Shape of `Frame.pixels`."""
    if pixel_format in (PixelFormat.BGR8, PixelFormat.RGB8):
        return height, width, 3
    if pixel_format is PixelFormat.NV12:
        return height * 3 // 2, width
    return height, width * pixel_format.bytes_per_pixel


class Converter:
    """Converts BGR pictures into buffers of a pool.

    Args:
        pixel_format: what comes out.
        row_align_bytes: rows are padded to a multiple of this, as many sensors do; 1 for none.
    """

    def __init__(self, pixel_format: PixelFormat, pool: PixelPool, row_align_bytes: int = 1) -> None:
        self._format = pixel_format
        self._pool = pool
        self._align = row_align_bytes
        self._planar: npt.NDArray[np.uint8] | None = None

    def convert(self, bgr: Pixels) -> tuple[Pixels, int, int]:
        """From uint8 [H, W, 3] to pixels, width and height. Raises ValueError if cutting off leaves nothing."""
        width, height = stored_size(self._format, bgr.shape[1], bgr.shape[0])
        if not width or not height:
            raise ValueError(f"a picture of {bgr.shape[1]}x{bgr.shape[0]} px is too small for {self._format.value}")
        shape = array_shape(self._format, width, height)
        used = int(np.prod(shape[1:]))
        out = self._pool.lend(shape, -(-used // self._align) * self._align)
        self._fill(bgr[:height, :width], out)
        return out, width, height

    def _fill(self, bgr: Pixels, out: Pixels) -> None:
        if self._format is PixelFormat.BGR8:
            np.copyto(out, bgr)
        elif self._format is PixelFormat.RGB8:
            cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB, dst=out)
        elif self._format is PixelFormat.GRAY8:
            cv2.cvtColor(bgr, cv2.COLOR_BGR2GRAY, dst=out)
        elif self._format is PixelFormat.YUYV:
            pairs = np.ndarray((*bgr.shape[:2], 2), np.uint8, buffer=out.base, strides=(out.strides[0], 2, 1))
            cv2.cvtColor(bgr, cv2.COLOR_BGR2YUV_YUYV, dst=pairs)
        elif self._format is PixelFormat.NV12:
            self._fill_nv12(bgr, out)
        else:
            _fill_bayer(bgr, out, self._format)

    def _fill_nv12(self, bgr: Pixels, out: Pixels) -> None:
        height, width = bgr.shape[:2]
        if self._planar is None or self._planar.shape != out.shape:
            self._planar = np.empty(out.shape, np.uint8)
        cv2.cvtColor(bgr, cv2.COLOR_BGR2YUV_I420, dst=self._planar)
        out[:height] = self._planar[:height]
        colour = self._planar[height:].reshape(2, height // 2, width // 2)
        out[height:, 0::2] = colour[0]
        out[height:, 1::2] = colour[1]


def _fill_bayer(bgr: Pixels, out: Pixels, pixel_format: PixelFormat) -> None:
    for row, channels in enumerate((_FIRST_ROW_BGR[pixel_format], _SECOND_ROW_BGR[pixel_format])):
        for column, channel in enumerate(channels):
            out[row::2, column::2] = bgr[row::2, column::2, channel]
