"""Pictures of parts that did not pass, made small behind the line's back and held in memory."""

from __future__ import annotations

import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from edge_app import threads
from edge_app.clock import monotonic_us
from edge_app.frame import Frame
from edge_app.results.jpeg import to_jpeg

log = logging.getLogger(__name__)

KEPT = 16
"""A few more than a page shows, so that a picture is still there when a browser asks for it."""
LONGEST_SIDE_PX = 960
QUALITY = 80
INTERVAL_US = 200_000
"""At most five pictures a second: the rest of the processor is the line's."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A JPEG, and the size of the frame that it shows (boxes are in that frame's pixels)."""

    jpeg: bytes
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class _Job:
    seq: int
    frame: Frame
    hand_on: Callable[[Frame], None]


class Pictures:
    """Takes one frame at a time; a frame that comes while one is at work, or too soon, is not taken."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._at_work = threading.Lock()
        """Held from `take` until the frame is handed on."""
        self._not_before_us = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, Picture] = OrderedDict()
        self._thread = threads.daemon(self._run, "pictures")
        self.failed = 0
        """Frames of which no picture could be made."""

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Ends after the picture at hand."""
        self._jobs.put(None)
        if self._thread.is_alive():
            self._thread.join(1.0)

    def take(self, seq: int, frame: Frame, hand_on: Callable[[Frame], None]) -> bool:
        """True: the frame's pixels are held until `hand_on(frame)` is called, on another thread. Never blocks."""
        now_us = monotonic_us()
        if frame.pixels is None or not self._thread.is_alive() or now_us < self._not_before_us:
            return False
        if not self._at_work.acquire(blocking=False):
            return False
        self._not_before_us = now_us + INTERVAL_US
        self._jobs.put(_Job(seq, frame, hand_on))
        return True

    def get(self, seq: int) -> Picture | None:
        """The picture of a result; None if none was taken, or it is gone."""
        with self._lock:
            return self._kept.get(seq)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                picture = make_picture(job.frame)
                with self._lock:
                    self._kept[job.seq] = picture
                    while len(self._kept) > KEPT:
                        self._kept.popitem(last=False)
            except Exception:
                self.failed += 1
                log.exception("no picture of result %d", job.seq)
            finally:
                self._at_work.release()
                self._hand_on(job)

    def _hand_on(self, job: _Job) -> None:
        try:
            job.hand_on(job.frame)
        except Exception:  # as Evidence does: this thread must go on
            log.exception("the pixels of result %d could not be handed on", job.seq)


def make_picture(frame: Frame) -> Picture:
    """A frame as a JPEG of at most LONGEST_SIDE_PX.

    Raises:
        ValueError: the frame has no pixels, or OpenCV can't encode them.
    """
    return Picture(to_jpeg(frame, QUALITY, LONGEST_SIDE_PX), frame.width, frame.height)
