"""The decision itself: a pure function of state and inputs."""

from __future__ import annotations

from collections.abc import Callable

from edge_app.scheduler.drift import median, observe
from edge_app.scheduler.explain import Picture, explain
from edge_app.scheduler.faults import Healths, Phase, advance, apply_event
from edge_app.scheduler.fit import Fit
from edge_app.scheduler.heat import Allowance, allowance, choose, levels
from edge_app.scheduler.lost import LEARN_WHILE_US, Rises, guarded, learn
from edge_app.scheduler.policy import Policy, Rung, Zones
from edge_app.scheduler.state import Held, Meters, Pace, State
from edge_app.scheduler.trial import NO_TRIAL, leeway, next_trial
from edge_app.scheduler.words import Decision, Inputs, Observation
from edge_app.verdict import PlanKind, PowerMode
from edge_app.zones import ZoneSnapshot

THINK_EVERY_US = 1_000_000
"""Without news a decision is repeated as it stands for so long: timers (dwell, pauses) are no finer than this."""
MOST_RETREATS = 3
"""A step up waits for eight times `dwell.up_s` at most."""
BATCH = 15
"""Of trigger intervals and of times outside the run; their medians count."""
NO_HEAT = (0.0, 0.0, 0.0)


def decide(policy: Policy, state: State, inputs: Inputs) -> tuple[State, Decision]:
    """Where the next frame runs, and why.

    Args:
        policy: see `build_policy`.
        state: from the last call.
        inputs: what has happened since, and the latest zones.

    Returns:
        The next state, and the decision: a placement unless no plan is left, always a reason, and actions to carry
        out off the hot path (each is given once).
    """
    health, meters, pace, held = state
    for event in inputs.events:
        health = apply_event(policy, health, event, inputs.now_us)
    for observation in inputs.observations:
        meters = _observed(policy, meters, held.rung, observation, inputs.now_us)
    known = State(health, meters, pace, held)
    if _is_news(held, inputs):
        return _think(policy, known, inputs)
    return known, held.decision


def admit(state: State, now_us: int) -> tuple[State, bool]:
    """Whether a trigger is inspected at the present rate; call it once per trigger. Refused ones are UNKNOWN/OVERLOAD.

    Rate r admits every 1/r-th trigger, spread evenly and always in the same pattern (the error of the share so far
    is carried on).
    """
    health, meters, pace, held = state
    credit = pace.credit + (1.0 if held.rung is None else held.rung.rate)
    admitted = credit >= 1.0 - 1e-9
    credit = min(credit - 1.0, 1.0) if admitted else credit
    return State(health, meters, _arrived(pace, credit, now_us), held), admitted


def _arrived(pace: Pace, credit: float, now_us: int) -> Pace:
    if pace.last_us == 0:
        return Pace(now_us, (), 0, credit)
    intervals = (*pace.intervals_us, now_us - pace.last_us)
    if len(intervals) < BATCH:
        return Pace(now_us, intervals, pace.interval_us, credit)
    return Pace(now_us, (), median(intervals), credit)


def _observed(policy: Policy, meters: Meters, present: Rung | None, seen: Observation, now_us: int) -> Meters:
    tracks, other_us, others = meters
    if present is not None and present.plan is seen.plan and present.power_mode is seen.power_mode:
        step: int | None = present.step
    else:
        step = step_of(policy, seen.plan, seen.power_mode)
    if step is not None:
        track = observe(tracks[step], seen.infer_us, now_us, policy.config.drift)
        tracks = (*tracks[:step], track, *tracks[step + 1 :])
    others = (*others, seen.other_us)
    return Meters(tracks, other_us, others) if len(others) < BATCH else Meters(tracks, median(others), ())


def step_of(policy: Policy, plan: PlanKind, mode: PowerMode) -> int | None:
    """The index of a step; None if the ladder has no such step."""
    for index, step in enumerate(policy.steps):
        if step.plan is plan and step.power_mode is mode:
            return index
    return None


def _is_news(held: Held, inputs: Inputs) -> bool:
    return (
        bool(inputs.events)
        or inputs.now_us >= held.think_us
        or (inputs.zones is not None and inputs.zones.t_us != held.zones_us)
        or inputs.deadline_us != held.deadline_us
        or inputs.operator is not held.operator
    )


def _think(policy: Policy, state: State, inputs: Inputs) -> tuple[State, Decision]:
    now, was = inputs.now_us, state.held
    cold = is_cold(policy, was.cold, inputs.zones)
    health, actions = advance(policy, state.health, now, cold)
    rises = _learnt(policy, state, inputs)
    usable = _usable(policy, health, state, inputs.operator)
    trial = NO_TRIAL
    # By the last decision, not by these zones. Where a zone is lost the rate is low for caution, not for the ladder.
    if was.rung is not None and policy.config.trigger == "external" and "sensor_lost" not in was.decision.degraded:
        trial = next_trial(policy.config.trial, was.trial, usable, was.rung, now)
    held = was._replace(cold=cold, deadline_us=inputs.deadline_us, operator=inputs.operator, rises=rises, trial=trial)
    state = State(health, state.meters, state.pace, held)
    drifted = drifted_groups(policy, state, now)
    hot = guarded(policy, held.rises, levels(policy, inputs.zones, now, drifted), inputs.zones)
    more = leeway(policy.config.trial, state.held.trial, now)
    allowed = allowance(policy, hot, NO_HEAT if was.rung is None else was.rung.heat, more)
    fit = Fit(policy, state, now)
    rung, up = _next_rung(policy, state, usable, allowed, fit, now)
    decision = explain(Picture(policy, state, inputs, rung, hot, allowed, fit, drifted))
    state = _settled(policy, state, rung, decision, inputs, up=up)
    return state, decision._replace(actions=actions) if actions else decision


