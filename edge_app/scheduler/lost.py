"""A zone that can't be believed is watched through the board's own zone.

Counting as hot is not enough where it is never read: with no feedback, a heat that one board stands for ever is too
much for another. While both are known, it is learnt by how much the zones of a group stand above the board's per watt
that the ladder says. Once the group is lost, the board's zone must stay so far below the lost zone's limits. Only the
board's allowance is lowered by this, so a hotter board still never gets more heat (see heat.py).
"""

from __future__ import annotations

from typing import NamedTuple

from edge_app.scheduler.heat import Cause, Level, Levels, soon
from edge_app.scheduler.policy import GROUPS, UNKNOWN_SHARE, Heat, Policy, Zones
from edge_app.zones import ZoneSnapshot

BOARD = 2
"""Index into GROUPS."""
FORGET_S = 600.0
LEARN_SHARE = 0.25
"""Of a group's peak heat: with less, what warms it is its neighbours."""
LEARN_WHILE_US = 2_000_000
"""Since the last trigger: an idle line does not put in the heat that its rung says."""


class Rise(NamedTuple):
    """How far a group stands above the board: sums of a straight line through zero, the old slowly forgotten."""

    kelvin_watts: float = 0.0
    watts_squared: float = 0.0

    @property
    def k_per_w(self) -> float:
        """Kelvin per watt; 0 if nothing was learnt: no group is cooler than the board."""
        return self.kelvin_watts / self.watts_squared if self.watts_squared > 0.0 else 0.0


Rises = tuple[Rise, Rise]
NOTHING_LEARNT = (Rise(), Rise())


def learn(policy: Policy, rises: Rises, snapshot: ZoneSnapshot, heat: Heat, dt_s: float) -> Rises:
    """What a new snapshot adds, taken `dt_s` after the last one, while `heat` was put in."""
    board_c = hottest_c(snapshot, policy.zones_of[BOARD])
    if board_c is None:
        return rises
    keep, learnt = max(1.0 - dt_s / FORGET_S, 0.0), list(rises)
    for g in range(BOARD):
        watts = heat[g]
        if watts <= 0.0 or watts < LEARN_SHARE * policy.peak[g]:
            continue
        zone_c = hottest_c(snapshot, policy.zones_of[g])
        if zone_c is not None:
            above_k = max(zone_c - board_c, 0.0)
            was = rises[g]
            learnt[g] = Rise(
                was.kelvin_watts * keep + above_k * watts * dt_s, was.watts_squared * keep + watts * watts * dt_s
            )
    return learnt[0], learnt[1]


def guarded(policy: Policy, rises: Rises, levels: Levels, snapshot: ZoneSnapshot | None) -> Levels:
    """The levels with the board's lowered on behalf of groups that can't be believed."""
    lost = [g for g in range(BOARD) if levels[g].cause is Cause.UNKNOWN and policy.zones_of[g]]
    board = levels[BOARD]
    if not lost or snapshot is None or board.cause is Cause.UNKNOWN:
        return levels
    board_c = hottest_soon_c(snapshot, policy.zones_of[BOARD], policy.config.lookahead_s)
    if board_c is None:
        return levels
    for g in lost:
        likely_c = board_c + rises[g].k_per_w * UNKNOWN_SHARE * policy.peak[g]
        limits = min((limits for limits, _ in policy.zones_of[g]), key=lambda one: one.trip_c)
        share, more = limits.share(likely_c), limits.share(likely_c + policy.config.hysteresis_k)
        if share < board.share:
            zone = f"{GROUPS[g]} can't be read, and by the board's temperature may be hot"
            board = Level(share, min(more, board.share_more), Cause.UNKNOWN, likely_c >= limits.hot_c, zone)
    return levels[0], levels[1], board


def hottest_c(snapshot: ZoneSnapshot, zones: Zones) -> float | None:
    """Of these zones; None if none can be believed."""
    known = snapshot.known
    return max((known[name].temp_c or 0.0 for _, names in zones for name in names if name in known), default=None)


def hottest_soon_c(snapshot: ZoneSnapshot, zones: Zones, lookahead_s: float) -> float | None:
    """The same, of rising ones as they will be after this time."""
    known = [snapshot.known[name] for _, names in zones for name in names if name in snapshot.known]
    return max((soon(reading, lookahead_s) for reading in known), default=None)
