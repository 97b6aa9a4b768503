"""What the scheduler remembers between two decisions. Tuples, since parts of it are made anew for every frame."""

from __future__ import annotations

from typing import NamedTuple

from edge_app.scheduler.drift import Track
from edge_app.scheduler.faults import Health, Healths, Phase
from edge_app.scheduler.lost import NOTHING_LEARNT, Rises
from edge_app.scheduler.policy import Policy, Rung
from edge_app.scheduler.trial import NO_TRIAL, Trial
from edge_app.scheduler.words import Decision
from edge_app.verdict import PlanKind

NOTHING_YET = Decision(None, "nothing was decided yet")


class Pace(NamedTuple):
    """How triggers come, and which of them are admitted."""

    last_us: int = 0
    intervals_us: tuple[int, ...] = ()
    interval_us: int = 0
    """Median of a batch, robust against pauses of the line; 0: not known yet."""
    credit: float = 1.0
    """Of the admission rate: each whole one admits a trigger. 1: the first one is admitted."""


class Meters(NamedTuple):
    """How long frames take."""

    tracks: tuple[Track, ...]
    """Of runs, by Policy.steps."""
    other_us: int = 0
    """Median of what frames spend outside the run."""
    others_us: tuple[int, ...] = ()
    """Since the last median was taken."""


class Held(NamedTuple):
    """The present decision, and what it was made of: it is given again while nothing new is known."""

    rung: Rung | None = None
    changed_us: int = 0
    """When this rung was decided."""
    cold: bool = False
    decision: Decision = NOTHING_YET
    """Without its actions."""
    zones_us: int = -1
    """Which snapshot it knew; -1: none."""
    think_us: int = 0
    """When it is thought about again, whatever happens."""
    deadline_us: int | None = None
    operator: PlanKind | None = None
    rises: Rises = NOTHING_LEARNT
    """How far groups of zones stand above the board."""
    trial: Trial = NO_TRIAL
    raised_us: int = 0
    """When the last step up was taken; 0: it was taken back since."""
    retreats: int = 0
    """How many steps up in a row had to be taken back soon: each makes the next one wait twice as long."""


class State(NamedTuple):
    """One moment of the scheduler. Made by `initial_state`, then only by `decide` and `admit`."""

    health: Healths
    meters: Meters
    pace: Pace
    held: Held


def is_ready(state: State, plan: PlanKind) -> bool:
    """Whether a plan is loaded, proven and not out."""
    health = state.health.get(plan)
    return health is not None and health.phase is Phase.READY


def initial_state(policy: Policy) -> State:
    """Nothing is loaded, nothing is known."""
    health = {plan: Health() for plan in policy.plans}
    return State(health, Meters(tuple(Track() for _ in policy.steps)), Pace(), Held())
