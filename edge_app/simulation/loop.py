"""Closed loop: triggers into a simulated line on a simulated board, with the real scheduler or without one.

A frame is *inspected* when it has a verdict in time. Otherwise it is late, refused by the rate (overload), refused for
want of a slot (overrun), sealed for want of a plan (fault), or lost: a trigger without any result. With the scheduler
every trigger is sealed, so a lost one is a bug. Without it the application runs `htp` in `burst` always, takes no
notice of temperatures, dies when the NPU fails, and is started again by its supervisor.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

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
from edge_app.simulation.plant import FULL_CLOCK_GHZ, ZONES, Constants, Plant
from edge_app.simulation.scenario import Scenario
from edge_app.thermal import ZoneFile, ZoneReader
from edge_app.verdict import Placement, PlanKind, PowerMode, SchedReason
from edge_app.zones import Trip, Zone, ZoneGroup

PLANS = (PlanKind.HTP, PlanKind.HYBRID, PlanKind.CPU)
AGREE = ((PlanKind.HTP, PlanKind.HYBRID), (PlanKind.HTP, PlanKind.CPU), (PlanKind.HYBRID, PlanKind.CPU))
EPOCH_US = 1_000_000_000
TIMEOUT_US = 3_000_000
HEAT_EVERY_S = 1.0
"""The board is moved on in steps of this: far below its fastest time constant, and no finer than its zones are read."""
SAMPLE_EVERY_S = 5.0
"""Of the time series for the plot."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One point of the time series."""

    t_s: float
    air_c: float
    temps_c: tuple[float, float, float]
    plan: PlanKind | None
    power_mode: PowerMode | None
    rate: float
    reason: SchedReason | None
    clock_ghz: float | None
    """Of the NPU, as the power mode and the chip's own throttling leave it."""
    infer_ms: float | None
    """Of the last run; None: the last frame was not run."""
    latency_ms: float | None
    """From capture to verdict."""


@dataclass
class Run:
    """What came of a scenario."""

    frames: int = 0
    inspected: int = 0
    late: int = 0
    overload: int = 0
    overrun: int = 0
    fault: int = 0
    lost: int = 0
    retried: int = 0
    switches: int = 0
    """Changes of plan."""
    steps: int = 0
    """Changes of power mode or rate within a plan."""
    seconds_above_trip: float = 0.0
    hottest_c: list[float] = field(default_factory=lambda: [-273.0, -273.0, -273.0])
    reasons: dict[SchedReason, int] = field(default_factory=dict)
    first_good_ms: list[float] = field(default_factory=list)
    """From each fault of a run to the end of the same frame's good run on the next plan."""
    series: list[Sample] = field(default_factory=list)

    @property
    def accounted(self) -> int:
        """Every frame in one of the ways that it can end."""
        return self.inspected + self.late + self.overload + self.overrun + self.fault + self.lost


class NpuLost(Exception):
    """A run on an NPU that is down."""

    def __init__(self, hangs: bool) -> None:
        super().__init__("the NPU is down")
        self.hangs = hangs


@dataclass
class World:
    """The board, and what the scenario does to it."""

    scenario: Scenario
    plant: Plant
    t_us: int = EPOCH_US
    _frozen_mc: dict[str, int] = field(default_factory=dict)

    @property
    def minute(self) -> float:
        """Since the start."""
        return (self.t_us - EPOCH_US) / 60e6

    def npu_fault(self) -> str | None:
        """How the NPU fails now, if it does."""
        return next((f.fault for f in self.scenario.npu if is_between(self.minute, f.from_min, f.to_min)), None)

    def starts(self, plan: PlanKind) -> bool:
        """Whether a session of this plan comes up now."""
        return (plan is PlanKind.CPU or self.npu_fault() is None) and self.plant.starts(plan)

    def run(self, plan: PlanKind, mode: PowerMode) -> tuple[float, float, float]:
        """See Plant.run; raises NpuLost."""
        fault = self.npu_fault() if plan is not PlanKind.CPU else None
        if fault is not None:
            raise NpuLost(fault == "hang")
        return self.plant.run(plan, mode)

    def warm(self, dt_s: float, nsp_j: float, cpu_j: float) -> None:
        """The board after the last `dt_s`, in which this heat came in."""
        self.plant.air_c = self.scenario.air_at(self.minute)
        self.plant.fan = self.scenario.fan_at(self.minute)
        self.plant.step(dt_s, nsp_j, cpu_j)

    def sysfs(self) -> dict[str, int | OSError | ValueError]:
        """What a read of every zone's `temp` gives."""
        return {name: self._sensor(index, name) for index, name in enumerate(ZONES)}

    def _sensor(self, index: int, name: str) -> int | OSError | ValueError:
        value = self.plant.sensor_mc(index)
        for fault in self.scenario.sensors:
            if fault.zone == name and is_between(self.minute, fault.from_min, fault.to_min):
                frozen = self._frozen_mc.setdefault(name, value)
                gives: dict[str, int | OSError] = {
                    "frozen": frozen, "unreadable": OSError(5, "Input/output error"),
                    "absent": FileNotFoundError(2, "No such file or directory"), "minus_273": -273_000, "zero": 0,
                }  # fmt: skip
                return gives[fault.fault]
        self._frozen_mc.pop(name, None)
        return value


