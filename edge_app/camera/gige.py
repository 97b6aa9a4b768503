"""GigE Vision cameras through Aravis, which speaks the protocol; its Python side is GObject introspection (PyGObject).

Each buffer says by its status whether the whole picture came, and by its frame id which pictures never did. Aravis asks
again for packets that were lost on the way before it gives a picture up as incomplete.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_app.camera.convert import array_shape
from edge_app.camera.live import LEAST_READ_TIMEOUT_MS, Arrival, Link, LiveSource
from edge_app.camera.video import Flaw, Shot
from edge_app.clock import monotonic_us
from edge_app.config.camera import GigeCamera
from edge_app.errors import CameraError
from edge_app.frame import PixelFormat

if TYPE_CHECKING:
    from types import ModuleType

BUFFERS = 8
OLDEST_US = 1_000_000
"""A picture that seems to be older is one whose clock was set."""
GENICAM = {PixelFormat.GRAY8: "Mono8", PixelFormat.YUYV: "YUV422_8"}
"""Where GenICam's name is another one than ours."""
SIXTEEN_BITS = 0xFFFF
LOOK_US = 500_000
"""Between two looks whether the camera still is there, while no picture comes."""
LARGEST_HOLE = 1000
"""Frames. A larger step, or one back, is a camera that counts anew: how many pictures went with that, nobody knows."""
ANEW = 2
"""The step to the first id of a new count: one picture at least is missing."""
ATTEMPTS = 3
"""The first pictures of a connection may be cut: the stream begins in the middle of one."""


def aravis() -> ModuleType:
    """Aravis's module. Raises CameraError: it is not installed."""
    try:
        import gi

        gi.require_version("Aravis", "0.8")
        from gi.repository import Aravis
    except (ImportError, ValueError) as error:
        raise CameraError(
            "Aravis, which speaks to GigE Vision cameras, can't be loaded",
            where="camera.type",
            wanted="Aravis 0.8 and PyGObject",
            got=str(error),
            remedy="apt-get install gir1.2-aravis-0.8 python3-gi, and make the virtual environment with"
            " --system-site-packages",
        ) from error
    module: ModuleType = Aravis
    return module


