"""`scheduler:` of a pipeline: thermal zones, the ladder of plans and power modes, and how patient the scheduler is.

Temperatures that are not given come from each zone's own trip points. Watts need not be exact: what counts is how the
steps compare in each zone. The defaults are assumed, not measured: a board's integrator should measure them. What
runs on the CPU warms the NPU's zone too, for both are on one die.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from edge_app.config.base import Section, YamlPath
from edge_app.verdict import PlanKind, PowerMode

LadderPlan = Literal[PlanKind.HTP, PlanKind.HYBRID, PlanKind.CPU]


class ZoneRule(Section):
    """Which zones of the board form a group, and where it is warm, hot and at its trip point."""

    types: tuple[str, ...] = Field(title="Zones", description="Globs on the zone's type, e.g. nsp*.")
    required: bool = Field(
        title="Required",
        description="true: a board without such a zone counts as hot there; false: the group is then not watched.",
    )
    trip_c: float | None = Field(
        None, gt=0, lt=150, title="Trip point", description="null: the zone's lowest passive or hot trip point."
    )
    warm_c: float | None = Field(
        None, gt=-50, lt=150, title="Warm from", description="Below, nothing is held back; null: 12 K below trip."
    )
    hot_c: float | None = Field(
        None,
        gt=-50,
        lt=150,
        title="Hot from",
        description="From here the trip point is near; an unreadable zone counts as hotter. null: 3 K below trip.",
    )
    default_trip_c: float = Field(
        90.0, gt=0, lt=150, title="Trip point without one", description="For zones that have none of their own."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        given = [value for value in (self.warm_c, self.hot_c, self.trip_c) if value is not None]
        if given != sorted(set(given)):
            raise ValueError(f"wanted warm_c < hot_c < trip_c, got {given}")
        return self


class Zones(Section):
    """The three groups of zones."""

    nsp: ZoneRule = Field(
        default_factory=lambda: ZoneRule(types=("nsp*",), required=True), title="NPU", description="Zones of the NPU."
    )
    cpu: ZoneRule = Field(
        default_factory=lambda: ZoneRule(types=("cpu*",), required=True), title="CPU", description="Zones of the CPU."
    )
    skin: ZoneRule = Field(
        default_factory=lambda: ZoneRule(types=("*skin*", "quiet*", "shell*"), required=False, default_trip_c=85.0),
        title="Skin",
        description="Zones of the board or case.",
    )


class Watts(Section):
    """Heat put into each zone when every trigger is inspected, watts."""

    nsp: float = Field(ge=0, title="NPU")
    cpu: float = Field(ge=0, title="CPU")
    skin: float | None = Field(None, ge=0, title="Board", description="null: the sum of both.")

    @property
    def board(self) -> float:
        """What ends in the board."""
        return self.nsp + self.cpu if self.skin is None else self.skin


class LadderStep(Section):
    """One plan in one power mode."""

    plan: LadderPlan = Field(title="Plan")
    power_mode: PowerMode = Field(title="Power mode", description="Of the HTP; `none` with the cpu plan.")
    watts: Watts = Field(title="Heat")
    latency: float = Field(
        1.0, gt=0, title="Latency", description="Relative to the plan's first step; used until it was measured."
    )

    @model_validator(mode="after")
    def _mode_fits_plan(self) -> Self:
        if (self.plan is PlanKind.CPU) != (self.power_mode is PowerMode.NONE):
            raise ValueError(f"power_mode {self.power_mode} does not go with plan {self.plan}; only cpu has `none`")
        return self


def _step(plan: LadderPlan, mode: PowerMode, nsp: float, cpu: float, latency: float) -> LadderStep:
    return LadderStep(plan=plan, power_mode=mode, watts=Watts(nsp=nsp, cpu=cpu), latency=latency)


DEFAULT_LADDER = (
    _step(PlanKind.HTP, PowerMode.BURST, 2.4, 0.5, 1.0),
    _step(PlanKind.HTP, PowerMode.SUSTAINED_HIGH_PERFORMANCE, 2.3, 0.5, 1.02),
    _step(PlanKind.HTP, PowerMode.HIGH_PERFORMANCE, 2.0, 0.5, 1.12),
    _step(PlanKind.HTP, PowerMode.BALANCED, 1.7, 0.5, 1.26),
    _step(PlanKind.HTP, PowerMode.LOW_BALANCED, 1.4, 0.5, 1.45),
    _step(PlanKind.HTP, PowerMode.POWER_SAVER, 1.1, 0.5, 1.7),
    _step(PlanKind.HTP, PowerMode.LOW_POWER_SAVER, 0.6, 0.5, 2.5),
    _step(PlanKind.HYBRID, PowerMode.BURST, 1.5, 1.5, 1.0),
    _step(PlanKind.HYBRID, PowerMode.BALANCED, 1.1, 1.5, 1.15),
    _step(PlanKind.HYBRID, PowerMode.POWER_SAVER, 0.7, 1.5, 1.4),
    _step(PlanKind.HYBRID, PowerMode.LOW_POWER_SAVER, 0.35, 1.5, 1.9),
    _step(PlanKind.CPU, PowerMode.NONE, 0.3, 2.8, 1.0),
)


class Dwell(Section):
    """How long a decision stands. Faults do not wait."""

    down_s: float = Field(3.0, gt=0, title="Before less heat", description="Between two changes when it is too hot.")
    up_s: float = Field(
        30.0,
        gt=0,
        title="Before more heat",
        description="Before going back to a cheaper step; up to eight times as long after some that did not hold.",
    )

    @model_validator(mode="after")
    def _up_is_slower(self) -> Self:
        if self.up_s < self.down_s:
            raise ValueError(f"wanted up_s >= down_s, got {self.up_s} < {self.down_s}")
        return self


class Cold(Section):
    """Starting a cold chip: the NPU is not started at once."""

    below_c: float = Field(0.0, title="Cold below", description="A colder NPU is warmed up first.")
    until_c: float = Field(5.0, title="Warm enough from", description="Then htp is started and its canary compared.")
    start_on: Literal[PlanKind.HYBRID, PlanKind.CPU] = Field(PlanKind.HYBRID, title="Start on")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.until_c < self.below_c:
            raise ValueError(f"wanted until_c >= below_c, got {self.until_c} < {self.below_c}")
        return self


class Drift(Section):
    """Silent throttling: a plan's latency against its own baseline."""

    ratio: float = Field(1.25, gt=1, title="Slow from", description="Median latency over the plan's best median.")
    batch: int = Field(9, ge=3, le=101, title="Batch", description="Runs per median.")
    confirm: int = Field(2, ge=1, title="Confirm", description="Slow medians in a row that count.")
    hold_s: float = Field(
        60.0, gt=0, title="Hold", description="How long it counts as hot; doubles when it comes back."
    )
    hold_max_s: float = Field(1800.0, gt=0, title="Longest hold")


