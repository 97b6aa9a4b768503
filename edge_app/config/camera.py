"""`camera:` of a pipeline. One model per camera type; `type` tells them apart."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edge_app.config.base import Section, SourcePath, YamlPath
from edge_app.frame import PixelFormat


class CameraSection(Section):
    """What every camera has."""

    rate_fps: float | None = Field(
        None, gt=0, le=10_000, title="Rate", description="Frames per second; null: as fast as frames can be had."
    )


class FolderCamera(CameraSection):
    """Pictures of a folder, as a camera."""

    type: Literal["folder"]
    path: YamlPath = Field(title="Folder", description="Folder with the pictures, or one picture.")
    pattern: str = Field(
        "*", title="Pattern", description="Glob on file names; files that are no pictures by their ending are passed over."
    )
    order: Literal["name", "modified", "shuffle"] = Field(
        "name", title="Order", description="By name (numbers as numbers), by time of change, or shuffled by `seed`."
    )
    seed: int = Field(0, title="Seed", description="For `order: shuffle`.")
    loop: bool = Field(False, title="Loop", description="Start again after the last picture.")
    pixel_format: Literal[PixelFormat.BGR8, PixelFormat.RGB8, PixelFormat.GRAY8] = Field(
        PixelFormat.BGR8, title="Pixel format", description="What pictures are decoded to."
    )


class VideoCamera(CameraSection):
    """A video file, an RTSP stream or a V4L2 device, through OpenCV."""

    type: Literal["video"]
    path: SourcePath = Field(title="Source", description="File, rtsp:// URL, /dev/videoN or a device number.")
    loop: bool = Field(False, title="Loop", description="Files only: start again at the end.")
    live: bool | None = Field(
        None, title="Live", description="Whether frames come in their own time; null: true for streams and devices."
    )
    width: int | None = Field(None, gt=0, title="Width", description="Devices only: asked of the driver, px.")
    height: int | None = Field(None, gt=0, title="Height", description="Devices only: asked of the driver, px.")
    fourcc: str | None = Field(
        None, min_length=4, max_length=4, title="FourCC", description="Devices only: asked of the driver, e.g. NV12."
    )
    stale_after: int = Field(
        5, ge=1, title="Stale after", description="Live sources: equal pictures in a row that count as stale."
    )
    timeout_ms: int = Field(
        2000, ge=50, title="Time-out", description="Live sources: no frame for this long is CAMERA_LOST."
    )
    reconnect_max_s: float = Field(
        10.0, gt=0, title="Longest back-off", description="Live sources: the pause between attempts doubles up to this."
    )


class SyntheticCamera(CameraSection):
    """A printed-circuit-board line drawn by seed: the true verdict of every frame is known."""

    type: Literal["synthetic"]
    product: int = Field(1, ge=0, title="Product", description="Which board layout runs on the line.")
    seed: int = Field(0, ge=0, title="First seed", description="Parts are drawn from this seed on.")
    frames: int | None = Field(None, ge=1, title="Frames", description="Stop after so many; null: endless.")
    defect_rate: float = Field(0.5, ge=0, le=1, title="Defect rate", description="Share of parts with defects.")
    condition: Literal[
        "normal", "lens_cap", "lamp_off", "defocus", "shifted", "empty", "other_product"
    ] = Field("normal", title="Condition", description="A fault of the station, for trying the frame guard.")


Camera = Annotated[FolderCamera | VideoCamera | SyntheticCamera, Field(discriminator="type")]
