"""What a node tells, as a plant program sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Delivery(StrEnum):
    """How a result came. Only a LIVE one may move anything."""

    LIVE = "live"
    """Off the wire, and young enough."""
    REPLAYED = "replayed"
    """Asked for after the event: for the books."""
    STALE = "stale"
    """Off the wire, but older than `max_age_s`, or while the node can't be trusted."""


class Start(StrEnum):
    """Where a subscriber without a position begins."""

    NOW = "now"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class Position:
    """The last result that was dealt with: keep it, and a restarted program goes on where it was."""

    epoch: str
    seq: int


@dataclass(frozen=True, slots=True)
class Result:
    """One sealed result. `data` holds all fields of the message, those of later protocol versions too."""

    node: str
    epoch: str
    seq: int
    trigger_id: int
    part_id: str | None
    verdict: str
    """PASS, FAIL or UNKNOWN; whatever else a node might say is read as UNKNOWN."""
    reason: str
    t_done_us: int
    deadline_us: int | None
    recipe_rev: str
    simulated: bool
    delivery: Delivery
    age_us: int
    """Since it was sealed, when it was handed over."""
    lost_before: int
    """Results before this one that could not be had, from anywhere."""
    data: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @property
    def position(self) -> Position:
        """To be kept; see Position."""
        return Position(self.epoch, self.seq)

    @property
    def in_time(self) -> bool:
        """Sealed before its deadline (always true where there is none)."""
        return self.deadline_us is None or self.t_done_us <= self.deadline_us


class BadMessage(ValueError):
    """A message that is not of protocol v1."""


def required(data: Mapping[str, Any], name: str, kind: type) -> Any:
    """A field of a message.

    Raises:
        BadMessage: it is absent or of another type.
    """
    value = data.get(name) if isinstance(data, Mapping) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BadMessage(f"{name}: wanted {kind.__name__}")
    return value


def check_result(data: Mapping[str, Any]) -> None:
    """Raises BadMessage unless a result has what ordering and the controller rule need."""
    required(data, "epoch", str)
    if required(data, "seq", int) < 1:
        raise BadMessage("seq: wanted 1 or more")
    for name in ("trigger_id", "t_done_us"):
        required(data, name, int)
    for name in ("node", "verdict", "reason"):
        required(data, name, str)
    if data.get("deadline_us") is not None:  # any other kind would be read as none, and every result be in time
        required(data, "deadline_us", int)
    required(data, "simulated", bool)
    required(required(data, "recipe", dict), "rev", str)


def make_result(data: Mapping[str, Any], delivery: Delivery, age_us: int, lost_before: int) -> Result:
    """A checked message as a Result."""
    verdict = data["verdict"]
    deadline = data.get("deadline_us")
    return Result(
        node=data["node"],
        epoch=data["epoch"],
        seq=data["seq"],
        trigger_id=data["trigger_id"],
        part_id=data.get("part_id"),
        verdict=verdict if verdict in ("PASS", "FAIL") else "UNKNOWN",
        reason=data["reason"],
        t_done_us=data["t_done_us"],
        deadline_us=deadline if isinstance(deadline, int) else None,
        recipe_rev=data["recipe"]["rev"],
        simulated=data["simulated"],
        delivery=delivery,
        age_us=age_us,
        lost_before=lost_before,
        data=data,
    )
