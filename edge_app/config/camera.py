"""`camera:` of a pipeline. One model per camera type; `type` tells them apart."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edge_app.config.base import Section, SourcePath, YamlPath
from edge_app.frame import PixelFormat, YuvMatrix, YuvRange


class CameraSection(Section):
    """What every camera has."""

    rate_fps: float | None = Field(
        None,
        ge=1e-6,
        le=10_000,
        title="Rate",
        description="Frames per second; null: as fast as frames can be had. For live sources: the rate at which frames"
        " are expected, by which silence and holes are told; null: not known.",
    )
    pixel_format: PixelFormat = Field(
        PixelFormat.BGR8,
        title="Pixel format",
        description="What frames are delivered in. Pictures, files, streams and drawings are converted to it; from"
        " V4L2 devices NV12 and YUYV are taken as they are.",
    )
    row_align_bytes: int = Field(
        1,
        ge=1,
        le=4096,
        title="Row alignment",
        description="Rows of pixels are padded to a multiple of this many bytes, as many sensors do; not V4L2's.",
    )


class FolderCamera(CameraSection):
    """Pictures of a folder, as a camera. EXIF orientation is not applied: boxes are in pixels as they are stored."""

    type: Literal["folder"]
    path: YamlPath = Field(
        title="Folder",
        description="Folder with the pictures, one picture, or a .txt list with a picture's path a line (relative to"
        " the list; # begins a comment).",
    )
    pattern: str = Field(
        "*", title="Pattern", description="Glob on file names; what is no picture by its ending is passed over."
    )
    order: Literal["name", "modified", "shuffle", "listed"] = Field(
        "name",
        title="Order",
        description="By name (numbers as numbers), by time of change, shuffled by `seed`, or as a .txt list has them.",
    )
    seed: int = Field(0, ge=0, title="Seed", description="For `order: shuffle`.")
    loop: bool = Field(False, title="Loop", description="Start again after the last picture.")
    preload: bool = Field(
        False, title="Preload", description="Decode all pictures into memory first, to measure the line without it."
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
        None,
        min_length=4,
        max_length=4,
        title="FourCC",
        description="Devices only: asked of the driver, e.g. MJPG; null: the one of pixel_format for NV12 and YUYV.",
    )
    yuv_matrix: YuvMatrix = Field(
        "bt601",
        title="YUV matrix",
        description="Devices that deliver NV12 or YUYV only: how they code colours; HD sensors often bt709. A wrong one"
        " shifts colours by up to a tenth. `v4l2-ctl --get-fmt-video` tells.",
    )
    yuv_range: YuvRange = Field(
        "limited", title="YUV range", description="Likewise: luma from 16 to 235 (limited), or 0 to 255 (full)."
    )
    transport: Literal["tcp", "udp"] = Field(
        "tcp", title="RTSP transport", description="tcp loses nothing; udp loses packets rather than time."
    )
    stale_after: int = Field(
        5, ge=1, title="Stale after", description="Live sources: so many equal pictures in a row count as stale."
    )
    timeout_ms: int | None = Field(
        None,
        ge=50,
        title="Time-out",
        description="Live sources: no frame for this long is CAMERA_LOST; null: two periods of rate_fps, else 2000.",
    )
    reconnect_max_s: float = Field(
        10.0, gt=0, title="Longest back-off", description="Live sources: the pause between attempts doubles up to this."
    )


    @model_validator(mode="after")
    def _colour_coding_belongs_to_raw_devices(self) -> VideoCamera:
        raw = self.pixel_format in (PixelFormat.NV12, PixelFormat.YUYV)
        device = self.path.isdecimal() or self.path.startswith("/dev/video")
        if (self.yuv_matrix, self.yuv_range) != ("bt601", "limited") and not (raw and device):
            raise ValueError(
                "yuv_matrix and yuv_range go with a device and pixel_format NV12 or YUYV; all else is decoded by"
                " OpenCV, which writes bt601, limited"
            )
        return self


class GigeCamera(CameraSection):
    """A GigE Vision camera, through Aravis (gir1.2-aravis-0.8 and python3-gi of the system)."""

    type: Literal["gige"]
    path: str = Field(
        min_length=1, title="Camera", description="Its address, its name, or Aravis's id; `arv-tool-0.8` lists them."
    )
    pixel_format: PixelFormat = Field(
        PixelFormat.BAYER_RG8, title="Pixel format", description="Asked of the camera, and taken as it comes; not NV12."
    )
    features: dict[str, bool | int | float | str] = Field(
        default_factory=dict,
        title="Features",
        description="GenICam features, set in this order at each connection, e.g. Width, ExposureTime, TriggerMode: On;"
        " `arv-tool-0.8 control` tells what there is.",
    )
    stale_after: int = Field(
        5, ge=1, title="Stale after", description="So many equal pictures in a row count as stale."
    )
    timeout_ms: int | None = Field(
        None,
        ge=50,
        title="Time-out",
        description="No frame for this long is CAMERA_LOST; null: two periods of rate_fps, else 2000. Where parts"
        " trigger the camera: the longest pause of the line.",
    )
    reconnect_max_s: float = Field(
        10.0, gt=0, title="Longest back-off", description="The pause between attempts to connect doubles up to this."
    )

    @model_validator(mode="after")
    def _gige_has_it(self) -> GigeCamera:
        if self.pixel_format is PixelFormat.NV12:
            raise ValueError("pixel_format: GigE Vision cameras have no NV12; see `arv-tool-0.8` for what yours has")
        if self.row_align_bytes != 1:
            raise ValueError("row_align_bytes: pictures of a GigE Vision camera are taken as they come: remove it")
        return self


class SyntheticCamera(CameraSection):
    """A printed-circuit-board line drawn by seed: the true verdict of every frame is known."""

    type: Literal["synthetic"]
    product: int = Field(
        85, ge=0, title="Product", description="Which board runs on the line; odd (even ones are for training)."
    )
    seed: int = Field(
        0, ge=0, title="First part", description="Number of the first part; parts are drawn from seeds kept for lines."
    )
    frames: int | None = Field(None, ge=1, title="Frames", description="Stop after so many; null: endless.")
    defect_rate: float = Field(0.5, ge=0, le=1, title="Defect rate", description="Share of parts with defects.")
    condition: Literal[
        "normal", "lens_cap", "lamp_off", "defocus", "shifted", "empty", "other_product"
    ] = Field("normal", title="Condition", description="A fault of the station, for trying the frame guard.")


class MirrorCamera(CameraSection):
    """What a mirror would see, drawn from pictures of garments: to try a pipeline that decides over many frames."""

    type: Literal["mirror"]
    path: YamlPath = Field(
        title="Pictures", description="A .txt list of LABEL/FILE, relative to it, or a folder of folders LABEL."
    )
    seed: int = Field(0, ge=0, title="Seed", description="Who comes when, and how the room looks.")
    visits: int | None = Field(None, ge=1, title="Visits", description="Stop after so many; null: every picture once.")
    width: int = Field(360, ge=64, le=4096, title="Width", description="px")
    height: int = Field(480, ge=48, le=4096, title="Height", description="px")


Camera = Annotated[
    FolderCamera | VideoCamera | SyntheticCamera | MirrorCamera | GigeCamera, Field(discriminator="type")
]
