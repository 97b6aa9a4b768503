"""The scheduler at work: keeps its state, feeds it what happens, and hands on what it decides.

The scheduler itself is pure (edge_app.scheduler); this is the one place where it meets threads and clocks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from edge_app.clock import monotonic_us
from edge_app.errors import ConfigError
from edge_app.placing import Fault
from edge_app.scheduler import (
    Action,
    Decision,
    Event,
    EventKind,
    Inputs,
    Observation,
    Policy,
    admit,
    decide,
    initial_state,
    is_ready,
    retry_plan,
    with_zones,
)
from edge_app.scheduler.policy import NPU_PLANS, Limits
from edge_app.scheduler.words import FAULTS
from edge_app.verdict import Placement, PlanKind, PowerMode, SchedReason
from edge_app.zones import Zone, ZoneSnapshot

log = logging.getLogger(__name__)
EVENTS = {Fault.ERROR: EventKind.ERROR, Fault.WRONG_OUTPUT: EventKind.WRONG_OUTPUT, Fault.TIMEOUT: EventKind.TIMEOUT}
NOTHING_PLACED = Placement(PlanKind.CPU, PowerMode.NONE, 1.0, SchedReason.CONFIGURED)


class Governor:
    """Implements Placer by the scheduler. All methods may be called from any thread."""

    def __init__(
        self,
        policy: Policy,
        *,
        deadline_us: int | None,
        zones: Callable[[], ZoneSnapshot | None] = lambda: None,
        found: Callable[[], tuple[Zone, ...] | None] = lambda: None,
        normal: SchedReason = SchedReason.NORMAL,
    ) -> None:
        """Starts with nothing loaded.

        Args:
            policy: of this pipeline on this board.
            deadline_us: from capture to sealed verdict; None: there is none.
            zones: the latest readings.
            found: the zones that there are; those of `policy` at first, others may come.
            normal: told instead of NORMAL, e.g. NO_NPU where there is none.
        """
        self._policy, self._deadline_us, self._zones, self._normal = policy, deadline_us, zones, normal
        self._find, self._found = found, found()
        self._lock = threading.Lock()
        self._state = initial_state(policy)
        self._events: list[Event] = []
        self._observations: list[Observation] = []
        self._actions: list[Action] = []
        self._operator: PlanKind | None = None
        self._changes: list[tuple[Placement, str]] = []
        self.decision = Decision(None, "nothing was decided yet")
        self.last = NOTHING_PLACED
        self.npu_hung: tuple[PlanKind, str] | None = None
        """The NPU plan of which a run never returned, and what was told; None: none did."""

    def place(self) -> Placement | None:
        """See Placer. Decides with all that has happened since the last call."""
        with self._lock:
            return self._decide()

    def _decide(self) -> Placement | None:
        if (found := self._find()) is not self._found:
            self._watch(found)
        events, self._events = tuple(self._events), []
        observations, self._observations = tuple(self._observations), []
        inputs = Inputs(monotonic_us(), self._zones(), events, observations, self._deadline_us, self._operator)
        self._state, decision = decide(self._policy, self._state, inputs)
        self._actions += decision.actions
        placement = decision.placement
        if placement is not None:
            if placement.reason is SchedReason.NORMAL and self._normal is not SchedReason.NORMAL:
                placement = replace(placement, reason=self._normal)
            if (placement.plan, placement.power_mode) != (self.last.plan, self.last.power_mode):
                self._changes.append((placement, decision.detail))
            self.last = placement
        self.decision = decision
        return placement

    def _watch(self, found: tuple[Zone, ...] | None) -> None:
        """Zones came; of those whose limits can't hold, the group counts as it did before."""
        self._found = found
        try:
            self._policy = with_zones(self._policy, found or ())
        except ConfigError as error:
            log.error("zones that came after the start are not watched: %s", error)

    def admit(self) -> bool:
        """See Placer."""
        with self._lock:
            self._state, admitted = admit(self._state, monotonic_us())
        return admitted

    def is_ready(self, plan: PlanKind) -> bool:
        """See Placer. A fault counts from the moment it is told, decided upon or not."""
        with self._lock:
            told = any(event.plan is plan and event.kind in FAULTS for event in self._events)
            return not told and is_ready(self._state, plan)

    def observe(self, placement: Placement, infer_us: int, before_us: int = 0) -> None:
        """See Placer."""
        with self._lock:
            self._observations.append(Observation(placement.plan, placement.power_mode, infer_us, before_us))

    def fault(self, plan: PlanKind, fault: Fault, text: str) -> None:
        """See Placer."""
        if fault is Fault.TIMEOUT and plan in NPU_PLANS:
            self.npu_hung = plan, text
        self.tell(Event(EVENTS[fault], plan, text))

    def retry(self, tried: tuple[PlanKind, ...], time_left_us: int | None) -> Placement | None:
        """See Placer."""
        with self._lock:
            self._decide()  # the fault itself is known before the next plan is chosen
            answer = retry_plan(self._policy, self._state, tried, time_left_us, monotonic_us())
        return answer if isinstance(answer, Placement) else None

    @property
    def limits(self) -> Mapping[str, Limits]:
        """Warm, hot and trip point by zone."""
        return self._policy.limits

    @property
    def stale_us(self) -> int:
        """Zones that were read longer ago than this can't be believed."""
        return self._policy.stale_us

    def power_modes(self, plan: PlanKind) -> tuple[PowerMode, ...]:
        """The power modes in which the ladder may run a plan."""
        return tuple(step.power_mode for step in self._policy.steps if step.plan is plan)

    def tell(self, event: Event) -> None:
        """Something happened to a plan."""
        with self._lock:
            self._events.append(event)

    def take_actions(self) -> list[Action]:
        """What is to be done off the hot path; each action is given once."""
        with self._lock:
            actions, self._actions = self._actions, []
        return actions

    def take_changes(self) -> list[tuple[Placement, str]]:
        """Changes of plan or power mode since the last call, with the reason in words."""
        with self._lock:
            changes, self._changes = self._changes, []
        return changes

    @property
    def plans(self) -> tuple[PlanKind, ...]:
        """Those that there are, whether they are ready or not, the best first."""
        return tuple(dict.fromkeys(step.plan for step in self._policy.steps))

    def prefer(self, plan: PlanKind | None) -> None:
        """A plan that a person asked for is used alone as long as it is ready; None: as the scheduler sees fit."""
        with self._lock:
            self._operator = plan
