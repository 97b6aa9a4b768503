"""Video through OpenCV: opening captures of any kind, and video files as a camera (streams and devices: `live`).

Rotation that a file asks for is not applied: boxes are in pixels as they are coded.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import cv2
import numpy as np

from edge_app import threads
from edge_app.camera.base import Births, Handover, Pace, PixelPool, Pixels
from edge_app.camera.convert import Converter, array_shape
from edge_app.config.base import without_password
from edge_app.config.camera import VideoCamera
from edge_app.errors import CameraError
from edge_app.frame import Frame, FrameStatus, PixelFormat

READ_AHEAD = 3
OPEN_TIMEOUT_MS = 10_000
REACH_TIMEOUT_S = 1.0
FILE_READ_TIMEOUT_MS = 30_000
JOIN_S = 1.2
"""How long `close` waits for a reading thread: a little over the read time-out of live sources."""
_RAW_FOURCC = {PixelFormat.NV12: "NV12", PixelFormat.YUYV: "YUYV"}
"""What a V4L2 device delivers as it is; anything else is converted from BGR."""
_environment = threading.Lock()


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture of a video, in the camera's pixel format."""

    pixels: Pixels
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Flaw:
    """What stands in for a picture that could not be had."""

    note: str


class Capture:
    """An open cv2 capture that fills buffers of a pool. Used by one thread at a time.

    Args:
        live: frames come in their own time: decode without delay, give up a read after `read_timeout_ms`.
    """

    def __init__(self, section: VideoCamera, pool: PixelPool, *, live: bool, read_timeout_ms: int) -> None:
        self._section = section
        self._pool = pool
        self._converter = Converter(section.pixel_format, pool, section.row_align_bytes)
        self._device = is_device(section.path)
        self._raw = self._device and section.pixel_format in _RAW_FOURCC
        self._bgr: Pixels | None = None
        """Where frames are decoded to before they are converted."""
        self._capture = cv2.VideoCapture()
        if self._device:
            self._open_device()
        else:
            self._open_ffmpeg(live, read_timeout_ms)

    @property
    def width(self) -> int:
        """Of the source, px (before cutting to even sizes)."""
        return round(self._capture.get(cv2.CAP_PROP_FRAME_WIDTH))

    @property
    def height(self) -> int:
        """Of the source, px."""
        return round(self._capture.get(cv2.CAP_PROP_FRAME_HEIGHT))

    @property
    def rate_fps(self) -> float | None:
        """As the source announces it, or None."""
        rate = self._capture.get(cv2.CAP_PROP_FPS)
        return rate if 0 < rate <= 1000 else None

    @property
    def frames(self) -> int:
        """How many frames a file announces; 0 if it does not."""
        return max(0, round(self._capture.get(cv2.CAP_PROP_FRAME_COUNT)))

    @property
    def position_ms(self) -> float:
        """Time stamp of the frame grabbed last: since the start of a stream; of V4L2, on the monotonic clock."""
        return float(self._capture.get(cv2.CAP_PROP_POS_MSEC))

    def grab(self) -> bool:
        """Wait for the next frame; False at the end, on an error, or after the read time-out."""
        return bool(self._capture.grab())

    def take(self) -> Shot | Flaw:
        """The frame grabbed last."""
        try:
            return self._take_raw() if self._raw else self._take_bgr()
        except (cv2.error, ValueError) as error:
            return Flaw(f"{without_password(self._section.path)}: a frame could not be decoded: {error}")

    def release(self) -> None:
        """Let go of the source."""
        self._capture.release()

    def _take_bgr(self) -> Shot | Flaw:
        direct = self._section.pixel_format is PixelFormat.BGR8 and self._section.row_align_bytes == 1
        target = self._pool.lend((self.height, self.width, 3)) if direct else self._scratch()
        ok, image = cast(tuple[bool, Pixels | None], self._capture.retrieve(target))
        if direct and image is not target:
            self._pool.take_back(target)
        if not ok or image is None:
            return Flaw(f"{without_password(self._section.path)}: a frame could not be decoded")
        if direct:
            return Shot(image, image.shape[1], image.shape[0])
        self._bgr = image
        return Shot(*self._converter.convert(image))

    def _scratch(self) -> Pixels:
        if self._bgr is None:
            self._bgr = np.empty((self.height, self.width, 3), np.uint8)
        return self._bgr

    def _take_raw(self) -> Shot | Flaw:
        """Bytes as the driver gives them. OpenCV tells no stride: rows are taken as unpadded."""
        width, height = self.width, self.height
        pixels = self._pool.lend(array_shape(self._section.pixel_format, width, height))
        image = pixels.reshape(height, width, 2) if self._section.pixel_format is PixelFormat.YUYV else pixels
        ok, got = self._capture.retrieve(image)
        if ok and got is image:
            return Shot(pixels, width, height)
        self._pool.take_back(pixels)
        size = "nothing" if got is None else f"an array of {got.shape}"
        source = without_password(self._section.path)
        return Flaw(f"{source}: wanted an array of {image.shape} from the driver, got {size}")

    def _open_ffmpeg(self, live: bool, read_timeout_ms: int) -> None:
        section = self._section
        unreachable = _unreachable(section.path)  # asked first: FFmpeg's own attempt can't be stopped
        wanted = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, OPEN_TIMEOUT_MS, cv2.CAP_PROP_READ_TIMEOUT_MSEC, read_timeout_ms]
        if live:  # more decoding threads hold back as many frames
            wanted += [cv2.CAP_PROP_N_THREADS, 1]
        with _environment:  # OpenCV takes FFmpeg's options from nowhere else; it reads them while it opens
            os.environ["OPENCV_FFMPEG_CAPTURE_OPTIONS"] = f"rtsp_transport;{section.transport}"
            try:
                opened = unreachable is None and self._capture.open(section.path, cv2.CAP_FFMPEG, wanted)
            finally:
                del os.environ["OPENCV_FFMPEG_CAPTURE_OPTIONS"]
        if not opened:
            raise CameraError(
                "can't open the video",
                where=without_password(section.path),
                wanted="a video that FFmpeg can read",
                got=unreachable or _why_not(section.path),
                remedy="check camera.path; for a stream also the camera's address, user and password",
            )
        self._capture.set(cv2.CAP_PROP_ORIENTATION_AUTO, 0)

    def _open_device(self) -> None:
        section = self._section
        device = int(section.path) if section.path.isdecimal() else section.path
        if not self._capture.open(device, cv2.CAP_V4L2):
            raise CameraError(
                "can't open the camera",
                where=_device_file(section.path),
                wanted="a V4L2 capture device that no other process holds",
                got=_why_not(_device_file(section.path)),
                remedy="see `v4l2-ctl --list-devices`; the user must be in group video",
            )
        fourcc = section.fourcc or _RAW_FOURCC.get(section.pixel_format)
        asked = {
            cv2.CAP_PROP_FOURCC: None if fourcc is None else cv2.VideoWriter.fourcc(*fourcc),
            cv2.CAP_PROP_FRAME_WIDTH: section.width,
            cv2.CAP_PROP_FRAME_HEIGHT: section.height,
            cv2.CAP_PROP_FPS: section.rate_fps,
            cv2.CAP_PROP_CONVERT_RGB: 0 if self._raw else 1,
        }
        for key, value in asked.items():
            if value is not None:
                self._capture.set(key, value)
        self._check_device(fourcc)

    def _check_device(self, fourcc: str | None) -> None:
        """A driver takes what it likes; pictures in another format or size than asked for would be misread."""
        section = self._section
        got_fourcc = round(self._capture.get(cv2.CAP_PROP_FOURCC)).to_bytes(4, "little").decode("ascii", "replace")
        wanted = (fourcc or got_fourcc, section.width or self.width, section.height or self.height)
        got = (got_fourcc, self.width, self.height)
        if self._raw and wanted[0] != _RAW_FOURCC[section.pixel_format]:
            wanted = (_RAW_FOURCC[section.pixel_format], *wanted[1:])
        if wanted != got:
            self.release()
            raise CameraError(
                "the camera's driver does not give what was asked for",
                where=_device_file(section.path),
                wanted="{} {}x{}".format(*wanted),
                got="{} {}x{}".format(*got),
                remedy="see `v4l2-ctl --list-formats-ext`; set camera.fourcc, width and height to one of those",
            )


