"""What happens to a simulated board: a YAML file, given by name (shipped) or by path."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from edge_app.config.base import Section
from edge_app.config.load import read_yaml, validate
from edge_app.config.scheduler import Scheduler
from edge_app.errors import ConfigError

SHIPPED = Path(__file__).parent / "scenarios"
NAMES = ("cold-start", "hot-hall", "fan-failure", "sensor-loss", "npu-loss", "day")
AIR_C = (-60.0, 120.0)


class Point(Section):
    """A value at a time."""

    at_min: float = Field(ge=0, title="Minute")
    value: float = Field(title="Value")


class SensorFault(Section):
    """A thermal zone that stops telling the truth."""

    zone: Literal["nsp", "cpu", "skin"] = Field(title="Zone")
    fault: Literal["frozen", "unreadable", "absent", "minus_273", "zero"] = Field(title="What it gives")
    from_min: float = Field(ge=0, title="From", description="Minute.")
    to_min: float | None = Field(None, ge=0, title="Until", description="Minute; null: to the end.")


class NpuFault(Section):
    """An NPU that fails."""

    fault: Literal["crash", "hang"] = Field(title="What it does", description="Runs raise an error, or never return.")
    from_min: float = Field(ge=0, title="From", description="Minute.")
    to_min: float | None = Field(None, ge=0, title="Until", description="Minute; null: to the end.")


class Scenario(Section):
    """One run of the model."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", title="Name")
    title: str = Field("", title="Title", description="For the table and the plot.")
    minutes: float = Field(gt=0, le=60 * 24 * 7, title="Length")
    fps: float = Field(4.0, gt=0, le=200, title="Triggers per second")
    deadline_ms: float = Field(240.0, gt=0, title="Deadline", description="From capture to sealed verdict.")
    slots: int = Field(4, ge=1, title="Slots", description="Frames in flight at most.")
    seed: int = Field(1, ge=0, title="Seed", description="Of noise and failing starts.")
    air_c: tuple[Point, ...] = Field(min_length=1, title="Air", description="C, straight lines between the points.")
    fan: tuple[Point, ...] = Field((), title="Fan", description="1: as built, 0.5: half the cooling; in steps.")
    sensors: tuple[SensorFault, ...] = Field((), title="Sensor faults")
    npu: tuple[NpuFault, ...] = Field((), title="NPU faults")
    scheduler: Scheduler = Field(
        default_factory=lambda: Scheduler(), title="Scheduler", description="As in a pipeline."
    )

    @model_validator(mode="after")
    def _points_in_order(self) -> Self:
        for name, points in (("air_c", self.air_c), ("fan", self.fan)):
            times = [point.at_min for point in points]
            if times != sorted(set(times)):
                raise ValueError(f"{name}: wanted rising at_min, got {times}")
        if round(self.minutes * 60 * self.fps) < 1:
            raise ValueError(f"minutes: wanted time for one trigger at least, got {self.minutes:g} at {self.fps:g}/s")
        for point in self.air_c:
            if not AIR_C[0] <= point.value <= AIR_C[1]:
                raise ValueError(f"air_c: wanted {AIR_C[0]:g} to {AIR_C[1]:g} C, got {point.value:g}")
        for name, faults in (("sensors", self.sensors), ("npu", self.npu)):
            for fault in faults:
                if fault.to_min is not None and fault.to_min <= fault.from_min:
                    span = f"{fault.from_min:g} to {fault.to_min:g}"
                    raise ValueError(f"{name}: wanted to_min after from_min, got {span}")
        if any(point.value <= 0 for point in self.fan):
            raise ValueError("fan: wanted values above 0; a fan that stands still leaves about 0.4")
        return self

    def air_at(self, minute: float) -> float:
        """Air temperature, C."""
        before, after = self.air_c[0], self.air_c[-1]
        for point in self.air_c:
            if point.at_min <= minute:
                before = point
            else:
                after = point
                break
        if after.at_min <= before.at_min or minute <= before.at_min:
            return before.value
        share = min((minute - before.at_min) / (after.at_min - before.at_min), 1.0)
        return before.value + share * (after.value - before.value)

    def fan_at(self, minute: float) -> float:
        """Cooling as a share of what was built."""
        return next((point.value for point in reversed(self.fan) if point.at_min <= minute), 1.0)


def load_scenario(name_or_file: str) -> Scenario:
    """A shipped scenario by name, or a file.

    Raises:
        ConfigError: neither; or the file is not valid, with its line.
    """
    file = Path(name_or_file)
    if name_or_file in NAMES:
        file = SHIPPED / f"{name_or_file}.yaml"
    elif not file.is_file():
        raise ConfigError(
            "no such scenario",
            where=f"--scenario {name_or_file}",
            got=name_or_file,
            wanted=f"a YAML file, or one of {', '.join(NAMES)}",
        )
    return validate(read_yaml(file), Scenario)
