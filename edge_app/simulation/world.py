"""The simulated board in its scenario: air and fan, NPUs that fail, sensors that lie."""

from __future__ import annotations

from dataclasses import dataclass, field

from edge_app.simulation.plant import ZONES, Plant
from edge_app.simulation.scenario import Scenario
from edge_app.verdict import PlanKind, PowerMode

EPOCH_US = 1_000_000_000


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
        if not self.scenario.npu:
            return None
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
