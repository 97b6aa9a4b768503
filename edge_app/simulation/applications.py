"""What decides where frames run: the product with the real scheduler, and an application without one.

With the scheduler every trigger is sealed, so a lost one is a bug. Without it the application runs `htp` in `burst`
always, takes no notice of temperatures, dies when the NPU fails, and is started again by its supervisor.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import NamedTuple, Protocol

from edge_app.scheduler import (
    ActionKind,
    Event,
    EventKind,
    Inputs,
    Observation,
    admit,
    build_policy,
    decide,
    initial_state,
    retry_plan,
)
from edge_app.simulation.plant import ZONES
from edge_app.simulation.record import Run
from edge_app.simulation.world import NpuLost, World
from edge_app.thermal import ZoneFile, ZoneReader
from edge_app.verdict import Placement, PlanKind, PowerMode, SchedReason
from edge_app.zones import Trip, Zone, ZoneGroup

PLANS = (PlanKind.HTP, PlanKind.HYBRID, PlanKind.CPU)
AGREE = ((PlanKind.HTP, PlanKind.HYBRID), (PlanKind.HTP, PlanKind.CPU), (PlanKind.HYBRID, PlanKind.CPU))
TIMEOUT_US = 3_000_000


class Served(NamedTuple):
    """What one frame took and how it ended."""

    done_us: int
    outcome: str
    """A counter of Run."""
    nsp_j: float = 0.0
    cpu_j: float = 0.0
    infer_ms: float | None = None
    latency_ms: float | None = None


NOT_SERVED = Served(0, "lost")


class Application(Protocol):
    """What decides where frames run."""

    @property
    def placement(self) -> Placement | None:
        """Where the next frame would run; None: nowhere."""

    def frame(self, world: World, run: Run) -> Served:
        """One trigger, now."""


class Line:
    """The stages of a line as far as they matter here: one session runs at a time, a few frames may wait."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._free_us = 0
        self._done: deque[int] = deque()

    def is_full(self) -> bool:
        """Whether every slot is taken."""
        while self._done and self._done[0] <= self._world.t_us:
            self._done.popleft()
        return len(self._done) >= self._world.scenario.slots

    def wait_us(self) -> int:
        """How long a frame that comes now waits for its run."""
        return max(self._free_us - self._world.t_us, 0)

    def occupy(self, until_us: int) -> None:
        """The session is busy until then."""
        self._free_us = max(until_us, self._free_us)
        self._done.append(self._free_us)

    def outcome(self, done_us: int) -> str:
        """In time or late."""
        late = done_us - self._world.t_us > self._world.scenario.deadline_ms * 1000
        return "late" if late else "inspected"


