"""The camera seam: what the line asks of every camera, and what cameras share to keep it.

A camera never hides anything: a broken picture comes as an INCOMPLETE frame, the same picture again as STALE, silence
as LOST, and a frame that was never delivered leaves a hole in the frame ids, which the line turns into MISSED frames
(`missed_between`). Only what makes the whole camera useless is an error (CameraError).
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from edge_app.clock import monotonic_to_utc_us, monotonic_us
from edge_app.frame import Frame, FrameStatus, PixelFormat, TrueDefect, YuvMatrix, YuvRange

Pixels = npt.NDArray[np.uint8]


class Camera(Protocol):
    """A source of frames. `open`, `read`, `recycle` and `close` belong to one thread each; `stop` to any."""

    @property
    def live(self) -> bool:
        """Frames come in their own time and do not wait for the line."""

    @property
    def simulated(self) -> bool:
        """The frames are not the plant's: files, folders, drawings."""

    @property
    def pixel_format(self) -> PixelFormat:
        """Of every frame."""

    @property
    def width(self) -> int | None:
        """Pixels; None before `open`, or where pictures may differ in size."""

    @property
    def height(self) -> int | None:
        """Pixels; None before `open`, or where pictures may differ in size."""

    @property
    def period_us(self) -> int | None:
        """Time between frames, where it is known."""

    @property
    def trouble(self) -> str | None:
        """What keeps frames from coming at this moment, for the alarm; None while they come."""

    def open(self) -> None:
        """Connect. Raises CameraError if the source can't be had at all."""

    def read(self) -> Frame | None:
        """The next frame, waiting for it; None at the end of the source or after `stop`.

        Never raises for a bad picture: its frame says INCOMPLETE, STALE or LOST, and why in `note`.
        """

    def recycle(self, frame: Frame) -> None:
        """Take back the pixels of a frame that nobody looks at any more; the next frames are written there."""

    def stop(self) -> None:
        """End reading: a `read` that waits returns None at once."""

    def close(self) -> None:
        """Let go of the device. After this `open` may be called again."""


class Births:
    """Gives frames their identity: ids from 1, and both clocks at the moment of birth."""

    def __init__(
        self, pixel_format: PixelFormat, yuv_matrix: YuvMatrix = "bt601", yuv_range: YuvRange = "limited"
    ) -> None:
        self._pixel_format = pixel_format
        self._yuv_matrix: YuvMatrix = yuv_matrix
        self._yuv_range: YuvRange = yuv_range
        self._last_id = 0

    def skip(self, frames: int = 1) -> None:
        """Frames that existed but can't be delivered: their ids are used up, so the hole shows."""
        self._last_id += frames

    def complete(
        self,
        pixels: Pixels,
        width: int,
        height: int,
        *,
        name: str = "",
        truth: tuple[TrueDefect, ...] | None = None,
        t_mono_us: int | None = None,
    ) -> Frame:
        """A whole frame, captured at `t_mono_us` of the monotonic clock; None: now."""
        return self._frame(FrameStatus.COMPLETE, width, height, t_mono_us, pixels=pixels, name=name, truth=truth)

    def failed(self, status: FrameStatus, note: str, *, name: str = "", t_mono_us: int | None = None) -> Frame:
        """A frame without a picture; `note` says why."""
        return self._frame(status, 0, 0, t_mono_us, name=name, note=note)

    def _frame(
        self,
        status: FrameStatus,
        width: int,
        height: int,
        t_mono_us: int | None,
        *,
        pixels: Pixels | None = None,
        name: str = "",
        truth: tuple[TrueDefect, ...] | None = None,
        note: str = "",
    ) -> Frame:
        self._last_id += 1
        captured = monotonic_us() if t_mono_us is None else t_mono_us
        return Frame(
            frame_id=self._last_id,
            trigger_id=self._last_id,  # a free-running camera triggers itself
            t_capture_us=monotonic_to_utc_us(captured),
            t_capture_mono_us=captured,
            status=status,
            pixel_format=self._pixel_format,
            width=width,
            height=height,
            pixels=pixels,
            name=name,
            truth=truth,
            note=note,
            yuv_matrix=self._yuv_matrix,
            yuv_range=self._yuv_range,
        )