class VideoFileSource:
    """A video file as a camera: it waits for the line. Implements Camera.

    Its end is the end of the frames (unless it loops). A file that ends before the frame it announces, or in which
    frames can't be decoded, says so by INCOMPLETE frames.
    """

    live = False
    simulated = True
    trouble: str | None = None

    def __init__(self, section: VideoCamera) -> None:
        self._section = section
        self._pace = Pace(section.rate_fps)
        self.pixel_format = section.pixel_format
        self.period_us = self._pace.period_us
        self.width: int | None = None
        self.height: int | None = None
        self._pool = PixelPool()
        self._births = Births(section.pixel_format)
        self._stopped = threading.Event()
        self._shots: Handover[Shot | Flaw] = Handover(READ_AHEAD)
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Open the file and decode its first frame. Raises CameraError if there is none."""
        capture = self._open_capture()
        first = first_shot(capture, self._section)
        self.width, self.height = first.width, first.height
        self._stopped.clear()
        self._pace = Pace(self._section.rate_fps)
        self._births = Births(self._section.pixel_format)
        self._shots = Handover(READ_AHEAD)
        self._thread = threads.daemon(self._read_ahead, "video", (capture, first, self._shots))
        self._thread.start()

    def read(self) -> Frame | None:
        """Born when it is due, not when it was decoded."""
        shot = self._shots.get()
        self._pace.wait(self._stopped)
        if shot is None or self._stopped.is_set():
            return None
        name = Path(self._section.path).name
        if isinstance(shot, Flaw):
            return self._births.failed(FrameStatus.INCOMPLETE, shot.note, name=name)
        return self._births.complete(shot.pixels, shot.width, shot.height, name=name)

    def recycle(self, frame: Frame) -> None:
        """Take the pixels' buffer back."""
        self._pool.take_back(frame.pixels)

    def stop(self) -> None:
        """End reading, from any thread."""
        self._stopped.set()
        self._shots.stop()

    def close(self) -> None:
        """End the reading thread; one that hangs in a dead network file system is left to itself."""
        self.stop()
        if self._thread is not None:
            self._thread.join(JOIN_S)
            self._thread = None

    def _open_capture(self) -> Capture:
        return Capture(self._section, self._pool, live=False, read_timeout_ms=FILE_READ_TIMEOUT_MS)

    def _read_ahead(self, capture: Capture, first: Shot, shots: Handover[Shot | Flaw]) -> None:
        try:
            shot: Shot | Flaw = first
            seen = 0
            while shots.put(shot, wait=True):
                seen += 1
                if not capture.grab():
                    missing = _ended_early(self._section.path, seen, capture.frames)
                    if missing is not None and not shots.put(missing, wait=True):
                        return
                    if not self._section.loop:
                        shots.end()
                        return
                    capture.release()
                    capture, seen = self._open_capture(), 0
                    shot = first_shot(capture, self._section)
                else:
                    shot = capture.take()
        except Exception as error:
            shots.end(error)  # raised again in `read`
        finally:
            capture.release()