class Scheduled:
    """The product: the real scheduler, its actions carried out as the line does."""

    def __init__(self, world: World) -> None:
        config = world.scenario.scheduler
        zones = [
            Zone(name, name, ZoneGroup(name), (Trip("passive", trip),))
            for name, trip in zip(ZONES, world.plant.trips_c, strict=True)
        ]
        self.policy = build_policy(config, PLANS, AGREE, zones)
        self.state = initial_state(self.policy)
        self._reader = ZoneReader([ZoneFile(zone, Path(zone.name)) for zone in zones], config.frozen_s)
        self._sample_us = round(config.sample_s * 1e6)
        self._snapshot = self._reader.judge(world.t_us, world.sysfs())
        self._pending: list[tuple[int, Event]] = []
        self._seen: tuple[Observation, ...] = ()
        self._deadline_us = round(world.scenario.deadline_ms * 1000)
        self._line = Line(world)
        self._load_before_start(world)

    @property
    def placement(self) -> Placement | None:
        """See Application."""
        return self.state.held.decision.placement

    def frame(self, world: World, run: Run) -> Served:
        """See Application."""
        if world.t_us - self._snapshot.t_us >= self._sample_us:
            self._snapshot = self._reader.judge(world.t_us, world.sysfs())
        self.state, admitted = admit(self.state, world.t_us)
        placement = self._decide(world)
        if placement is None:
            return Served(world.t_us, "fault")
        if not admitted:
            return Served(world.t_us, "overload")
        if self._line.is_full():
            return Served(world.t_us, "overrun")
        return self._serve(world, run, placement)

    def _load_before_start(self, world: World) -> None:
        """As the node does before it is READY: what the first decision asks for is loaded and proven."""
        now = world.t_us
        self.state, decision = decide(self.policy, self.state, Inputs(now, self._snapshot))
        for action in decision.actions:
            ok = world.starts(action.plan)
            loaded_us = self._measured(world, action.plan)
            kinds = (EventKind.LOADED, EventKind.CANARY_PASSED) if ok else (EventKind.LOAD_FAILED,)
            self._pending.extend((now, Event(kind, action.plan, "no start", latencies_us=loaded_us)) for kind in kinds)

    def _measured(self, world: World, plan: PlanKind) -> dict[PowerMode, int]:
        """What warming a plan up tells: a run in each of its power modes."""
        modes = [step.power_mode for step in self.policy.steps if step.plan is plan]
        return {mode: round(world.plant.run(plan, mode)[0] * 1000) for mode in modes}

    def _decide(self, world: World) -> Placement | None:
        due: tuple[Event, ...] = ()
        if self._pending:
            due = tuple(event for at_us, event in self._pending if at_us <= world.t_us)
            self._pending = [item for item in self._pending if item[0] > world.t_us]
        inputs = Inputs(world.t_us, self._snapshot, due, self._seen, self._deadline_us)
        self.state, decision = decide(self.policy, self.state, inputs)
        self._seen = ()
        for action in decision.actions:
            self._pending.append(self._carry_out(world, action.kind, action.plan))
        return decision.placement

    def _carry_out(self, world: World, kind: ActionKind, plan: PlanKind) -> tuple[int, Event]:
        k = world.plant.constants
        if kind is ActionKind.CANARY:
            passed = world.npu_fault() is None
            return world.t_us + round(k.canary_s * 1e6), Event(
                EventKind.CANARY_PASSED if passed else EventKind.CANARY_FAILED, plan, "" if passed else "wrong canary"
            )
        if world.starts(plan):
            loaded = Event(EventKind.LOADED, plan, latencies_us=self._measured(world, plan))
            return world.t_us + round(k.load_s * 1e6), loaded
        return world.t_us + round(k.load_s * 1e6), Event(EventKind.LOAD_FAILED, plan, "no start: error code 14001")

    def _if_still_up(self, placement: Placement, now_us: int, t_us: int) -> Placement:
        """A frame that waited behind a hung run does not go to the NPU after it: the line looks again."""
        if not self._pending or placement.plan is PlanKind.CPU:
            return placement
        if not any(e.kind is EventKind.TIMEOUT and at_us <= now_us for at_us, e in self._pending):
            return placement
        left_us = t_us + self._deadline_us - now_us
        again = retry_plan(self.policy, self.state, (PlanKind.HTP, PlanKind.HYBRID), left_us, now_us)
        return placement if isinstance(again, str) else again

    def _serve(self, world: World, run: Run, placement: Placement) -> Served:
        """One frame, on the next plan again if its run fails."""
        k = world.plant.constants
        now = world.t_us + round(k.host_ms * 1000) + self._line.wait_us()
        if now - world.t_us >= self._deadline_us:  # sealed UNKNOWN/LATE while it waited, and not run at all
            return Served(now, "late")
        placement = self._if_still_up(placement, now, world.t_us)
        tried: list[PlanKind] = []
        failed_us: int | None = None
        while True:
            try:
                ms, nsp_j, cpu_j = world.run(placement.plan, placement.power_mode)
            except NpuLost as lost:
                tried.append(placement.plan)
                now += TIMEOUT_US if lost.hangs else round(k.fault_ms * 1000)
                kind = EventKind.TIMEOUT if lost.hangs else EventKind.ERROR
                self._pending.append((now, Event(kind, placement.plan, "ENGINE_ERROR: error code: 1007")))
                failed_us = now if failed_us is None else failed_us
                left_us = world.t_us + self._deadline_us - now
                again = retry_plan(self.policy, self.state, tuple(tried), left_us, now)
                if isinstance(again, str):
                    self._line.occupy(now)
                    return Served(now, "late" if left_us <= 0 else "fault")
                placement, run.retried = again, run.retried + 1
                continue
            other_us = now - world.t_us
            now += round(ms * 1000)
            self._line.occupy(now)
            if failed_us is not None:
                run.first_good_ms.append((now - failed_us) / 1000)
            self._seen = (Observation(placement.plan, placement.power_mode, round(ms * 1000), other_us),)
            latency_ms = (now - world.t_us) / 1000
            return Served(now, self._line.outcome(now), nsp_j, cpu_j + k.host_j, ms, latency_ms)


class Unscheduled:
    """An application without a scheduler: `htp` in `burst`, whatever happens; it dies with the NPU."""

    def __init__(self, world: World) -> None:
        self._line = Line(world)
        self._up_us: int | None = world.t_us if world.starts(PlanKind.HTP) else None
        self._next_try_us = world.t_us + round(world.plant.constants.restart_s * 1e6)

    @property
    def placement(self) -> Placement | None:
        """See Application."""
        return None if self._up_us is None else Placement(PlanKind.HTP, PowerMode.BURST, 1.0, SchedReason.CONFIGURED)

    def frame(self, world: World, run: Run) -> Served:
        """See Application."""
        k = world.plant.constants
        if self._up_us is None and world.t_us >= self._next_try_us:
            self._next_try_us = world.t_us + round(k.restart_s * 1e6)
            self._up_us = world.t_us + round(k.load_s * 1e6) if world.starts(PlanKind.HTP) else None
        if self._up_us is None or world.t_us < self._up_us or self._line.is_full():
            return NOT_SERVED
        now = world.t_us + round(k.host_ms * 1000) + self._line.wait_us()
        try:
            ms, nsp_j, cpu_j = world.run(PlanKind.HTP, PowerMode.BURST)
        except NpuLost:
            self._up_us, self._next_try_us = None, world.t_us + round(k.restart_s * 1e6)
            return NOT_SERVED
        now += round(ms * 1000)
        self._line.occupy(now)
        return Served(now, self._line.outcome(now), nsp_j, cpu_j + k.host_j, ms, (now - world.t_us) / 1000)
