"""A circuit breaker for each plan: out after a fault, built again after a pause, proven by its canary, back.

OFFLINE -> LOADING -> UNPROVEN -> TESTING -> READY
   ^          |                      |         |
   +-- OPEN <-+----------------------+---------+     a fault; the pause doubles each time
       BARRED                                        a run that never returned, or too many starts that failed
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from edge_app.config.scheduler import Faults
from edge_app.scheduler.policy import NPU_PLANS, Policy
from edge_app.scheduler.words import FAULTS, Action, ActionKind, Event, EventKind
from edge_app.verdict import PlanKind, PowerMode


class Phase(StrEnum):
    """Where a plan is on its way."""

    OFFLINE = "offline"
    LOADING = "loading"
    UNPROVEN = "unproven"
    TESTING = "testing"
    READY = "ready"
    OPEN = "open"
    BARRED = "barred"


@dataclass(frozen=True, slots=True)
class Health:
    """One plan's breaker."""

    phase: Phase = Phase.OFFLINE
    failures: int = 0
    """Faults in a row."""
    since_us: int = 0
    """When the phase began."""
    retry_us: int = 0
    """OPEN: when it is tried again."""
    text: str = ""
    """The last fault."""
    loaded_us: Mapping[PowerMode, int] = field(default_factory=dict)
    """How long a run took when the session was warmed up, by power mode, as far as it was measured."""


Healths = Mapping[PlanKind, Health]


def pause_us(faults: Faults, failures: int) -> int:
    """How long a plan rests after so many faults in a row."""
    return round(min(faults.backoff_s * 2.0 ** min(max(failures - 1, 0), 30), faults.backoff_max_s) * 1e6)


def apply_event(policy: Policy, healths: Healths, event: Event, now_us: int) -> Healths:
    """The breakers after an event. Events that come late, for a plan that is out already, change nothing."""
    if event.kind is EventKind.TIMEOUT and event.plan in NPU_PLANS:
        return _without_npu(healths, event, now_us)
    health = healths.get(event.plan)
    if health is None or health.phase is Phase.BARRED:
        return healths
    changed = dict(healths)
    if event.kind is EventKind.LOADED:
        doubtful = event.plan in NPU_PLANS or health.failures > 0
        phase = Phase.UNPROVEN if policy.canaries and doubtful else Phase.READY
        changed[event.plan] = replace(health, phase=phase, since_us=now_us, loaded_us=_measured(policy, health, event))
    elif event.kind is EventKind.CANARY_PASSED:
        if health.phase in (Phase.UNPROVEN, Phase.TESTING):
            changed[event.plan] = replace(health, phase=Phase.READY, since_us=now_us)
    elif event.kind in FAULTS and health.phase is not Phase.OPEN:
        changed[event.plan] = _fail(policy.config.faults, health, event, now_us)
    return changed


def _measured(policy: Policy, health: Health, event: Event) -> Mapping[PowerMode, int]:
    if event.latencies_us or event.latency_us is None:
        return event.latencies_us or health.loaded_us
    first = next(step.power_mode for step in policy.steps if step.plan is event.plan)
    return {first: event.latency_us}


def _fail(faults: Faults, health: Health, event: Event, now_us: int) -> Health:
    forgiven = health.phase is Phase.READY and now_us - health.since_us >= faults.forgive_s * 1e6
    failures = 1 if forgiven else health.failures + 1
    text = event.text or event.kind.value
    if failures > faults.retries and event.plan in NPU_PLANS:
        return replace(
            health,
            phase=Phase.BARRED,
            failures=failures,
            since_us=now_us,
            text=f"{failures} faults in a row, the last: {text}",
        )
    return replace(
        health,
        phase=Phase.OPEN,
        failures=failures,
        since_us=now_us,
        text=text,
        retry_us=now_us + pause_us(faults, failures),
    )


def _without_npu(healths: Healths, event: Event, now_us: int) -> Healths:
    """A run that hangs still holds its processor, so the whole NPU is out for good. (A CPU session is built anew.)"""
    text = event.text or "a run did not return"
    return {
        plan: replace(health, phase=Phase.BARRED, since_us=now_us, text=text) if plan in NPU_PLANS else health
        for plan, health in healths.items()
    }


def advance(policy: Policy, healths: Healths, now_us: int, cold: bool) -> tuple[Healths, tuple[Action, ...]]:
    """What is due now: sessions to build, canaries to run; some plans wait while the chip is cold."""
    changed: dict[PlanKind, Health] | None = None
    actions: list[Action] = []
    for plan, health in healths.items():
        due = _due(health, now_us)
        if due is None or (cold and plan in waits_when_cold(policy)):
            continue
        phase = Phase.LOADING if due is ActionKind.LOAD else Phase.TESTING
        changed = dict(healths) if changed is None else changed
        changed[plan] = replace(health, phase=phase, since_us=now_us)
        actions.append(Action(due, plan))
    return (healths if changed is None else changed), tuple(actions)


def _due(health: Health, now_us: int) -> ActionKind | None:
    if health.phase is Phase.OFFLINE or (health.phase is Phase.OPEN and now_us >= health.retry_us):
        return ActionKind.LOAD
    return ActionKind.CANARY if health.phase is Phase.UNPROVEN else None


def waits_when_cold(policy: Policy) -> frozenset[PlanKind]:
    """Plans that a cold chip does not start: those before `cold.start_on`, else all but the cpu plan.

    A model with nothing else is started whatever the temperature.
    """
    start_on = policy.config.cold.start_on
    safe = PlanKind.CPU if start_on not in policy.plans else start_on
    if safe not in policy.plans:
        return frozenset()
    waiting = {PlanKind.HTP} if safe is PlanKind.HYBRID else set(NPU_PLANS)
    return frozenset(waiting & set(policy.plans))
