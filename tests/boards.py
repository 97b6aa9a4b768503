"""A board for scheduler tests: zones, snapshots of them, and a driver that does what the scheduler asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from edge_app.config.scheduler import Scheduler
from edge_app.scheduler import (
    Action,
    ActionKind,
    Decision,
    Event,
    EventKind,
    Inputs,
    Observation,
    Policy,
    State,
    admit,
    build_policy,
    decide,
    initial_state,
)
from edge_app.verdict import PlanKind, PowerMode
from edge_app.zones import Trip, Zone, ZoneGroup, ZoneReading, ZoneSnapshot, ZoneState

HTP, HYBRID, CPU = PlanKind.HTP, PlanKind.HYBRID, PlanKind.CPU
ALL = (HTP, HYBRID, CPU)
ALL_AGREE = ((HTP, HYBRID), (HTP, CPU), (HYBRID, CPU))
ZONES = (
    Zone("nspss0", "nspss0-thermal", ZoneGroup.NSP, (Trip("hot", 95.0), Trip("critical", 110.0))),
    Zone("cpu0", "cpu0-thermal", ZoneGroup.CPU, (Trip("passive", 95.0), Trip("critical", 110.0))),
    Zone("skin", "msm-skin-thermal", ZoneGroup.SKIN, (Trip("passive", 85.0),)),
)
NAMES = tuple(zone.name for zone in ZONES)
START_US = 1_000_000


def board_policy(
    config: Scheduler | None = None,
    plans: Iterable[PlanKind] = ALL,
    agrees: Iterable[tuple[PlanKind, PlanKind]] = ALL_AGREE,
    zones: tuple[Zone, ...] | None = ZONES,
    canaries: bool = True,
    alike: bool = True,
) -> Policy:
    return build_policy(config or Scheduler(), tuple(plans), agrees, zones, canaries, alike)


def snapshot(t_us: int, *temps_c: float | None, rates: tuple[float, ...] = (0.0, 0.0, 0.0)) -> ZoneSnapshot:
    """NSP, CPU and skin; None: can't be read."""
    return ZoneSnapshot(
        t_us,
        tuple(
            ZoneReading(name, ZoneState.UNREADABLE, None, 0.0, "EIO")
            if temp is None
            else ZoneReading(name, ZoneState.OK, float(temp), rate)
            for name, temp, rate in zip(NAMES, temps_c, rates, strict=True)
        ),
    )


def all_well(action: Action) -> Event:
    """Every session loads (100 ms a run) and gives its stored output."""
    done = EventKind.LOADED if action.kind is ActionKind.LOAD else EventKind.CANARY_PASSED
    return Event(done, action.plan, latency_us=100_000 if done is EventKind.LOADED else None)


@dataclass
class Driver:
    """Calls `decide` in steps of time and answers its actions at the next call."""

    policy: Policy
    answer: Callable[[Action], Event | None] = all_well
    now_us: int = START_US
    deadline_us: int | None = None
    state: State = field(init=False)
    decision: Decision = field(init=False)
    decisions: list[tuple[int, Decision]] = field(default_factory=list)
    _due: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = initial_state(self.policy)

    def step(
        self,
        zones: ZoneSnapshot | None = None,
        *events: Event,
        after_s: float = 1.0,
        observations: tuple[Observation, ...] = (),
        operator: PlanKind | None = None,
    ) -> Decision:
        self.now_us += round(after_s * 1e6)
        due, self._due = tuple(self._due), []
        inputs = Inputs(self.now_us, zones, (*due, *events), observations, self.deadline_us, operator)
        self.state, self.decision = decide(self.policy, self.state, inputs)
        self._due = [event for action in self.decision.actions if (event := self.answer(action)) is not None]
        self.decisions.append((self.now_us, self.decision))
        return self.decision

    def cool(self, seconds: float = 1.0) -> ZoneSnapshot:
        """A snapshot of a cool board at the time of the next step."""
        return snapshot(self.now_us + round(seconds * 1e6), 40.0, 40.0, 35.0)

    def started(self, zones: ZoneSnapshot | None = None) -> Driver:
        """After start-up: everything loaded and proven, the first trigger seen, dwell times over."""
        for _ in range(4):
            self.step(zones if zones is not None else self.cool() if self.policy.limits else None)
        self.state, _ = admit(self.state, self.now_us)
        self.step(self.cool(60.0) if self.policy.limits and zones is None else zones, after_s=60.0)
        return self


def settled(driver: Driver, *temps_c: float | None, minutes: float = 10) -> Decision:
    """The decision after a board has stood at these temperatures for a while."""
    for _ in range(int(minutes * 4)):
        driver.step(snapshot(driver.now_us + 15_000_000, *temps_c), after_s=15.0)
    assert driver.decision.placement is not None
    return driver.decision


def rung(decision: Decision) -> tuple[PlanKind, PowerMode, float]:
    assert decision.placement is not None
    return decision.placement.plan, decision.placement.power_mode, decision.placement.rate
