"""What the camera sees now, for a mirror's own screen: the newest frame, only while somebody looks, only in memory."""

from __future__ import annotations

import threading
from dataclasses import replace

from edge_app.clock import monotonic_us
from edge_app.frame import Frame
from edge_app.monitor.pictures import make_picture

INTERVAL_US = 100_000
"""At most ten frames a second are copied."""
LOOKED_AT_US = 2_000_000
"""Without anybody who asks, frames are not even copied after this time."""


class LiveFrames:
    """The newest frame. `offer` belongs to the line's threads, `latest` to the server's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frame: Frame | None = None
        self._jpeg: tuple[int, bytes] | None = None
        self._asked_us: int | None = None
        self._copied_us = 0

    def offer(self, frame: Frame) -> None:
        """A frame that the line is done with; copied if somebody looks and the last one is old enough."""
        now_us = monotonic_us()
        if not self._is_looked_at(now_us):
            self.forget()
            return
        if frame.pixels is None:
            return
        if now_us - self._copied_us < INTERVAL_US:
            return
        self._copied_us = now_us
        copied = replace(frame, pixels=frame.pixels.copy())
        with self._lock:
            self._frame = copied

    def forget(self) -> None:
        """Drops the picture that nobody has asked for, or that is no longer what the camera sees: people are on it.

        To be called from time to time, for when no frames come any more.
        """
        now_us = monotonic_us()
        with self._lock:
            if not self._is_looked_at(now_us) or now_us - self._copied_us > LOOKED_AT_US:
                self._frame = self._jpeg = None

    def _is_looked_at(self, now_us: int) -> bool:
        return self._asked_us is not None and now_us - self._asked_us <= LOOKED_AT_US

    def latest(self) -> tuple[int, bytes] | None:
        """Frame id and JPEG of the newest frame; None if there is none of the last two seconds.

        Raises:
            ValueError: it can't be encoded.
        """
        now_us = monotonic_us()
        with self._lock:
            self._asked_us = now_us
            frame = self._frame
            if frame is None or now_us - self._copied_us > LOOKED_AT_US:
                self._frame = self._jpeg = None  # what nobody sees any more is not kept
                return None
            known = self._jpeg
        if known is None or known[0] != frame.frame_id:
            known = frame.frame_id, make_picture(frame).jpeg
            with self._lock:
                if self._frame is frame:  # else it was dropped or replaced meanwhile
                    self._jpeg = known
        return known
