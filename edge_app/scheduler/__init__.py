"""The scheduler: where the next frame runs (plan, power mode, rate) by temperature, faults and deadline.

Pure: no clock, no threads, no I/O. The line owns the state and calls, per trigger,

    state, admitted = admit(state, now_us)
    state, decision = decide(policy, state, Inputs(now_us, zones, events, observations, deadline_us))

and after a fault `retry_plan(policy, state, tried, time_left_us, now_us)` for the same frame. `decision.actions` are
carried out off the hot path and come back as events. How a decision comes about, file by file:

    policy.py   the pipeline's `scheduler:` and the board's zones, worked out once
    faults.py   a circuit breaker for each plan; cold starts; which sessions to build, which canaries to run
    drift.py    latency against its own baseline: throttling that no zone shows
    fit.py      which rungs meet the deadline and keep up with the triggers
    heat.py     how much heat each zone may take, and the first rung that stays within it
    trial.py    other plans in turn where the rate stays low: the ladder may be wrong for this board
    lost.py     a zone that is lost, watched through the board's
    decide.py   all of it together, with dwell times
    explain.py  the reason, the alarms
"""

from edge_app.scheduler.decide import admit, decide
from edge_app.scheduler.policy import Policy, build_policy, group_of, with_zones
from edge_app.scheduler.retry import retry_plan
from edge_app.scheduler.state import State, initial_state, is_ready
from edge_app.scheduler.words import (
    Action,
    ActionKind,
    Alarm,
    Decision,
    Event,
    EventKind,
    Inputs,
    Observation,
)

__all__ = [
    "Action",
    "ActionKind",
    "Alarm",
    "Decision",
    "Event",
    "EventKind",
    "Inputs",
    "Observation",
    "Policy",
    "State",
    "admit",
    "build_policy",
    "decide",
    "group_of",
    "initial_state",
    "is_ready",
    "retry_plan",
    "with_zones",
]
