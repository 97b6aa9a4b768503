"""Whether the node lives, whether there is one of it, and how old its results are: without trusting any wall clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

FAULT_AFTER_US = 3_000_000
"""Three missed heartbeats."""
SAMPLES = 8
PROBE_EVERY_US = 10_000_000
PROBE_AGAIN_US = 1_000_000


@dataclass(frozen=True, slots=True)
class _Sample:
    """Node's UTC minus this machine's monotonic clock lies between the two."""

    low_us: int
    high_us: int


class NodeClock:
    """The node's UTC, told by this machine's monotonic clock: from the times of requests and their answers.

    A request left at `sent`, its answer came at `received`, and the node said `t` somewhere between. The narrowest of
    the last samples counts; one that contradicts it means that the node's clock was set, and starts afresh.
    """

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES)
        self._best: _Sample | None = None

    def sample(self, sent_us: int, received_us: int, node_utc_us: int) -> None:
        """One request and answer (monotonic), and the node's UTC in it."""
        new = _Sample(node_utc_us - received_us, node_utc_us - sent_us)
        if self._best is not None and (new.low_us > self._best.high_us or new.high_us < self._best.low_us):
            self._samples.clear()
        self._samples.append(new)
        self._best = min(self._samples, key=lambda s: s.high_us - s.low_us)

    @property
    def known(self) -> bool:
        """Whether there is any sample."""
        return self._best is not None

    def utc_us(self, monotonic_us: int, own_utc_us: int) -> int:
        """The node's UTC now; without a sample the two clocks are taken to agree."""
        if self._best is None:
            return own_utc_us
        return monotonic_us + (self._best.low_us + self._best.high_us) // 2

    def latest_utc_us(self, monotonic_us: int) -> int | None:
        """What the node's UTC is now at most; None without a sample."""
        return None if self._best is None else monotonic_us + self._best.high_us


class Liveness:
    """Heartbeats, and heartbeats of a second node with the same name."""

    def __init__(self) -> None:
        self._last_beat_us: int | None = None
        self._ghosts = 0
        self._ghost_us: int | None = None

    def beat(self, now_us: int) -> None:
        """A heartbeat of the run that is followed."""
        self._last_beat_us = now_us

    def ghost(self, now_us: int) -> None:
        """A message of a run that should be over. The first may have been under way; more come from a second node."""
        self._ghosts += 1
        self._ghost_us = now_us

    def fault(self, now_us: int) -> str | None:
        """Why nothing may be trusted; None if all is well."""
        if self._ghost_us is not None and self._ghosts > 1:
            if now_us - self._ghost_us < FAULT_AFTER_US:
                return "two nodes have the same name"
            self._ghosts, self._ghost_us = 0, None
        if self._last_beat_us is None:
            return "no heartbeat yet"
        silent_us = now_us - self._last_beat_us
        if silent_us > FAULT_AFTER_US:
            return f"no heartbeat for {silent_us / 1e6:.1f} s"
        return None
