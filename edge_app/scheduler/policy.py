"""The scheduler's configuration, worked out once: rungs in order, limits of every zone, times in microseconds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import product

from edge_app.config.scheduler import LadderStep, Scheduler, ZoneRule
from edge_app.errors import ConfigError
from edge_app.verdict import PlanKind, PowerMode
from edge_app.zones import Zone, ZoneGroup

GROUPS = (ZoneGroup.NSP, ZoneGroup.CPU, ZoneGroup.SKIN)
NPU_PLANS = frozenset({PlanKind.HTP, PlanKind.HYBRID})
WARM_BELOW_TRIP_K = 12.0
HOT_BELOW_TRIP_K = 3.0
HOT_SHARE = 0.4
"""Of its peak heat, which a zone may take where it is hot; all of it up to warm, nothing at the trip point."""
UNKNOWN_SHARE = HOT_SHARE / 2
"""Of a zone that can't be believed: it counts as half way from hot to its trip point."""
LEAST_PEAK_W = 1e-3
"""Of a group that no step heats."""
LEAST_SHARE = 1e-3
"""Keeps the order of rungs where a zone may take none of them."""
CRITICAL_MARGIN_K = 15.0
"""A zone that has only a critical trip point is taken to trip so far below it: there the kernel switches off."""
SANE_TRIP_C = (30.0, 130.0)
"""Firmware uses values outside (0, -274, 250) for trip points that are switched off."""

Heat = tuple[float, float, float]
"""Watts into NSP, CPU and board."""


@dataclass(frozen=True, slots=True)
class Step:
    """One plan in one power mode."""

    plan: PlanKind
    power_mode: PowerMode
    latency: float
    """Relative to the plan's first step."""
    heat: Heat


@dataclass(frozen=True, slots=True)
class Rung:
    """One thing that can be decided: a step at an admission rate."""

    step: int
    """Index into Policy.steps."""
    plan: PlanKind
    power_mode: PowerMode
    rate: float
    heat: Heat


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a zone is warm, hot and at its trip point."""

    group: int
    """Index into GROUPS."""
    warm_c: float
    hot_c: float
    trip_c: float

    @property
    def unknown_c(self) -> float:
        """What the zone counts as while it can't be believed."""
        return self.trip_c - (self.trip_c - self.hot_c) * UNKNOWN_SHARE / HOT_SHARE

    def share(self, temp_c: float) -> float:
        """The part of its peak heat that the zone may take: in lines from warm to hot to trip."""
        if temp_c <= self.warm_c:
            return 1.0
        if temp_c <= self.hot_c:
            return 1.0 - (1.0 - HOT_SHARE) * (temp_c - self.warm_c) / (self.hot_c - self.warm_c)
        return max(HOT_SHARE * (self.trip_c - temp_c) / (self.trip_c - self.hot_c), LEAST_SHARE)


Zones = tuple[tuple[Limits, tuple[str, ...]], ...]
"""Where zones are hot, and the names of those that have these limits: of them, only the hottest counts."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that does not change while the process runs."""

    plans: tuple[PlanKind, ...]
    """Of this pipeline, in the order of the ladder; the first is home."""
    steps: tuple[Step, ...]
    steps_of: Mapping[PlanKind, tuple[int, ...]]
    """Indices of each plan's steps."""
    rungs: tuple[Rung, ...]
    """In the order in which they are preferred."""
    ranks: tuple[tuple[tuple[Rung, ...], ...], ...]
    """The same order for who looks for the first that fits: a rank's highest rate, and of its steps the first. Each
    step has its rungs by falling rate."""
    lowest: tuple[Rung, ...]
    """Those of the lowest rate, in that order: one for each step."""
    least: Heat
    """The least that a rung puts into each group: where that does not fit, none does."""
    peak: Heat
    """The most heat that any rung puts into each group."""
    limits: Mapping[str, Limits]
    """By zone name."""
    zones_of: tuple[Zones, Zones, Zones]
    """The same by group."""
    watched: tuple[bool, bool, bool]
    """Groups whose temperature counts: those with zones, and those that must have some."""
    agrees: Mapping[PlanKind, frozenset[PlanKind]]
    canaries: bool
    """Whether a plan on the NPU must give its stored output before it takes over."""
    alike: bool
    """Whether runs of a plan take the same time whatever they are given: only then does a slow one tell of heat."""
    config: Scheduler
    dwell_down_us: int
    dwell_up_us: int
    stale_us: int

    def may_switch(self, here: PlanKind, there: PlanKind) -> bool:
        """Whether the verdicts of both agreed when the model was built."""
        return here is there or there in self.agrees.get(here, frozenset())


