"""A camera frame: pixels that keep their identity and capture time from birth."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
import numpy.typing as npt

YuvMatrix = Literal["bt601", "bt709"]
YuvRange = Literal["limited", "full"]


class PixelFormat(StrEnum):
    """Pixel formats a camera may deliver. Bayer names are the sensor's (GenICam's), not OpenCV's."""

    BGR8 = "BGR8"
    RGB8 = "RGB8"
    GRAY8 = "GRAY8"
    NV12 = "NV12"
    YUYV = "YUYV"
    BAYER_RG8 = "BayerRG8"
    BAYER_GB8 = "BayerGB8"
    BAYER_GR8 = "BayerGR8"
    BAYER_BG8 = "BayerBG8"

    @property
    def bytes_per_pixel(self) -> int:
        """Bytes that one pixel takes in a row of the first plane."""
        return {PixelFormat.BGR8: 3, PixelFormat.RGB8: 3, PixelFormat.YUYV: 2}.get(self, 1)


class FrameStatus(StrEnum):
    """What the camera says of a frame. Only COMPLETE frames are inspected; the others are sealed UNKNOWN."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    STALE = "stale"
    MISSED = "missed"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class TrueDefect:
    """A defect that is known to be in a picture (synthetic camera): label and tight box x0, y0, x1, y1 in pixels."""

    label: str
    box_px: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Frame:
    """One exposure.

    `pixels` is a C-contiguous-by-row uint8 array: [H, W, 3] for BGR8 and RGB8, [H, W] for GRAY8 and Bayer,
    [H * 3 // 2, W] for NV12 (luma rows, then interleaved chroma), [H, W * 2] for YUYV. Rows may be padded (strides).
    It is None for every status but COMPLETE.
    """

    frame_id: int
    trigger_id: int
    t_capture_us: int
    """UTC, for what leaves the node."""
    t_capture_mono_us: int
    """Monotonic clock, for the deadline."""
    status: FrameStatus
    pixel_format: PixelFormat
    width: int
    height: int
    pixels: npt.NDArray[np.uint8] | None = None
    name: str = ""
    """Where it came from, for people: a file's name, a seed."""
    truth: tuple[TrueDefect, ...] | None = None
    """Known defects (synthetic camera); None where the truth is not known."""
    note: str = ""
    """Why the status is not COMPLETE, for the log and the alarm."""
    part_id: str | None = None
    yuv_matrix: YuvMatrix = "bt601"
    """NV12 and YUYV: how colours were coded."""
    yuv_range: YuvRange = "limited"
