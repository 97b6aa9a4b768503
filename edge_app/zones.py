"""What a board's thermal zones say: the words that thermal.py writes and the scheduler reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class ZoneGroup(StrEnum):
    """Which part of the board a zone tells of."""

    NSP = "nsp"
    """The NPU (Hexagon tensor processor)."""
    CPU = "cpu"
    SKIN = "skin"
    """The board or case; all heat ends there."""


class ZoneState(StrEnum):
    """Whether a reading can be believed. Everything but OK counts as hot."""

    OK = "ok"
    UNREADABLE = "unreadable"
    """The file can't be read, or holds no number."""
    ABSENT = "absent"
    """The zone was there and is gone."""
    FROZEN = "frozen"
    """The same value for too long."""
    IMPOSSIBLE = "impossible"
    """No board has this temperature, or got there so fast."""
    STALE = "stale"
    """Nobody has read it for too long."""


@dataclass(frozen=True, slots=True)
class Trip:
    """A trip point: passive, active, hot or critical, and where, degrees C."""

    kind: str
    temp_c: float


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone as it was found: its name (unique), the kernel's type, its group and trip points."""

    name: str
    type: str
    group: ZoneGroup
    trips: tuple[Trip, ...] = ()


class ZoneReading(NamedTuple):
    """One zone, once. `temp_c` is None unless `state` is OK."""

    name: str
    state: ZoneState
    temp_c: float | None = None
    rate_c_per_s: float = 0.0
    """How fast it rises (negative: falls)."""
    note: str = ""
    """For people: the error, the value that can't be."""

    @property
    def known_c(self) -> float | None:
        """The temperature if it can be believed."""
        return self.temp_c if self.state is ZoneState.OK else None


@dataclass(frozen=True, slots=True)
class ZoneSnapshot:
    """All zones, read at `t_us` of the monotonic clock."""

    t_us: int
    readings: tuple[ZoneReading, ...]
    known: Mapping[str, ZoneReading] = field(init=False, repr=False, compare=False)
    """By name, those that can be believed. Made once, where zones are read: decisions are on the hot path."""
    temps_c: dict[str, float | None] = field(init=False, repr=False, compare=False)
    """By name, in tenths of a degree; None where unknown."""

    def __post_init__(self) -> None:
        known: dict[str, ZoneReading] = {}
        temps_c: dict[str, float | None] = {}
        for reading in self.readings:
            temp_c = temps_c[reading.name] = reading.known_c
            if temp_c is not None:
                known[reading.name] = reading
                temps_c[reading.name] = round(temp_c, 1)
        object.__setattr__(self, "known", known)
        object.__setattr__(self, "temps_c", temps_c)

    def state_of(self, name: str) -> ZoneState:
        """Why a zone can't be believed, or that it can."""
        return next((r.state for r in self.readings if r.name == name), ZoneState.ABSENT)