def build_policy(
    config: Scheduler,
    plans: Collection[PlanKind],
    agrees: Iterable[tuple[PlanKind, PlanKind]],
    zones: Collection[Zone] | None,
    canaries: bool = True,
    alike: bool = True,
) -> Policy:
    """Works out the policy of one pipeline on one board.

    Args:
        config: the pipeline's `scheduler:`.
        plans: that this model has for this board.
        agrees: pairs of plans whose verdicts agreed at build time (the manifest's `agrees_with`); taken both ways.
        zones: found on the board; None: temperatures are not watched.
        canaries: whether the model has a stored inference to compare with.
        alike: whether a plan's runs take the same time whatever they are given; False: latency drift says nothing.

    Raises:
        ConfigError: the ladder names none of the plans, or a zone's limits are out of order.
    """
    steps = tuple(_step(step) for step in config.ladder if step.plan in plans)
    if not steps:
        raise ConfigError(
            "the ladder has no step for any plan of this model",
            where="scheduler.ladder",
            wanted=f"a step with plan {' or '.join(sorted(plans))}",
            got=", ".join(sorted({step.plan.value for step in config.ladder})),
        )
    order = tuple(dict.fromkeys(step.plan for step in steps))
    limits = {zone.name: zone_limits(zone, _rule(config, zone.group)) for zone in zones or ()}
    rungs = _rungs(steps, order, config)
    return Policy(
        plans=order,
        steps=steps,
        steps_of={plan: tuple(i for i, step in enumerate(steps) if step.plan is plan) for plan in order},
        rungs=rungs,
        ranks=_ranks(rungs, order, config),
        lowest=tuple(rung for rung in rungs if rung.rate == config.rates[-1]),
        least=(_least(rungs, 0), _least(rungs, 1), _least(rungs, 2)),
        peak=(_peak(steps, 0), _peak(steps, 1), _peak(steps, 2)),
        limits=limits,
        zones_of=(_zones_of(limits, 0), _zones_of(limits, 1), _zones_of(limits, 2)),
        watched=_watched(config, limits, zones is not None),
        agrees=_both_ways(order, agrees),
        canaries=canaries,
        alike=alike,
        config=config,
        dwell_down_us=round(config.dwell.down_s * 1e6),
        dwell_up_us=round(config.dwell.up_s * 1e6),
        stale_us=round(config.stale_s * 1e6),
    )


def with_zones(policy: Policy, zones: Collection[Zone]) -> Policy:
    """The same policy on a board whose zones are these: some came later. Raises ConfigError as `build_policy` does."""
    limits = {zone.name: zone_limits(zone, _rule(policy.config, zone.group)) for zone in zones}
    return replace(
        policy,
        limits=limits,
        zones_of=(_zones_of(limits, 0), _zones_of(limits, 1), _zones_of(limits, 2)),
        watched=_watched(policy.config, limits, thermal=True),
    )


def _both_ways(
    plans: Iterable[PlanKind], agrees: Iterable[tuple[PlanKind, PlanKind]]
) -> dict[PlanKind, frozenset[PlanKind]]:
    """By plan, those that agree with it; of the given plans alone."""
    found: dict[PlanKind, set[PlanKind]] = {plan: set() for plan in plans}
    for one, other in agrees:
        if one in found and other in found:
            found[one].add(other)
            found[other].add(one)
    return {plan: frozenset(others) for plan, others in found.items()}


def _peak(steps: tuple[Step, ...], group: int) -> float:
    return max(LEAST_PEAK_W, *(step.heat[group] for step in steps))


def _least(rungs: tuple[Rung, ...], group: int) -> float:
    return min(rung.heat[group] for rung in rungs)


