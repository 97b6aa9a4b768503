"""How much heat each group of zones may take now, and which rung stays within it.

Every group has an allowance that falls from all of its peak heat (up to warm) over a part of it (hot) to nothing (at
the trip point). The first rung, in the order of preference, that fits all three allowances is taken; if none fits, the
one that exceeds them least. So a hotter zone can never lead to a rung with more heat in that zone: making a zone
hotter only ever excludes rungs by their heat in that zone. tests/unit/test_scheduler_properties.py holds this.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from edge_app.scheduler.policy import GROUPS, HOT_SHARE, UNKNOWN_SHARE, Heat, Limits, Policy, Rung
from edge_app.verdict import PlanKind
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
        policy: limits of every zone. A zone that the snapshot lacks counts as past hot, as one that can't be read does.
        snapshot: the latest; None: there is none.
        now_us: now.
        drifted: groups whose plan runs slower than it should: they count as hot whatever their zones say.
    """
    stale = snapshot is not None and now_us - snapshot.t_us > policy.stale_us
    nsp, cpu, skin = (_group_level(policy, g, snapshot, stale) for g in range(3))
    if any(drifted):
        nsp, cpu, skin = (_unless_drifted(level, d) for level, d in zip((nsp, cpu, skin), drifted, strict=True))
    return nsp, cpu, skin


def _group_level(policy: Policy, group: int, snapshot: ZoneSnapshot | None, stale: bool) -> Level:
    if not policy.watched[group]:
        return UNLIMITED
    zones = policy.zones_of[group]
    if not zones:
        return Level(UNKNOWN_SHARE, UNKNOWN_SHARE, Cause.UNKNOWN, True, f"there is no {GROUPS[group]} zone")
    known = {} if snapshot is None or stale else snapshot.known
    lookahead_s, hysteresis_k = policy.config.lookahead_s, policy.config.hysteresis_k
    top, share_more = COOL, 1.0
    for name, limits in zones:
        reading = known.get(name)
        if reading is None:
            state = ZoneState.ABSENT if snapshot is None else ZoneState.STALE if stale else snapshot.state_of(name)
            level = _unknown(limits, f"{name} is {state}", hysteresis_k)
        else:
            soon_c = soon(reading, lookahead_s)
            if soon_c + hysteresis_k <= limits.warm_c:
                continue
            more = limits.share(soon_c + hysteresis_k)
            level = Level(limits.share(soon_c), more, Cause.MEASURED, soon_c >= limits.hot_c, name)
        top, share_more = min(top, level), min(share_more, level.share_more)
    return top if top.share_more == share_more else top._replace(share_more=share_more)


def soon(reading: ZoneReading, lookahead_s: float) -> float:
    """The temperature of a zone that is known; of a rising one, what it will be after this time."""
    temp_c, rate = reading.temp_c or 0.0, reading.rate_c_per_s
    return temp_c + rate * lookahead_s if rate > 0.0 else temp_c


def _unknown(limits: Limits, why: str, hysteresis_k: float) -> Level:
    """The level of a zone that can't be believed."""
    at_c = limits.unknown_c
    return Level(limits.share(at_c), limits.share(at_c + hysteresis_k), Cause.UNKNOWN, True, why)


def _unless_drifted(level: Level, drifted: bool) -> Level:
    if not drifted or level.share <= HOT_SHARE:
        return level
    return Level(HOT_SHARE, min(level.share_more, HOT_SHARE), Cause.DRIFT, True, "runs slower than its own baseline")


class Allowance(NamedTuple):
    """Watts that each group may take: for rungs with no more heat there than now, and for those with more."""

    same: Heat
    more: Heat
    present: Heat
    most: Heat
    """What both come to: heat up to this fits."""

    def fits(self, heat: Heat) -> bool:
        """Whether no group gets more than it may take."""
        (h0, h1, h2), (m0, m1, m2) = heat, self.most
        return h0 <= m0 and h1 <= m1 and h2 <= m2

    def overloads(self, heat: Heat) -> tuple[float, float, float]:
        """The ratio of heat to allowance of each group; all 1 or less: fits."""
        (s0, s1, s2), (m0, m1, m2), (p0, p1, p2) = self.same, self.more, self.present
        h0, h1, h2 = heat
        return h0 / (m0 if h0 > p0 else s0), h1 / (m1 if h1 > p1 else s1), h2 / (m2 if h2 > p2 else s2)

    def overload(self, heat: Heat) -> float:
        """The worst ratio of a group, 1 if it fits."""
        return 1.0 if self.fits(heat) else max(1.0, *self.overloads(heat))


def allowance(policy: Policy, now: Levels, present: Heat) -> Allowance:
    """The allowances at these levels for one who is at `present`."""
    same, more, most = [], [], []
    for peak, level, here in zip(policy.peak, now, present, strict=True):
        peak_w = peak if peak > LEAST_PEAK_W else LEAST_PEAK_W
        s, m = peak_w * level.share, peak_w * level.share_more
        same.append(s)
        more.append(m)
        most.append(min(s, max(here, m)) * (1.0 + ROUNDING))
    return Allowance(_heat(same), _heat(more), present, _heat(most))


def _heat(watts: list[float]) -> Heat:
    nsp, cpu, board = watts
    return nsp, cpu, board


def choose(policy: Policy, plans: frozenset[PlanKind], most: Callable[[int], float], allowed: Allowance) -> Rung | None:
    """The first rung within all allowances, else the first of those that exceed them least; None if there are none.

    Args:
        policy: whose rungs, in their order.
        plans: that may be used.
        most: the highest rate at which a step may be used. Asked once a step.
        allowed: now.
    """
    limit: list[float | None] = [None if step.plan in plans else -1.0 for step in policy.steps]
    m0, m1, m2 = allowed.most
    for rung in policy.rungs:
        highest = limit[rung.step]
        if highest is None:
            highest = limit[rung.step] = most(rung.step)
        if rung.rate <= highest:
            h0, h1, h2 = rung.heat
            if h0 <= m0 and h1 <= m1 and h2 <= m2:
                return rung
    # Of one step, the lowest rate exceeds them least.
    usable = [rung for rung in policy.lowest if rung.rate <= (limit[rung.step] or -1.0)]
    return min(usable, key=lambda rung: allowed.overload(rung.heat), default=None)
