"""Whether the kernel's clock is kept right, and how wrong it may be: what adjtimex(2) says, on Linux of 64 bits."""

from __future__ import annotations

import ctypes
from ctypes import c_byte, c_int, c_long, c_uint

from edge_app.results.identity import ClockInfo

TIME_ERROR = 5
"""The state of a clock that nothing keeps right; also of one that was right too long ago."""


class Timex(ctypes.Structure):
    """`struct timex`, up to what is read here."""

    _fields_ = (
        ("modes", c_uint), ("offset", c_long), ("freq", c_long), ("maxerror", c_long), ("esterror", c_long),
        ("status", c_int), ("rest", c_byte * 192),
    )  # fmt: skip


_adjtimex = ctypes.CDLL(None).adjtimex


def clock_now() -> ClockInfo:
    """As the kernel tells it now; "unsynchronised" also where it may not be asked."""
    timex = Timex()  # modes 0: only asked, nothing is set
    return told_by(_adjtimex(ctypes.byref(timex)), timex.maxerror)


def told_by(state: int, maxerror_us: int) -> ClockInfo:
    """`state` is what adjtimex returned, -1 where it failed. PTP tools tell the kernel in the same way as NTP's."""
    return ClockInfo() if state in (-1, TIME_ERROR) else ClockInfo("ntp", maxerror_us)