class GigeSource(LiveSource):
    """A GigE Vision camera. Implements Camera; see LiveSource for what becomes of outages and holes."""

    def __init__(self, section: GigeCamera) -> None:
        super().__init__(section)
        self._gige = section

    def _connect(self) -> Link:
        """Raises CameraError: no camera, it has not what is asked for, or no picture comes."""
        timeout_ms = max(LEAST_READ_TIMEOUT_MS, 2 * (self.period_us or 0) // 1000, self._gige.timeout_ms or 0)
        link = GigeLink(self._gige, timeout_ms * 1000)
        self.simulated = link.fake
        self.width, self.height = link.width, link.height
        return link


class GigeLink:
    """One connection to a camera, with the picture's size once it is open. Implements Link."""

    def __init__(self, section: GigeCamera, timeout_us: int) -> None:
        self._section, self._timeout_us = section, timeout_us
        self._aravis: Any = aravis()
        self._last_id: int | None = None
        self._waiting: Arrival | None = None
        self._gone = threading.Event()
        """The camera does not answer any more, or was started anew: no picture will come, however long the wait."""
        from gi.repository import GLib

        try:
            self._open()
        except GLib.Error as error:
            raise CameraError(
                "the GigE Vision camera can't be had",
                where=section.path,
                wanted="a camera that answers, has these features, and that nobody else controls",
                got=error.message,
                remedy="see `arv-tool-0.8 -a ADDRESS control`; check cable, address and camera.features",
            ) from error
        self._waiting = self._first()

    def _open(self) -> None:
        section = self._section
        camera = self._camera = self._aravis.Camera.new(section.path)
        gone = self._gone
        camera.get_device().connect("control-lost", lambda _device: gone.set())
        self.fake = (camera.get_vendor_name(), camera.get_model_name()) == ("Aravis", "Fake")
        """Aravis's own, whose pictures are no plant's."""
        for name, value in section.features.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            camera.get_device().set_features_from_string(f"{name}={text}")
        wanted = GENICAM.get(section.pixel_format, section.pixel_format.value)
        there = list(camera.dup_available_pixel_formats_as_strings())
        if wanted not in there:
            raise CameraError(
                "the camera has not this pixel format",
                where=f"{section.path}: camera.pixel_format",
                wanted=f"one of {', '.join(there)}",
                got=wanted,
                remedy="name one of them (Mono8 is GRAY8 here)",
            )
        camera.set_pixel_format_from_string(wanted)
        region = camera.get_region()
        self.width, self.height = region.width, region.height
        self._stream = camera.create_stream(None, None)
        payload = camera.get_payload()
        for _ in range(BUFFERS):
            self._stream.push_buffer(self._aravis.Buffer.new_allocate(payload))
        camera.start_acquisition()

    def _first(self) -> Arrival | None:
        """Whatever comes first, so that a camera that gives nothing is told at once; None: it waits for triggers."""
        if self._section.features.get("TriggerMode") == "On":
            return None
        for _ in range(ATTEMPTS):
            arrival = self.next()
            if arrival is not None:
                return arrival
        self.release()
        raise CameraError(
            "the camera gives no picture",
            where=self._section.path,
            wanted=f"one within {ATTEMPTS * self._timeout_us / 1e6:g} s",
            got="none",
            remedy='let UDP from it through the firewall; if parts trigger it, camera.features: {TriggerMode: "On"}',
        )

    def next(self) -> Arrival | None:
        """See Link."""
        if self._waiting is not None:
            arrival, self._waiting = self._waiting, None
            return arrival
        buffer = self._popped()
        if buffer is None:
            return None
        try:
            return Arrival(self._shot(buffer), self._step(buffer.get_frame_id()), _captured_us(buffer))
        finally:
            self._stream.push_buffer(buffer)

    def _popped(self) -> Any:
        """The next buffer of the stream; None: the time is up, or the camera has gone."""
        until_us = monotonic_us() + self._timeout_us
        while not self._gone.is_set() and (left_us := until_us - monotonic_us()) > 0:
            buffer = self._stream.timeout_pop_buffer(min(left_us, LOOK_US))
            if buffer is not None:
                return buffer
        return None

    def release(self) -> None:
        """See Link. A camera that is gone can't be told; its heartbeat lets it go."""
        from gi.repository import GLib

        try:
            self._camera.stop_acquisition()
        except GLib.Error:
            pass
        finally:
            del self._stream, self._camera  # closes the sockets and gives up control

    def _shot(self, buffer: Any) -> Shot | Flaw:
        status = buffer.get_status()
        if status != self._aravis.BufferStatus.SUCCESS:
            return Flaw(f"{self._section.path}: frame {buffer.get_frame_id()} did not come whole: {status.value_nick}")
        width, height = buffer.get_image_width(), buffer.get_image_height()
        shape = array_shape(self._section.pixel_format, width, height)
        data = buffer.get_data()
        if len(data) < np.prod(shape):
            return Flaw(f"{self._section.path}: wanted {np.prod(shape)} bytes of {width}x{height} px, got {len(data)}")
        if padding := _row_padding(buffer):
            return Flaw(f"{self._section.path}: {padding} bytes behind each row; set a width without any")
        return Shot(np.frombuffer(data, np.uint8, int(np.prod(shape))).reshape(shape), width, height)

    def _step(self, frame_id: int) -> int:
        last, self._last_id = self._last_id, frame_id
        return 1 if last is None else step_between(last, frame_id)


def step_between(last_id: int, frame_id: int) -> int:
    """How many frames on; 0: the same again.

    Ids are of 16 bits and leave out 0, so 1 follows 65535 (GigE Vision 1.x), or of 64 bits (2.x: they never wrap in
    practice). Any other way back is a stream that was started anew, which begins at 1.
    """
    step = frame_id - last_id
    if step < 0 and last_id <= SIXTEEN_BITS:
        step += SIXTEEN_BITS
    return step if 0 <= step <= LARGEST_HOLE else ANEW


def _row_padding(buffer: Any) -> int:
    """Bytes that a camera puts behind each row; Aravis before 0.8.23 does not tell."""
    if not hasattr(buffer, "get_image_padding"):
        return 0
    across, _ = buffer.get_image_padding()
    return int(across)


def _captured_us(buffer: Any) -> int:
    """When its first packet came, on the monotonic clock; Aravis tells it in UTC."""
    now_us = monotonic_us()
    age_us = (time.time_ns() - buffer.get_system_timestamp()) // 1000
    return now_us - age_us if 0 <= age_us <= OLDEST_US else now_us
