"""Other plans are tried in turn where most parts have been refused for a long time.

The ladder's watts may be wrong for a board: the plan that counts as the hungrier may be the cooler one there, and one
that is never run is never found out. So after `trial.after_s` at a low rate each other plan goes before all others for
`trial.for_s`, and the one that reached the highest rate goes first for `trial.keep_s`. Only the order changes, not what
a zone may take, and it goes by rates and time alone: so a hotter zone still never gets more heat (see heat.py).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from edge_app.config.scheduler import Trial as Config
from edge_app.scheduler.policy import Rung
from edge_app.verdict import PlanKind


class Trial(NamedTuple):
    """Which plan goes first, and why."""

    first: PlanKind | None = None
    """Goes before all others; None: the ladder's order."""
    since_us: int | None = None
    """Since when; of the ladder's order, since when the rate is low. None: it is not."""
    reached: tuple[tuple[PlanKind, float], ...] = ()
    """While plans are tried: the rates of those that had their turn, first that of the ladder's order."""


NO_TRIAL = Trial()


def next_trial(config: Config, trial: Trial, usable: Collection[PlanKind], rung: Rung, now_us: int) -> Trial:
    """Which plan goes first now, by the rung that was decided last."""
    if trial.first is None:
        if rung.rate >= config.below:
            return NO_TRIAL
        if trial.since_us is None:
            return Trial(since_us=now_us)
    lasted_s = (now_us - (trial.since_us or 0)) / 1e6
    if trial.first is not None and not trial.reached:
        return trial if lasted_s < config.keep_s else NO_TRIAL
    if lasted_s < (config.for_s if trial.reached else config.after_s):
        return trial
    tried = trial.first or rung.plan
    return _next_turn(config, (*trial.reached, (tried, rung.rate)), usable, now_us)


def leeway(config: Config, trial: Trial, now_us: int) -> float:
    """How many times as much as the ladder says a plan may put into zones that are not hot: it grows with its turn."""
    if trial.first is None or trial.since_us is None:
        return 1.0
    return 1.0 + min((now_us - trial.since_us) / 1e6 / config.for_s, 1.0)


def _next_turn(
    config: Config, reached: tuple[tuple[PlanKind, float], ...], usable: Collection[PlanKind], now_us: int
) -> Trial:
    had_turns = [plan for plan, _ in reached]
    waiting = [plan for plan in PlanKind if plan in usable and plan not in had_turns]
    if waiting:
        return Trial(waiting[0], now_us, reached)
    best, rate = max(reached, key=lambda turn: turn[1])
    if rate > reached[0][1]:
        return Trial(best, now_us)
    return Trial(since_us=now_us + round(config.keep_s * 1e6))  # no plan did better: not again so soon
