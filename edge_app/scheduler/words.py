"""What the scheduler is told and what it answers: plain data, so that a decision can be recorded and replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from edge_app.verdict import Placement, PlanKind, PowerMode
from edge_app.zones import ZoneSnapshot


class EventKind(StrEnum):
    """What happened to a plan."""

    LOADED = "loaded"
    """Its session was built and ran (warm); the latencies tell how fast."""
    LOAD_FAILED = "load_failed"
    CANARY_PASSED = "canary_passed"
    """The stored picture gave the stored output."""
    CANARY_FAILED = "canary_failed"
    ERROR = "error"
    """A run raised an exception."""
    WRONG_OUTPUT = "wrong_output"
    TIMEOUT = "timeout"
    """A run did not return: plans on that processor are out for this process."""


FAULTS = frozenset(
    {EventKind.ERROR, EventKind.WRONG_OUTPUT, EventKind.TIMEOUT, EventKind.CANARY_FAILED, EventKind.LOAD_FAILED}
)


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened to a plan."""

    kind: EventKind
    plan: PlanKind
    text: str = ""
    latency_us: int | None = None
    """LOADED: of a run in the plan's first step."""
    latencies_us: Mapping[PowerMode, int] = field(default_factory=dict)
    """LOADED: of a run in each power mode that was measured."""


class Observation(NamedTuple):
    """One run that ended well: where, and how long."""

    plan: PlanKind
    power_mode: PowerMode
    infer_us: int
    other_us: int = 0
    """What the frame spent outside the run: waiting, preprocess, decode."""


class Inputs(NamedTuple):
    """All that a decision depends on besides the state. Times are of the monotonic clock."""

    now_us: int
    zones: ZoneSnapshot | None = None
    """The latest snapshot; None where zones are not watched."""
    events: tuple[Event, ...] = ()
    observations: tuple[Observation, ...] = ()
    deadline_us: int | None = None
    """From capture to sealed verdict; None: there is none."""
    operator: PlanKind | None = None
    """A plan that a person asked for."""


class ActionKind(StrEnum):
    """What the line carries out off the hot path; each ends in an Event."""

    LOAD = "load"
    """Build the plan's session (again): LOADED or LOAD_FAILED."""
    CANARY = "canary"
    """Run the stored picture and compare: CANARY_PASSED or CANARY_FAILED."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do."""

    kind: ActionKind
    plan: PlanKind


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm that stands while it is listed."""

    name: str
    text: str
    remedy: str


class Decision(NamedTuple):
    """The answer: where the next frame runs, why, and what else there is to do."""

    placement: Placement | None
    """None: no plan is left; the line seals UNKNOWN/RUNTIME_FAULT."""
    detail: str
    """The reason in words; never empty."""
    actions: tuple[Action, ...] = ()
    """New ones only; they are not repeated."""
    alarms: tuple[Alarm, ...] = ()
    degraded: tuple[str, ...] = ()
    """What is not as configured, as results tell it."""
