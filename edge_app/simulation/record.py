"""What came of a scenario: every frame in one of the ways that it can end, and a time series for the plot.

A frame is *inspected* when it has a verdict in time. Otherwise it is late, refused by the rate (overload), refused for
want of a slot (overrun), sealed for want of a plan (fault), or lost: a trigger without any result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edge_app.verdict import PlanKind, PowerMode, SchedReason


@dataclass(frozen=True, slots=True)
class Sample:
    """One point of the time series."""

    t_s: float
    air_c: float
    temps_c: tuple[float, float, float]
    plan: PlanKind | None
    power_mode: PowerMode | None
    rate: float
    reason: SchedReason | None
    clock_ghz: float | None
    """Of the NPU, as the power mode and the chip's own throttling leave it."""
    infer_ms: float | None
    """Of the last run; None: the last frame was not run."""
    latency_ms: float | None
    """From capture to verdict."""


@dataclass
class Run:
    """What came of a scenario."""

    frames: int = 0
    inspected: int = 0
    late: int = 0
    overload: int = 0
    overrun: int = 0
    fault: int = 0
    lost: int = 0
    retried: int = 0
    switches: int = 0
    """Changes of plan."""
    steps: int = 0
    """Changes of power mode or rate within a plan."""
    seconds_above_trip: float = 0.0
    hottest_c: list[float] = field(default_factory=lambda: [-273.0, -273.0, -273.0])
    reasons: dict[SchedReason, int] = field(default_factory=dict)
    first_good_ms: list[float] = field(default_factory=list)
    """From each fault of a run to the end of the same frame's good run on the next plan."""
    series: list[Sample] = field(default_factory=list)

    @property
    def accounted(self) -> int:
        """Every frame in one of the ways that it can end."""
        return self.inspected + self.late + self.overload + self.overrun + self.fault + self.lost
