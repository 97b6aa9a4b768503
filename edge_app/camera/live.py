"""Live cameras: frames in their own time, from sources that fail. RTSP streams and V4L2 devices; see also gige.py."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

import cv2

from edge_app import threads
from edge_app.camera.base import Births, Handover, PixelPool, Pixels, Silence
from edge_app.camera.convert import stored_size
from edge_app.camera.video import JOIN_S, Capture, Flaw, Shot, first_shot, is_device
from edge_app.clock import monotonic_us
from edge_app.config.base import without_password
from edge_app.config.camera import GigeCamera, VideoCamera
from edge_app.errors import CameraError
from edge_app.frame import Frame, FrameStatus

QUEUE = 4
"""Frames that wait for the line at most; one that finds no place leaves a hole in the ids."""
DEFAULT_TIMEOUT_MS = 2000
LEAST_READ_TIMEOUT_MS = 1000
FIRST_BACK_OFF_S = 0.25
LONGEST_HOLE_S = 5.0
"""A larger step of the time stamps is a clock that was set, not frames that were lost."""
OLDEST_STAMP_US = 1_000_000
HELD_UP_US = 100_000
"""Less is a network's jitter."""
STALL = 3
"""Times the usual pause between two frames: from there on the stream stood still."""
CATCHES_UP_US = 5_000_000
"""A stream is live again after that, whatever its time stamps say: some cameras' are not worth more."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A frame that came over a link."""

    shot: Shot | Flaw
    step: int
    """How many frames on from the last one: 0 is the same again, more than 1 a hole."""
    t_mono_us: int


class Link(Protocol):
    """One connection to a live source."""

    def next(self) -> Arrival | None:
        """The next frame; None: the connection broke, or no frame came in time."""

    def release(self) -> None:
        """Let go of the source."""


