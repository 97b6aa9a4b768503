"""Where a frame's pixels land in the tensor, and the way back for boxes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from edge_app.errors import ConfigError, FrameMisfit

FitMode = Literal["letterbox", "letterbox_topleft", "crop", "stretch"]
Region = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Geometry:
    """The region of a frame is resized, and a window of the resized picture is put into the tensor. All in px.

    Attributes:
        frame_width, frame_height: of the frame.
        region: x0, y0, x1, y1 of the frame that is looked at (x1, y1 excluded).
        resized_width, resized_height: size that the region is resized to.
        crop_x, crop_y: first column and row of the resized picture that is kept.
        pad_x, pad_y: where it starts in the tensor.
        inner_width, inner_height: size of what is kept.
    """

    frame_width: int
    frame_height: int
    region: Region
    resized_width: int
    resized_height: int
    crop_x: int
    crop_y: int
    pad_x: int
    pad_y: int
    inner_width: int
    inner_height: int

    @property
    def scale_x(self) -> float:
        """Frame px per tensor px along a row."""
        return (self.region[2] - self.region[0]) / self.resized_width

    @property
    def scale_y(self) -> float:
        """Frame px per tensor px along a column."""
        return (self.region[3] - self.region[1]) / self.resized_height

    def to_source_px(self, boxes: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Boxes [N, 4] (x0, y0, x1, y1) of the tensor as float32 boxes of the frame, clipped to the frame.

        x_frame = (x - pad_x + crop_x) * scale_x + region_x0; edges, not pixel centres, so no half pixels.
        """
        given = np.asarray(boxes, np.float64).reshape(-1, 4)
        shift, scale, origin, limit = _terms(self)
        moved: npt.NDArray[np.float64] = np.minimum(np.maximum((given + shift) * scale + origin, 0), limit)
        return moved.astype(np.float32)

    def to_tensor_px(self, boxes: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Boxes [N, 4] of the frame as float32 boxes of the tensor, not clipped: the inverse of to_source_px."""
        given = np.asarray(boxes, np.float64).reshape(-1, 4)
        shift, scale, origin, _ = _terms(self)
        moved: npt.NDArray[np.float64] = (given - origin) / scale - shift
        return moved.astype(np.float32)


Terms = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]


@lru_cache(maxsize=64)
def _terms(g: Geometry) -> Terms:
    """Shift, scale, origin and limit of (x0, y0, x1, y1): the same for every frame of a camera."""
    pairs = (
        (g.crop_x - g.pad_x, g.crop_y - g.pad_y), (g.scale_x, g.scale_y), g.region[:2], (g.frame_width, g.frame_height)
    )  # fmt: skip
    shift, scale, origin, limit = (np.array(pair * 2, np.float64) for pair in pairs)
    return shift, scale, origin, limit


def fit_geometry(
    frame_width: int,
    frame_height: int,
    tensor_width: int,
    tensor_height: int,
    mode: FitMode,
    region: Region | None = None,
    shorter_side: int | None = None,
) -> Geometry:
    """The geometry of a fit.

    letterbox: the largest picture of the same shape that fits, sides rounded as Ultralytics does (half to even), in
    the middle; an odd pad is one larger at the right and the bottom. letterbox_topleft: the same, at the top left (as
    YOLOX). stretch: fills the tensor. crop: the shorter side is resized to `shorter_side` (default: just so that it
    covers the tensor), the longer one in proportion, rounded down, and the centre is kept, as torchvision's
    Resize + CenterCrop.

    Raises:
        FrameMisfit: the region is not inside the frame.
        ConfigError: the crop does not cover the tensor.
    """
    region = region or (0, 0, frame_width, frame_height)
    x0, y0, x1, y1 = region
    if not (0 <= x0 < x1 <= frame_width and 0 <= y0 < y1 <= frame_height):
        raise FrameMisfit(
            "the region to look at is not inside the frame",
            wanted=f"0 <= x0 < x1 <= {frame_width} and 0 <= y0 < y1 <= {frame_height}",
            got=f"x0, y0, x1, y1 = {region}",
        )
    width, height = x1 - x0, y1 - y0
    crop_x = crop_y = pad_x = pad_y = 0
    if mode == "crop":
        resized_width, resized_height = _covering(width, height, tensor_width, tensor_height, shorter_side)
        crop_x = round((resized_width - tensor_width) / 2)
        crop_y = round((resized_height - tensor_height) / 2)
        inner_width, inner_height = tensor_width, tensor_height
    elif mode == "stretch":
        resized_width, resized_height = inner_width, inner_height = tensor_width, tensor_height
    elif mode in ("letterbox", "letterbox_topleft"):
        ratio = min(tensor_width / width, tensor_height / height)
        resized_width = inner_width = min(max(round(width * ratio), 1), tensor_width)
        resized_height = inner_height = min(max(round(height * ratio), 1), tensor_height)
        if mode == "letterbox":
            pad_x, pad_y = (tensor_width - inner_width) // 2, (tensor_height - inner_height) // 2
    else:
        raise ConfigError("unknown fit", wanted="letterbox, letterbox_topleft, crop or stretch", got=repr(mode))
    return Geometry(
        frame_width, frame_height, region, resized_width, resized_height, crop_x, crop_y, pad_x, pad_y,
        inner_width, inner_height,
    )  # fmt: skip


def _covering(
    width: int, height: int, tensor_width: int, tensor_height: int, shorter_side: int | None
) -> tuple[int, int]:
    if shorter_side is None:
        ratio = max(tensor_width / width, tensor_height / height)
        return max(int(width * ratio + 1e-6), tensor_width), max(int(height * ratio + 1e-6), tensor_height)
    if width <= height:
        resized = shorter_side, int(shorter_side * height / width)
    else:
        resized = int(shorter_side * width / height), shorter_side
    if resized[0] < tensor_width or resized[1] < tensor_height:
        raise ConfigError(
            "the resized picture does not cover the tensor",
            wanted=f"at least {tensor_width}x{tensor_height} px",
            got=f"{resized[0]}x{resized[1]} px from shorter_side {shorter_side}",
        )
    return resized