def missed_between(last: Frame | None, frame: Frame) -> Iterator[Frame]:
    """One MISSED frame for every id that should have come between `last` (None: the start) and `frame`.

    They carry the capture time of the frame that showed the hole: theirs is not known.
    Raises ValueError if the ids do not rise, since that is a fault of the camera's code, not of the plant.
    """
    last_id = last.frame_id if last is not None else 0
    if frame.frame_id <= last_id:
        raise ValueError(f"frame ids: wanted more than {last_id}, got {frame.frame_id}")
    missing = range(last_id + 1, frame.frame_id)
    for frame_id in missing:
        yield replace(
            frame,
            frame_id=frame_id,
            trigger_id=frame_id,
            status=FrameStatus.MISSED,
            pixels=None,
            truth=None,
            name="",
            part_id=None,
            note=f"frame {frame_id} never came; the next one was {frame.frame_id}",
        )


class Pace:
    """Lets frames go at a rate. A frame that is late does not make the next ones hurry."""

    def __init__(self, rate_fps: float | None) -> None:
        self.period_us = None if rate_fps is None else round(1e6 / rate_fps)
        self._due_s: float | None = None

    def wait(self, stopped: threading.Event) -> None:
        """Wait until the next frame is due, or until `stopped` is set."""
        if self.period_us is None:
            return
        now = time.monotonic()
        if self._due_s is not None and now < self._due_s:
            stopped.wait(self._due_s - now)
            now = max(now, self._due_s)
        self._due_s = now + self.period_us / 1e6


class PixelPool:
    """Buffers for pixels, used again and again: in the steady state a frame costs no allocation.

    Only what was lent comes back, and only once; foreign arrays are left alone. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[tuple[int, ...], list[Pixels]] = {}
        self._lent: weakref.WeakValueDictionary[int, Pixels] = weakref.WeakValueDictionary()

    def lend(self, shape: tuple[int, ...], row_bytes: int | None = None) -> Pixels:
        """A uint8 array of `shape` whose rows are `row_bytes` apart (None: no padding); its content is left over."""
        used = int(np.prod(shape[1:]))
        stride = used if row_bytes is None else row_bytes
        with self._lock:
            free = self._free.get((*shape, stride))
            pixels = free.pop() if free else _padded(shape, stride)
            self._lent[id(pixels)] = pixels
        return pixels

    def take_back(self, pixels: Pixels | None) -> None:
        """Return a buffer."""
        if pixels is None:
            return
        with self._lock:
            if self._lent.pop(id(pixels), None) is pixels:
                self._free.setdefault((*pixels.shape, pixels.strides[0]), []).append(pixels)


def _padded(shape: tuple[int, ...], stride: int) -> Pixels:
    inner = np.empty(shape[1:], np.uint8).strides
    store = np.empty(shape[0] * stride, np.uint8)
    return np.ndarray(shape, np.uint8, buffer=store, strides=(stride, *inner))


Item = TypeVar("Item")


class Silence(Exception):
    """Nothing came within the time given."""


class Handover(Generic[Item]):
    """A short queue between a reader's thread and the line, with an end, an error and a stop."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._stopped = False
        self._error: Exception | None = None

    def put(self, item: Item, *, wait: bool) -> bool:
        """Hand an item over; False if it was not taken: the queue is full (and `wait` is false) or stopped."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._stopped or len(self._items) < self._depth)
            if self._stopped or len(self._items) >= self._depth:
                return False
            self._items.append(item)
            self._changed.notify_all()
        return True

    def get(self, timeout_s: float | None = None) -> Item | None:
        """The next item; None at the end or after `stop`.

        Raises Silence after `timeout_s`, and what the reader died of, once its last item is fetched.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._stopped or self._ended or bool(self._items), timeout_s):
                raise Silence
            if self._stopped:
                return None
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            if self._error is not None:
                raise self._error
            return None

    def end(self, error: Exception | None = None) -> None:
        """No more will come; `error` says why if it is not the plain end."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def stop(self) -> None:
        """Wake and turn away both sides."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