def _ended_early(path: str, seen: int, announced: int) -> Flaw | None:
    """Containers without an index only estimate their length: one part in a hundred (and 2 frames) is let pass."""
    if announced - seen <= max(2, announced // 100):
        return None
    return Flaw(f"{Path(path).name}: the file is cut off or damaged: {seen} of {announced} frames could be read")


def first_shot(capture: Capture, section: VideoCamera) -> Shot:
    """The first frame of a capture just opened. Raises CameraError if it gives none."""
    shot = capture.take() if capture.grab() else Flaw("no frame came")
    if isinstance(shot, Shot):
        return shot
    capture.release()
    raise CameraError(
        "the video has no frame to give",
        where=without_password(section.path),
        wanted="at least one frame",
        got=shot.note,
        remedy="play it with another program; a file may be cut off, a camera held by another process",
    )


def is_device(source: str) -> bool:
    """Whether a source is a V4L2 device: a number or a device file."""
    return source.isdecimal() or source.startswith("/dev/video")


def _device_file(source: str) -> str:
    return f"/dev/video{source}" if source.isdecimal() else source


def _why_not(source: str) -> str:
    """What can be found out about a source that did not open; OpenCV only says that it did not."""
    if "://" in source:
        return "the host answers, but gives no video under this path and user"
    try:
        size = os.stat(source).st_size
    except OSError as error:
        return error.strerror or str(error)
    if not os.access(source, os.R_OK, effective_ids=True):
        return os.strerror(errno.EACCES)
    return "an empty file" if size == 0 and not source.startswith("/dev/") else "it could not be opened as a video"


def _unreachable(source: str) -> str | None:
    """Why the host of a URL can't be reached; None if it can, or if there is nothing to ask."""
    try:
        url = urlsplit(source)
        port = url.port or {"rtsp": 554, "rtsps": 322, "http": 80, "https": 443}.get(url.scheme)
    except ValueError as error:
        return f"not a URL: {error}"
    if "://" not in source or url.scheme in ("udp", "rtp", "srt") or url.hostname is None or port is None:
        return None
    try:
        socket.create_connection((url.hostname, port), timeout=REACH_TIMEOUT_S).close()
    except (OSError, UnicodeError) as error:  # the latter of names that no host can have
        return f"no connection to {url.hostname}:{port}: {error}"
    return None
