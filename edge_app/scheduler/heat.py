"""How much heat each group of zones may take now, and which rung stays within it.

Every group has an allowance that falls from all of its peak heat (up to warm) over a part of it (hot) to nothing (at
the trip point). The first rung, in the order of preference, that fits all three allowances is taken; if none fits, the
one that exceeds them least. So a hotter zone can never lead to a rung with more heat in that zone: making a zone
hotter only ever excludes rungs by their heat in that zone. tests/unit/test_scheduler_properties.py holds this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import IntEnum
from operator import itemgetter
from typing import NamedTuple

from edge_app.scheduler.policy import GROUPS, HOT_SHARE, UNKNOWN_SHARE, Heat, Policy, Rung
from edge_app.verdict import PlanKind
from edge_app.zones import ZoneReading, ZoneSnapshot, ZoneState

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
    known = {} if snapshot is None or stale else snapshot.known
    nsp, cpu, skin = [_group_level(policy, g, snapshot, known, stale) for g in range(3)]
    if any(drifted):
        nsp, cpu, skin = (_unless_drifted(level, d) for level, d in zip((nsp, cpu, skin), drifted, strict=True))
    return nsp, cpu, skin


def _group_level(
    policy: Policy, group: int, snapshot: ZoneSnapshot | None, known: Mapping[str, ZoneReading], stale: bool
) -> Level:
    if not policy.watched[group]:
        return UNLIMITED
    zones = policy.zones_of[group]
    if not zones:
        return Level(UNKNOWN_SHARE, UNKNOWN_SHARE, Cause.UNKNOWN, True, f"there is no {GROUPS[group]} zone")
    lookahead_s, hysteresis_k = policy.config.lookahead_s, policy.config.hysteresis_k
    top, share_more = COOL, 1.0
    for limits, names in zones:
        hottest_c, hottest, unknown_c = -math.inf, "", limits.unknown_c
        for name in names:
            reading = known.get(name)
            temp_c = unknown_c if reading is None else soon(reading, lookahead_s)
            if temp_c > hottest_c:
                hottest_c, hottest = temp_c, name
        if hottest_c + hysteresis_k <= limits.warm_c:
            continue
        cause, text = (Cause.MEASURED, hottest) if hottest in known else (Cause.UNKNOWN, _why(snapshot, hottest, stale))
        more = limits.share(hottest_c + hysteresis_k)
        level = Level(limits.share(hottest_c), more, cause, hottest_c >= limits.hot_c, text)
        top, share_more = min(top, level), min(share_more, more)
    return top if top.share_more == share_more else top._replace(share_more=share_more)


def soon(reading: ZoneReading, lookahead_s: float) -> float:
    """The temperature of a zone; of a rising one, what it will be after this time. Unknown is hotter than anything."""
    temp_c, rate = reading.temp_c, reading.rate_c_per_s
    if temp_c is None:
        return math.inf
    return temp_c + rate * lookahead_s if rate > 0.0 else temp_c


def _why(snapshot: ZoneSnapshot | None, name: str, stale: bool) -> str:
    """What is the matter with a zone that can't be believed."""
    state = ZoneState.ABSENT if snapshot is None else ZoneState.STALE if stale else snapshot.state_of(name)
    return f"{name} is {state}"


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
        (s0, s1, s2), (m0, m1, m2), (p0, p1, p2), (f0, f1, f2) = self
        h0, h1, h2 = heat
        worst = 1.0
        if h0 > f0:
            worst = h0 / (m0 if h0 > p0 else s0)
        if h1 > f1:
            worst = max(worst, h1 / (m1 if h1 > p1 else s1))
        if h2 > f2:
            worst = max(worst, h2 / (m2 if h2 > p2 else s2))
        return worst


def allowance(policy: Policy, now: Levels, present: Heat, leeway: float = 1.0) -> Allowance:
    """The allowances at these levels for one who is at `present`; with `leeway`, so many times as much up to hot."""
    (p0, p1, p2), (h0, h1, h2) = policy.peak, present
    nsp, cpu, skin = now if leeway == 1.0 else [_with_leeway(level, leeway) for level in now]
    s0, s1, s2 = p0 * nsp.share, p1 * cpu.share, p2 * skin.share
    m0, m1, m2 = p0 * nsp.share_more, p1 * cpu.share_more, p2 * skin.share_more
    f0, f1, f2 = (min(s0, max(h0, m0)), min(s1, max(h1, m1)), min(s2, max(h2, m2)))
    slack = 1.0 + ROUNDING
    return Allowance((s0, s1, s2), (m0, m1, m2), present, (f0 * slack, f1 * slack, f2 * slack))


def _with_leeway(level: Level, leeway: float) -> Level:
    """More heat up to hot; what is not known gets none."""
    if level.cause is Cause.UNKNOWN:
        return level
    share, more = [min(s * leeway, 1.0) if s > HOT_SHARE else s for s in (level.share, level.share_more)]
    return level._replace(share=share, share_more=more)


def choose(policy: Policy, plans: frozenset[PlanKind], most: Callable[[int], float], allowed: Allowance) -> Rung | None:
    """The first rung within all allowances, else the first of those that exceed them least; None if there are none.

    Args:
        policy: whose rungs, in their order.
        plans: that may be used.
        most: the highest rate at which a step may be used. Asked once a step.
        allowed: now.
    """
    lowest = policy.lowest[0].rate
    for steps in policy.ranks if allowed.fits(policy.least) else ():
        best, best_rate = None, 0.0
        for rungs in steps:
            top = rungs[0]
            if top.plan not in plans:
                continue
            rate = cool_rate(top.heat, allowed.most)
            if rate < lowest or rate <= best_rate:
                continue
            rate = min(rate, most(top.step))
            rung = next((rung for rung in rungs if rung.rate <= rate), None)
            if rung is not None and rung.rate > best_rate:
                best, best_rate = rung, rung.rate
                if rung is top:
                    break
        if best is not None:
            return best
    return _least_too_much(policy, plans, most, allowed)


def _least_too_much(
    policy: Policy, plans: frozenset[PlanKind], most: Callable[[int], float], allowed: Allowance
) -> Rung | None:
    """The first of those that exceed the allowances least: of one step, that is its lowest rate."""
    usable = [(allowed.overload(rung.heat), rung) for rung in policy.lowest if rung.plan in plans]
    usable.sort(key=itemgetter(0))
    return next((rung for _, rung in usable if rung.rate <= most(rung.step)), None)


def cool_rate(heat: Heat, most: Heat) -> float:
    """The highest rate at which a step with this heat stays within what each group may take."""
    (h0, h1, h2), (m0, m1, m2) = heat, most
    return min(m0 / h0 if h0 > m0 else 1.0, m1 / h1 if h1 > m1 else 1.0, m2 / h2 if h2 > m2 else 1.0)
