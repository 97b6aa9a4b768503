"""Between the line and its outlet: sees every result on its way out, and borrows pictures of what did not pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from edge_app.frame import Frame
from edge_app.monitor.live import LiveFrames
from edge_app.monitor.pictures import Pictures
from edge_app.results.evidence import WITHOUT_PICTURE
from edge_app.sealing import Outlet
from edge_app.verdict import Mode, Placement, Reason, Sealed

MOST_WAITING = 8192
"""Results that the monitor has not looked at yet; it looks twice a second. Older ones are lost to it, and counted."""
MOST_WANTED = 64


class Feed:
    """An outlet (see sealing.Outlet) that hands everything on. Called by the line's threads; never blocks.

    Args:
        outlet: where results go first: the wire is worth more than any page.
        pictures: takes frames of results that did not pass; None: no pictures.
        live: is offered every frame; None: nobody may look at the camera.
    """

    def __init__(self, outlet: Outlet, pictures: Pictures | None, live: LiveFrames | None = None) -> None:
        self._outlet, self._pictures, self._live = outlet, pictures, live
        self._seen: deque[Sealed] = deque(maxlen=MOST_WAITING)
        self._wanted: dict[int, int] = {}
        """Seq by frame id, of results whose frame has not come by yet."""

    def result(self, sealed: Sealed) -> None:
        """See sealing.Outlet."""
        self._outlet.result(sealed)
        self._seen.append(sealed)
        if self._pictures is None or sealed.reason is Reason.OK or sealed.reason in WITHOUT_PICTURE:
            return
        self._wanted[sealed.frame_id] = sealed.seq
        if len(self._wanted) > MOST_WANTED:  # frames that never came by; others come by on other threads meanwhile
            for frame_id in list(self._wanted)[:-MOST_WANTED]:
                self._wanted.pop(frame_id, None)

    def evidence(self, frame: Frame, give_back: Callable[[Frame], None]) -> bool:
        """See sealing.Outlet. A frame that the monitor takes goes on to the outlet when its picture is made."""
        if self._live is not None:
            self._live.offer(frame)
        seq = self._wanted.pop(frame.frame_id, None) if self._wanted else None
        if seq is None or self._pictures is None:
            return self._outlet.evidence(frame, give_back)

        def hand_on(done: Frame) -> None:
            if not self._outlet.evidence(done, give_back):
                give_back(done)

        return self._pictures.take(seq, frame, hand_on) or self._outlet.evidence(frame, give_back)

    def state(self, mode: Mode, was: Mode, placement: Placement, reason: str) -> None:
        """See sealing.Outlet."""
        self._outlet.state(mode, was, placement, reason)

    def alarm(self, name: str, active: bool, text: str, remedy: str) -> None:
        """See sealing.Outlet."""
        self._outlet.alarm(name, active, text, remedy)

    def note(self, seq: int, text: str) -> None:
        """See sealing.Outlet."""
        self._outlet.note(seq, text)

    def drain(self) -> list[Sealed]:
        """Results since the last call, in order. For one reader."""
        drained = []
        while self._seen:
            drained.append(self._seen.popleft())
        return drained