class Faults(Section):
    """Circuit breaker of a plan."""

    backoff_s: float = Field(1.0, gt=0, title="First pause", description="Before a session is built again; doubles.")
    backoff_max_s: float = Field(60.0, gt=0, title="Longest pause")
    retries: int = Field(30, ge=0, title="Retries", description="Faults in a row; then the plan stays out.")
    forgive_s: float = Field(
        300.0, gt=0, title="Forgive", description="After so long without a fault the count starts anew."
    )


class Trial(Section):
    """Other plans are tried where most parts stay refused: the ladder's watts may be wrong for this board."""

    below: float = Field(
        0.5, ge=0, le=1, title="Low rate", description="Below, other plans are tried in turn; 0: never."
    )
    after_s: float = Field(300.0, gt=0, title="After", description="So long at a low rate.")
    for_s: float = Field(300.0, gt=0, title="For", description="The turn of each plan.")
    keep_s: float = Field(
        14_400.0, gt=0, title="Keep", description="The best goes first for so long; with none, no new trial."
    )


class Scheduler(Section):
    """Where frames run: by temperature, faults and deadline."""

    thermal: Literal["auto", "always", "never"] = Field(
        "auto",
        title="Thermal zones",
        description="auto: watched on a board with an NPU, or when `sysfs_root` is set; always; never: nor is drift.",
    )
    sysfs_root: YamlPath | None = Field(
        None, title="sysfs", description="Folder with class/thermal below it; null: /sys. A recorded tree may be given."
    )
    sample_s: float = Field(1.0, gt=0, le=60, title="Sampling", description="Seconds between readings of the zones.")
    stale_s: float = Field(5.0, gt=0, title="Stale after", description="Older readings count as unknown.")
    frozen_s: float = Field(
        300.0,
        gt=0,
        title="Frozen after",
        description="A value that has not changed at all counts as frozen after this, if other zones moved.",
    )
    zones: Zones = Field(default_factory=lambda: Zones(), title="Zones")
    lookahead_s: float = Field(
        8.0, ge=0, title="Look-ahead", description="A rising zone counts as hot as it will be after this time."
    )
    hysteresis_k: float = Field(3.0, ge=0, title="Hysteresis", description="Room that a step with more heat needs.")
    ladder: tuple[LadderStep, ...] = Field(
        DEFAULT_LADDER, min_length=1, title="Ladder", description="Plans in their power modes, cheapest first."
    )
    trigger: Literal["external", "free"] = Field(
        "external",
        title="Trigger",
        description="external: each frame is a part, so the plan changes before the rate; free: the rate first.",
    )
    rates: tuple[float, ...] = Field(
        (1.0, 0.85, 0.7, 0.55, 0.4, 0.3, 0.2, 0.1),
        min_length=1,
        title="Rates",
        description="Shares of triggers that may be inspected; the others are UNKNOWN/OVERLOAD.",
    )
    dwell: Dwell = Field(default_factory=lambda: Dwell(), title="Dwell times")
    trial: Trial = Field(default_factory=lambda: Trial(), title="Trial of other plans")
    cold: Cold = Field(default_factory=lambda: Cold(), title="Cold start")
    drift: Drift = Field(default_factory=lambda: Drift(), title="Latency drift")
    faults: Faults = Field(default_factory=lambda: Faults(), title="Faults")

    @model_validator(mode="after")
    def _ladder_and_rates(self) -> Self:
        pairs = [(step.plan, step.power_mode) for step in self.ladder]
        if len(set(pairs)) != len(pairs):
            raise ValueError("ladder: the same plan and power mode stand twice")
        if list(self.rates) != sorted(set(self.rates), reverse=True) or self.rates[0] != 1.0 or self.rates[-1] <= 0:
            raise ValueError(f"rates: wanted falling values from 1.0 to above 0, got {list(self.rates)}")
        return self
