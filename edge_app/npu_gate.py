"""One owner of the NPU: runs take turns, so that several lines of one process don't get in each other's way.

Two runs do not overlap on the HTP; who comes second waits inside the driver, in no order that anybody chose. So each
run on the NPU, of a frame or of the mechanic, takes its turn here first: the frame that is due first goes first, of
those that can still be in time. A wait past the deadline ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from edge_app.clock import monotonic_us
from edge_app.errors import RuntimeFault

PATIENCE_US = 1_000_000
"""A run that has no deadline is due so long after it was asked for: it waits for frames, but not for ever."""
POLL_S = 0.05


@dataclass(slots=True, eq=False)
class Turn:
    """One run that wants the NPU."""

    line: str
    deadline_us: int | None
    """Monotonic; None: there is none."""
    limit_us: int
    """A run that takes longer hangs."""
    asked_us: int = field(default_factory=monotonic_us)
    since_us: int = 0
    """When it was granted; 0: it waits."""


def next_turn(
    waiting: Sequence[Turn], now_us: int, run_us: Mapping[str, int], served_us: Mapping[str, int]
) -> Turn | None:
    """Whose turn it is: deadline first; of equals, the line that has waited longest since it was served.

    A frame that would be late even if it ran at once goes behind all others: a line that can't keep up loses its own
    frames and not those of the next one (the domino effect of earliest-deadline-first under overload).

    Args:
        waiting: all that want to run.
        now_us: monotonic.
        run_us: what a line's runs take.
        served_us: when a line had its last turn.
    """

    def order(turn: Turn) -> tuple[bool, int, int, int]:
        late = turn.deadline_us is not None and now_us + run_us.get(turn.line, 0) > turn.deadline_us
        due_us = turn.asked_us + PATIENCE_US if turn.deadline_us is None else turn.deadline_us
        return late, due_us, served_us.get(turn.line, 0), turn.asked_us

    return min(waiting, key=order, default=None)


class NpuGate:
    """Grants the NPU to one run at a time. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[Turn] = []
        self._holder: Turn | None = None
        self._run_us: dict[str, int] = {}
        self._served_us: dict[str, int] = {}
        self.out: str | None = None
        """Why the NPU may not be used any more in this process: a run on it never returned."""

    def enter(self, turn: Turn, given_up: Callable[[], bool] = lambda: False) -> bool:
        """Waits for a turn; then `leave` must follow. False: it was given up meanwhile, or the NPU is `out`."""
        with self._changed:
            self._waiting.append(turn)
            self._grant()
            while self._holder is not turn:
                self._leave_hung_behind()
                if self.out is not None or given_up():
                    self._waiting.remove(turn)
                    return False
                self._changed.wait(POLL_S)
            return True

    def leave(self, turn: Turn) -> None:
        """The run has ended."""
        with self._changed:
            if turn.deadline_us is not None:
                self._run_us[turn.line] = monotonic_us() - turn.since_us
            if self._holder is turn:
                self._holder = None
                self._grant()

    @contextmanager
    def turn(self, line: str, limit_us: int) -> Iterator[None]:
        """For a run that is no frame's (warm-up, canary): it waits behind frames. Raises RuntimeFault: `out`."""
        turn = Turn(line, None, limit_us)
        if not self.enter(turn):
            raise RuntimeFault("the NPU is out for this process", got=self.out)
        try:
            yield
        finally:
            self.leave(turn)

    def _grant(self) -> None:
        if self._holder is not None or self.out is not None:
            return
        now_us = monotonic_us()
        turn = next_turn(self._waiting, now_us, self._run_us, self._served_us)
        if turn is None:
            return
        self._waiting.remove(turn)
        self._holder, turn.since_us = turn, now_us
        self._served_us[turn.line] = now_us
        self._changed.notify_all()

    def _leave_hung_behind(self) -> None:
        holder = self._holder
        if self.out is None and holder is not None and monotonic_us() - holder.since_us > holder.limit_us:
            self.out = f"a run of {holder.line} did not return within {holder.limit_us // 1000} ms"
            self._changed.notify_all()
