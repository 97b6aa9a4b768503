"""Time: deadlines on the monotonic clock, what is published in UTC; integer microseconds throughout."""

from __future__ import annotations

import time


def monotonic_us() -> int:
    """Microseconds of the monotonic clock: the only clock that deadlines may use."""
    return time.monotonic_ns() // 1_000


def utc_us() -> int:
    """Microseconds since 1970 UTC: for what leaves the node, never for a deadline."""
    return time.time_ns() // 1_000


def monotonic_to_utc_us(monotonic: int) -> int:
    """UTC of a moment on the monotonic clock, by the two clocks as they stand now (follows clock steps)."""
    return utc_us() + (monotonic - monotonic_us())