def is_between(minute: float, start: float, end: float | None) -> bool:
    """Whether a moment lies in a span of minutes; None: it has no end."""
    return minute >= start and (end is None or minute < end)


@dataclass(frozen=True, slots=True)
class Served:
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
        due = tuple(event for at_us, event in self._pending if at_us <= world.t_us)
        if due:
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
        hung = any(e.kind is EventKind.TIMEOUT and at_us <= now_us for at_us, e in self._pending)
        if not hung or placement.plan is PlanKind.CPU:
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


def simulate(scenario: Scenario, constants: Constants | None = None, scheduled: bool = True) -> Run:
    """Plays a scenario.

    Args:
        scenario: what happens.
        constants: of the board; None: as shipped.
        scheduled: with the real scheduler; False: as an application without one.
    """
    plant = Plant(constants or Constants(), scenario.air_at(0.0), random.Random(scenario.seed), scenario.fan_at(0.0))
    world = World(scenario, plant)
    application: Application = Scheduled(world) if scheduled else Unscheduled(world)
    run = Run()
    last = application.placement
    warmed_s = next_sample_s = nsp_j = cpu_j = 0.0
    for frame in range(round(scenario.minutes * 60 * scenario.fps)):
        world.t_us = EPOCH_US + round(frame / scenario.fps * 1e6)
        served = application.frame(world, run)
        run.frames += 1
        setattr(run, served.outcome, getattr(run, served.outcome) + 1)
        last = _count_changes(run, last, application.placement)
        nsp_j, cpu_j = nsp_j + served.nsp_j, cpu_j + served.cpu_j
        end_s = (frame + 1) / scenario.fps
        if end_s - warmed_s >= HEAT_EVERY_S:
            world.warm(end_s - warmed_s, nsp_j, cpu_j)
            _count_heat(run, plant, end_s - warmed_s)
            warmed_s, nsp_j, cpu_j = end_s, 0.0, 0.0
        if end_s >= next_sample_s:
            next_sample_s += SAMPLE_EVERY_S
            run.series.append(_sample(end_s, plant, application.placement, served))
    return run


def _count_changes(run: Run, was: Placement | None, now: Placement | None) -> Placement | None:
    if now is None:
        return was
    run.reasons[now.reason] = run.reasons.get(now.reason, 0) + 1
    if was is not None and now is not was:
        if now.plan is not was.plan:
            run.switches += 1
        elif (now.power_mode, now.rate) != (was.power_mode, was.rate):
            run.steps += 1
    return now


def _count_heat(run: Run, plant: Plant, dt_s: float) -> None:
    run.hottest_c = [max(a, b) for a, b in zip(run.hottest_c, plant.temps_c, strict=True)]
    if any(temp >= trip for temp, trip in zip(plant.temps_c, plant.trips_c, strict=True)):
        run.seconds_above_trip += dt_s


def _sample(t_s: float, plant: Plant, placement: Placement | None, served: Served) -> Sample:
    nsp, cpu, skin = plant.temps_c
    plan = mode = reason = clock_ghz = None
    rate = 0.0
    if placement is not None:
        plan, mode, rate, reason = placement.plan, placement.power_mode, placement.rate, placement.reason
        clock_ghz = plant.clock_share(mode) * FULL_CLOCK_GHZ
    temps_c = (nsp, cpu, skin)
    return Sample(t_s, plant.air_c, temps_c, plan, mode, rate, reason, clock_ghz, served.infer_ms, served.latency_ms)