def _learnt(policy: Policy, state: State, inputs: Inputs) -> Rises:
    """What is known of how far groups stand above the board; more with each new snapshot while parts come."""
    held, zones = state.held, inputs.zones
    idle = inputs.now_us - state.pace.last_us > LEARN_WHILE_US
    if zones is None or held.rung is None or idle or not 0 <= held.zones_us < zones.t_us:
        return held.rises
    return learn(policy, held.rises, zones, held.rung.heat, (zones.t_us - held.zones_us) / 1e6)


def is_cold(policy: Policy, was: bool, snapshot: ZoneSnapshot | None) -> bool:
    """Whether the NPU is too cold to be started: by its coldest known zone, or if none is known by any other.

    It is cold below `cold.below_c`, and until it has reached `cold.until_c`.
    """
    if snapshot is None:
        return was
    nsp, cpu, skin = policy.zones_of
    known = known_c(snapshot, nsp) or known_c(snapshot, cpu + skin)
    return min(known) < (policy.config.cold.until_c if was else policy.config.cold.below_c) if known else was


def known_c(snapshot: ZoneSnapshot, zones: Zones) -> list[float]:
    """The temperatures of these zones, as far as they can be believed."""
    known = snapshot.known
    return [known[name].temp_c or 0.0 for _, names in zones for name in names if name in known]


def drifted_groups(policy: Policy, state: State, now_us: int) -> tuple[bool, bool, bool]:
    """Groups whose plans run slower than their baselines; the board as a whole is not blamed.

    Where no zone is watched (no board, no NPU) a slow run is another program's doing: refusing parts would not cool it.
    Nor does it say anything where a run's time depends on what is in the picture, as with a model run on each crop.
    """
    slow = [i for i, track in enumerate(state.meters.tracks) if now_us < track.drifted_until_us]
    if not slow or not policy.alike or not any(policy.watched):
        return False, False, False
    plans = {policy.steps[i].plan for i in slow}
    return plans != {PlanKind.CPU}, plans != {PlanKind.HTP}, False


def _usable(policy: Policy, healths: Healths, state: State, operator: PlanKind | None) -> frozenset[PlanKind]:
    """Plans that are ready and may be switched to from the present one; any, before the first trigger."""
    ready = [plan for plan, health in healths.items() if health.phase is Phase.READY]
    if state.held.rung is not None and state.pace.last_us != 0:
        present = state.held.rung.plan
        ready = [plan for plan in ready if policy.may_switch(present, plan)]
    if operator in ready:
        return frozenset({operator})
    return frozenset(ready)


def _next_rung(
    policy: Policy, state: State, usable: frozenset[PlanKind], allowed: Allowance, fit: Fit, now_us: int
) -> tuple[Rung | None, bool]:
    """The best rung if it may be taken now, else the present one; None if no plan is usable. And whether it is a step
    up: one that nothing forces.

    Rungs that are in time and keep up come first; if there are none, those that keep up; if there are none either, all.
    A plan that is out is left at once, and before the first trigger nothing has to dwell; otherwise dwell times hold.
    """
    present = state.held.rung
    for most in (fit.rate_in_time, fit.sustained_rate, any_rate):
        target = _best(policy, usable, state.held.trial.first, most, allowed)
        if target is None:
            continue
        if present is None or target is present or present.plan not in usable or state.pace.last_us == 0:
            return target, False
        must = present.rate > most(present.step) or allowed.overload(target.heat) < allowed.overload(present.heat)
        dwell = policy.dwell_down_us if must else policy.dwell_up_us << state.held.retreats
        return (target, not must) if now_us - state.held.changed_us >= dwell else (present, False)
    return None, False


def _best(
    policy: Policy,
    usable: frozenset[PlanKind],
    first: PlanKind | None,
    most: Callable[[int], float],
    allowed: Allowance,
) -> Rung | None:
    """The best rung of the plan that goes first if it has one within all allowances, else of all plans."""
    if first in usable:
        rung = choose(policy, frozenset({first}), most, allowed)
        if rung is not None and allowed.fits(rung.heat):
            return rung
    return choose(policy, usable, most, allowed)


def any_rate(_step: int) -> float:
    """No limit: for a board where no plan is fast enough."""
    return 1.0


def _settled(
    policy: Policy, state: State, rung: Rung | None, decision: Decision, inputs: Inputs, *, up: bool
) -> State:
    held, meters = state.held, state.meters
    changed = rung is not None and rung is not held.rung
    if changed and held.rung is not None:  # a batch that spans a switch would mix two times
        tracks = tuple(t._replace(batch=()) if i == held.rung.step else t for i, t in enumerate(meters.tracks))
        meters = meters._replace(tracks=tracks)
    raised_us, retreats = held.raised_us, held.retreats
    if changed and up:
        raised_us, retreats = inputs.now_us, retreats if raised_us == 0 else 0  # else the one before has held
    elif changed and raised_us:
        soon = inputs.now_us - raised_us < policy.dwell_up_us
        raised_us, retreats = 0, min(retreats + 1, MOST_RETREATS) if soon else 0
    held = Held(
        rung=rung if rung is not None else held.rung,
        changed_us=inputs.now_us if changed else held.changed_us,
        cold=held.cold,
        decision=decision,
        zones_us=-1 if inputs.zones is None else inputs.zones.t_us,
        think_us=inputs.now_us + THINK_EVERY_US,
        deadline_us=inputs.deadline_us,
        operator=inputs.operator,
        rises=held.rises,
        trial=held.trial,
        raised_us=raised_us,
        retreats=retreats,
    )
    return State(state.health, meters, state.pace, held)