class LiveSource:
    """A stream or device as a camera. Implements Camera.

    A thread of its own reads, so that a read that hangs never holds up the line or a stop. It tells
    - an outage: one LOST frame once nothing came for `timeout_ms` (or two periods of `rate_fps`); meanwhile it
      connects again and again, with pauses that double up to `reconnect_max_s`, and `trouble` says what is wrong;
    - the same frame again (STALE): a time stamp that stands still, or more than `stale_after` equal pictures in a row;
    - holes: frames for which the line had no place, and with `rate_fps` those that the time stamps show to be missing;
      one frame where a connection broke and the next one was there before anything was LOST.

    Frames count from the first `read` on.
    """

    live = True
    simulated = False

    def __init__(self, section: VideoCamera | GigeCamera) -> None:
        self._section = section
        self.pixel_format = section.pixel_format
        self.period_us = None if section.rate_fps is None else round(1e6 / section.rate_fps)
        self.width: int | None = None
        self.height: int | None = None
        self._silence_s = silence_ms(section) / 1000
        self._pool = PixelPool()
        self._born = threading.Lock()
        """Held while a frame gets its id and its place in the queue, so that ids leave in their order."""
        self._births = self._new_births()
        self._frames: Handover[Frame] = Handover(QUEUE)
        self._reading = threading.Event()
        self._stopped = threading.Event()
        self._lost = False
        self._broke = False
        """The connection did, and no frame has come since."""
        self._why = ""
        self._thread: threading.Thread | None = None
        self._last = LastPicture(self._pool, section.stale_after)

    @property
    def trouble(self) -> str | None:
        """What is wrong while no frames come; None while they do."""
        return self._why or f"{without_password(self._section.path)}: no frame comes" if self._lost else None

    def open(self) -> None:
        """Connect, and wait for one frame. Raises CameraError."""
        link = self._connect()
        self._stopped.clear()
        self._reading.clear()
        self._births = self._new_births()
        self._frames = Handover(QUEUE)
        self._lost, self._broke, self._why = False, False, ""
        self._thread = threads.daemon(self._watch, "live", (link,))
        self._thread.start()

    def read(self) -> Frame | None:
        """The next frame, or one LOST frame per outage."""
        self._reading.set()
        try:
            frame = self._frames.get(None if self._lost else self._silence_s)
        except Silence:
            return self._lose()
        if self._lost and frame is not None:
            self._lost, self._why = False, ""
        return frame

    def recycle(self, frame: Frame) -> None:
        """Take the pixels' buffer back."""
        if frame.pixels is not None:
            self._last.let_go(frame.pixels)

    def stop(self) -> None:
        """End reading, from any thread."""
        self._stopped.set()
        self._frames.stop()

    def close(self) -> None:
        """End the reading thread; one that hangs in a driver or a dead connection is left to itself."""
        self.stop()
        if self._thread is not None:
            self._thread.join(JOIN_S)
            self._thread = None

    def _lose(self) -> Frame | None:
        with self._born:
            try:
                return self._frames.get(0)  # it came at the last moment
            except Silence:
                self._lost = True
                silence_ms = round(self._silence_s * 1000)
                why = self._why or "still connected"
                note = f"{without_password(self._section.path)}: no frame for {silence_ms} ms; {why}"
                return self._births.failed(FrameStatus.LOST, note, name=self._name)

    @property
    def _name(self) -> str:
        return without_password(self._section.path)

    def _new_births(self) -> Births:
        if isinstance(self._section, VideoCamera):
            return Births(self._section.pixel_format, self._section.yuv_matrix, self._section.yuv_range)
        return Births(self._section.pixel_format)

    def _connect(self) -> Link:
        """A link that has given one frame: what opens but gives none is no camera. Raises CameraError."""
        assert isinstance(self._section, VideoCamera)
        timeout_ms = max(LEAST_READ_TIMEOUT_MS, 2 * (self.period_us or 0) // 1000)
        capture = Capture(self._section, self._pool, live=True, read_timeout_ms=timeout_ms)
        shot = first_shot(capture, self._section)
        self._pool.take_back(shot.pixels)
        self.width, self.height = stored_size(self.pixel_format, capture.width, capture.height)
        return VideoLink(capture, self._section)

    def _watch(self, link: Link | None) -> None:
        """The reading thread: frames of one connection after the other."""
        try:
            while link is not None:
                try:
                    self._follow(link)
                finally:
                    link.release()
                link = self._reconnect()
        except Exception as error:
            self._frames.end(error)  # raised again in `read`

    def _follow(self, link: Link) -> None:
        """Frames of one connection, until it breaks."""
        self._last.forget()
        self._why = ""
        while not self._stopped.is_set():
            arrival = link.next()
            if arrival is None:
                self._why = f"{self._name}: the connection broke, or no frame came in time"
                self._broke = self._reading.is_set()
                return
            if self._reading.is_set():
                self._bear(arrival)
            elif isinstance(arrival.shot, Shot):
                self._pool.take_back(arrival.shot.pixels)

    def _bear(self, arrival: Arrival) -> None:
        """Give a frame its id and its place in the queue."""
        shot, step, t_mono_us = arrival.shot, arrival.step, arrival.t_mono_us
        stale = step == 0 or (isinstance(shot, Shot) and self._last.seen_again(shot.pixels))
        with self._born:
            untold = self._broke and not self._lost
            self._broke = False
            self._births.skip(max(0, step - 1) + untold)
            if isinstance(shot, Flaw):
                frame = self._births.failed(FrameStatus.INCOMPLETE, shot.note, name=self._name, t_mono_us=t_mono_us)
            elif stale:
                why = "its time stamp stands still" if step == 0 else "its picture repeats to the last bit"
                note = f"{self._name}: the same frame again: {why}"
                frame = self._births.failed(FrameStatus.STALE, note, name=self._name, t_mono_us=t_mono_us)
            else:
                frame = self._births.complete(
                    shot.pixels, shot.width, shot.height, name=self._name, t_mono_us=t_mono_us
                )
            taken = self._frames.put(frame, wait=False)
        if isinstance(shot, Shot) and (stale or not taken):
            self._last.let_go(shot.pixels)

    def _reconnect(self) -> Link | None:
        """A new connection, however long it takes; None after `stop`."""
        pause_s = FIRST_BACK_OFF_S
        while not self._stopped.wait(pause_s):
            try:
                return self._connect()
            except CameraError as error:
                pause_s = min(2 * pause_s, self._section.reconnect_max_s)
                self._why = f"{error.where}: {error.what} ({error.got}); next attempt in {pause_s:g} s"
        return None


class VideoLink:
    """An open capture of a stream or device. Implements Link."""

    def __init__(self, capture: Capture, section: VideoCamera) -> None:
        self._capture, self._device = capture, is_device(section.path)
        self._stamps, self._network = Stamps(section.rate_fps), Network()

    def next(self) -> Arrival | None:
        """See Link."""
        if not self._capture.grab():
            return None
        t_mono_us, step = self._captured_at(), self._stamps.step(self._capture.position_ms)
        return Arrival(self._capture.take(), step, t_mono_us)

    def release(self) -> None:
        """See Link."""
        self._capture.release()

    def _captured_at(self) -> int:
        """V4L2 stamps frames on the monotonic clock when they are exposed; others count from their arrival.

        Those that a stalled network held up are older than that: the picture of a part would be of the one before it.
        """
        now_us = monotonic_us()
        stamp_us = round(self._capture.position_ms * 1000)
        if self._device:
            return stamp_us if 0 <= now_us - stamp_us <= OLDEST_STAMP_US else now_us
        return now_us - self._network.held_up_us(now_us, stamp_us)


class Network:
    """What a stream's time stamps say about its way here: after a stall, frames that waited come all at once."""

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None
        """Arrival and time stamp of the last frame."""
        self._usual_us = 0
        self._held_us = self._stalled_us = 0

    def held_up_us(self, now_us: int, stamp_us: int) -> int:
        """How much later than usual a frame came; 0 of one that is live, or where time stamps say nothing."""
        last, self._last = self._last, (now_us, stamp_us)
        if last is None or stamp_us <= last[1]:
            self._held_us = 0
            return 0
        pause_us = now_us - last[0]
        late_us = pause_us - (stamp_us - last[1])
        if pause_us >= HELD_UP_US and 0 < STALL * self._usual_us < pause_us:
            self._held_us += late_us
            self._stalled_us = now_us
        elif self._held_us:
            self._held_us += late_us  # less with each frame of the burst
        else:
            self._usual_us = pause_us
        if self._held_us < HELD_UP_US or now_us - self._stalled_us > CATCHES_UP_US:
            self._held_us = 0
        return self._held_us


class Stamps:
    """Time stamps of one connection's frames."""

    def __init__(self, rate_fps: float | None) -> None:
        self._period_ms = None if rate_fps is None else 1000 / rate_fps
        self._last_ms: float | None = None
        self._advancing = False

    def step(self, stamp_ms: float) -> int:
        """How many frames on from the last one this is: 0 is the same again, more than 1 a hole.

        Stamps that never move say nothing: some sources have none. Without a rate every step is 1.
        """
        last_ms, self._last_ms = self._last_ms, stamp_ms
        if last_ms is None or stamp_ms <= 0:
            return 1
        passed_ms = stamp_ms - last_ms
        if passed_ms == 0:
            return 0 if self._advancing else 1
        self._advancing = True
        if self._period_ms is None or not 0 < passed_ms <= 1000 * LONGEST_HOLE_S:
            return 1
        return max(1, round(passed_ms / self._period_ms))


class LastPicture:
    """Tells equal pictures in a row by comparing each with the one before, whose buffer is kept back until then."""

    def __init__(self, pool: PixelPool, stale_after: int) -> None:
        self._pool = pool
        self._stale_after = stale_after
        self._lock = threading.Lock()
        self._last: Pixels | None = None
        self._let_go = False
        self._equal = 0

    def seen_again(self, pixels: Pixels) -> bool:
        """Whether this picture is one of more than `stale_after` equal ones in a row. It is the last picture now."""
        last = self._last
        self._equal = self._equal + 1 if last is not None and equal(last, pixels) else 0
        self._replace(pixels)
        return self._equal >= self._stale_after

    def let_go(self, pixels: Pixels) -> None:
        """Nobody else looks at these pixels any more."""
        with self._lock:
            if pixels is self._last:
                self._let_go = True
                return
        self._pool.take_back(pixels)

    def forget(self) -> None:
        """Compare the next picture with nothing."""
        self._equal = 0
        self._replace(None)

    def _replace(self, pixels: Pixels | None) -> None:
        with self._lock:
            last, free = self._last, self._let_go
            self._last, self._let_go = pixels, False
        if free:
            self._pool.take_back(last)


def equal(one: Pixels, two: Pixels) -> bool:
    """Whether two pictures are the same to the last bit; a few rows are compared first, since they mostly differ."""
    if one.shape != two.shape:
        return False
    return cv2.norm(one[::16], two[::16], cv2.NORM_INF) == 0 and cv2.norm(one, two, cv2.NORM_INF) == 0


def silence_ms(section: VideoCamera | GigeCamera) -> int:
    """After how long without a frame a live source counts as lost."""
    if section.timeout_ms is not None:
        return section.timeout_ms
    return DEFAULT_TIMEOUT_MS if section.rate_fps is None else max(1, round(2000 / section.rate_fps))