def _zones_of(limits: Mapping[str, Limits], group: int) -> Zones:
    alike: dict[Limits, list[str]] = {}
    for name, limit in limits.items():
        if limit.group == group:
            alike.setdefault(limit, []).append(name)
    return tuple((limit, tuple(names)) for limit, names in alike.items())


def _step(step: LadderStep) -> Step:
    return Step(step.plan, step.power_mode, step.latency, (step.watts.nsp, step.watts.cpu, step.watts.board))


def _rungs(steps: tuple[Step, ...], order: tuple[PlanKind, ...], config: Scheduler) -> tuple[Rung, ...]:
    """Power mode first; then the plan and last the rate where each frame is a part, else the other way."""
    rungs = [
        (
            index,
            Rung(
                index, step.plan, step.power_mode, rate, (step.heat[0] * rate, step.heat[1] * rate, step.heat[2] * rate)
            ),
        )
        for (index, step), rate in product(enumerate(steps), config.rates)
    ]
    if config.trigger == "external":
        rungs.sort(key=lambda pair: (-pair[1].rate, pair[0]))
    else:
        rungs.sort(key=lambda pair: (order.index(pair[1].plan), -pair[1].rate, pair[0]))
    return tuple(rung for _, rung in rungs)


def _ranks(
    rungs: tuple[Rung, ...], order: tuple[PlanKind, ...], config: Scheduler
) -> tuple[tuple[tuple[Rung, ...], ...], ...]:
    """All steps in one rank where the rate comes last, else a rank for each plan."""
    by_step: dict[int, list[Rung]] = {}
    for rung in rungs:
        by_step.setdefault(rung.step, []).append(rung)
    steps = [tuple(by_step[step]) for step in sorted(by_step)]
    if config.trigger == "external":
        return (tuple(steps),)
    return tuple(tuple(step for step in steps if step[0].plan is plan) for plan in order)


def _rule(config: Scheduler, group: ZoneGroup) -> ZoneRule:
    return {ZoneGroup.NSP: config.zones.nsp, ZoneGroup.CPU: config.zones.cpu, ZoneGroup.SKIN: config.zones.skin}[group]


def group_of(config: Scheduler, zone_type: str) -> ZoneGroup | None:
    """The group whose globs match a zone's type; the first of nsp, cpu, skin; None: not watched."""
    for group in GROUPS:
        if any(fnmatchcase(zone_type, glob) for glob in _rule(config, group).types):
            return group
    return None


def _watched(config: Scheduler, limits: Mapping[str, Limits], thermal: bool) -> tuple[bool, bool, bool]:
    present = {limit.group for limit in limits.values()}
    nsp, cpu, skin = (thermal and (g in present or _rule(config, group).required) for g, group in enumerate(GROUPS))
    return nsp, cpu, skin


def zone_limits(zone: Zone, rule: ZoneRule) -> Limits:
    """Limits of a zone: what the pipeline gives, else from its own trip points."""
    trip = rule.trip_c if rule.trip_c is not None else own_trip_c(zone)
    trip = rule.default_trip_c if trip is None else trip
    hot = rule.hot_c if rule.hot_c is not None else trip - HOT_BELOW_TRIP_K
    warm = rule.warm_c if rule.warm_c is not None else min(trip - WARM_BELOW_TRIP_K, hot - 1.0)
    if not warm < hot < trip:
        raise ConfigError(
            "a zone's limits are out of order",
            where=f"scheduler.zones.{zone.group}, zone {zone.name}",
            wanted="warm_c < hot_c < trip_c",
            got=f"{warm:g}, {hot:g}, {trip:g}",
            remedy="give all three, or none: they are then taken from the zone's trip points",
        )
    return Limits(GROUPS.index(zone.group), warm, hot, trip)


def own_trip_c(zone: Zone) -> float | None:
    """The lowest passive or hot trip point of a zone, else a margin below its critical one, else None."""
    sane = [trip for trip in zone.trips if SANE_TRIP_C[0] < trip.temp_c < SANE_TRIP_C[1]]
    throttling = [trip.temp_c for trip in sane if trip.kind in ("passive", "hot")]
    critical = [trip.temp_c - CRITICAL_MARGIN_K for trip in sane if trip.kind == "critical"]
    return min(throttling or critical, default=None)
