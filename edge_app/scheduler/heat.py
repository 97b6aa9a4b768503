"""How much heat each group of zones may take now, and which rung stays within it.

Every group has an allowance that falls from all of its peak heat (up to warm) over a part of it (hot) to nothing (at
the trip point). The first rung, in the order of preference, that fits all three allowances is taken; if none fits, the
one that exceeds them least. So a hotter zone can never lead to a rung with more heat in that zone: making a zone
hotter only ever excludes rungs by their heat in that zone. tests/unit/test_scheduler_properties.py holds this.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from edge_app.scheduler.policy import GROUPS, HOT_SHARE, Heat, Limits, Policy, Rung
from edge_app.zones import ZoneReading, ZoneSnapshot, ZoneState

LEAST_PEAK_W = 1e-3
"""Of a group that no step heats."""
ROUNDING = 1e-9


class Cause(IntEnum):
    """What set a group's level."""

    NONE = 0
    MEASURED = 1
    UNKNOWN = 2
    DRIFT = 3


class Level(NamedTuple):
    """How much of its peak heat a group of zones may take, and why."""

    share: float
    share_more: float
    """For rungs that put more heat into the group than the present one: hysteresis."""
    cause: Cause
    hot: bool
    """Whether the zone that set it is hot, not only warm."""
    zone: str
    """That zone and its temperature, for people."""


Levels = tuple[Level, Level, Level]
UNLIMITED = Level(1.0, 1.0, Cause.NONE, False, "")
COOL = Level(1.0, 1.0, Cause.MEASURED, False, "")


def levels(policy: Policy, snapshot: ZoneSnapshot | None, now_us: int, drifted: tuple[bool, bool, bool]) -> Levels:
    """The level of each group: that of its hottest zone.

    Args:
        policy: limits of every zone. A zone that the snapshot lacks counts as hot, as one that can't be read does.
        snapshot: the latest; None: there is none.
        now_us: now.
        drifted: groups whose plan runs slower than it should: they count as hot whatever their zones say.
    """
    found: list[list[Level]] = [[], [], []]
    readings = {reading.name: reading for reading in snapshot.readings} if snapshot is not None else {}
    stale = snapshot is not None and now_us - snapshot.t_us > policy.stale_us
    for name, limits in policy.limits.items():
        if policy.watched[limits.group]:
            found[limits.group].append(zone_level(policy, limits, name, readings.get(name), stale))
    result = []
    for g in range(3):
        top = _hottest(found[g]) if found[g] else UNLIMITED
        if policy.watched[g] and not found[g]:
            top = _counts_as_hot(top, Cause.UNKNOWN, f"there is no {GROUPS[g]} zone")
        if drifted[g] and top.share > HOT_SHARE:
            top = _counts_as_hot(top, Cause.DRIFT, "runs slower than its own baseline")
        result.append(top)
    return result[0], result[1], result[2]


def zone_level(policy: Policy, limits: Limits, name: str, reading: ZoneReading | None, stale: bool) -> Level:
    """The level of one zone. One that can't be believed counts as hot; a rising one as hot as it will soon be."""
    if reading is None or stale or reading.state is not ZoneState.OK or reading.temp_c is None:
        state = ZoneState.STALE if stale else ZoneState.ABSENT if reading is None else reading.state
        soon, cause, text = limits.hot_c, Cause.UNKNOWN, f"{name} is {state}"
    else:
        soon = reading.temp_c + max(reading.rate_c_per_s, 0.0) * policy.config.lookahead_s
        if soon + policy.config.hysteresis_k <= limits.warm_c:
            return COOL
        cause, text = Cause.MEASURED, name
    more = limits.share(soon + policy.config.hysteresis_k)
    return Level(limits.share(soon), more, cause, soon >= limits.hot_c, text)


def _hottest(found: list[Level]) -> Level:
    top = min(found)
    return top._replace(share_more=min(level.share_more for level in found))


def _counts_as_hot(level: Level, cause: Cause, zone: str) -> Level:
    return Level(min(level.share, HOT_SHARE), min(level.share_more, HOT_SHARE), cause, True, zone)


class Allowance(NamedTuple):
    """Watts that each group may take: for rungs with no more heat there than now, and for those with more."""

    same: Heat
    more: Heat
    present: Heat

    def overloads(self, heat: Heat) -> tuple[float, float, float]:
        """The ratio of heat to allowance of each group; all 1 or less: fits."""
        (s0, s1, s2), (m0, m1, m2), (p0, p1, p2) = self.same, self.more, self.present
        h0, h1, h2 = heat
        return h0 / (m0 if h0 > p0 else s0), h1 / (m1 if h1 > p1 else s1), h2 / (m2 if h2 > p2 else s2)

    def overload(self, heat: Heat) -> float:
        """The worst ratio of a group, 1 if it fits."""
        worst = max(self.overloads(heat))
        return worst if worst > 1.0 + ROUNDING else 1.0


def allowance(policy: Policy, now: Levels, present: Heat) -> Allowance:
    """The allowances at these levels for one who is at `present`."""
    p0, p1, p2 = (max(peak, LEAST_PEAK_W) for peak in policy.peak)
    same = (p0 * now[0].share, p1 * now[1].share, p2 * now[2].share)
    more = (p0 * now[0].share_more, p1 * now[1].share_more, p2 * now[2].share_more)
    return Allowance(same, more, present)


def choose(rungs: Iterable[Rung], allowed: Allowance) -> Rung | None:
    """The first rung within all allowances, else the first of those that exceed them least; None if there are none."""
    best: Rung | None = None
    least = float("inf")
    for rung in rungs:
        overload = allowed.overload(rung.heat)
        if overload == 1.0:
            return rung
        if overload < least:
            best, least = rung, overload
    return best
