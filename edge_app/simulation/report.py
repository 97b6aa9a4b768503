"""What a simulation is told as: the keys of `--json`, a table, and a plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_app.simulation.plant import Plant
from edge_app.simulation.record import Run, Sample
from edge_app.simulation.scenario import Scenario
from edge_app.verdict import PlanKind, PowerMode

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTERS = (
    ("frames", "triggers"),
    ("inspected", "verdict in time"),
    ("late", "UNKNOWN/LATE"),
    ("overload", "UNKNOWN/OVERLOAD (the scheduler's rate)"),
    ("overrun", "UNKNOWN/OVERRUN (no free slot)"),
    ("fault", "UNKNOWN/RUNTIME_FAULT (no plan)"),
    ("lost", "no result at all"),
)


def as_json(run: Run) -> dict[str, Any]:
    """Stable keys of one run."""
    return {
        "frames": run.frames,
        "frames_inspected": run.inspected,
        "frames_late": run.late,
        "frames_overload": run.overload,
        "frames_overrun": run.overrun,
        "frames_fault": run.fault,
        "frames_lost": run.lost,
        "frames_retried": run.retried,
        "seconds_above_trip": round(run.seconds_above_trip, 2),
        "switches": run.switches,
        "steps": run.steps,
        "hottest_c": dict(zip(("nsp", "cpu", "skin"), (round(t, 1) for t in run.hottest_c), strict=True)),
        "reasons": {reason.value: count for reason, count in sorted(run.reasons.items())},
        "first_good_ms_worst": round(max(run.first_good_ms), 1) if run.first_good_ms else None,
    }


def rows(run: Run, other: Run | None) -> list[tuple[object, ...]]:
    """The table, a row a figure: with the scheduler, and without."""
    runs = (run,) if other is None else (run, other)
    table: list[tuple[object, ...]] = []
    for name, title in COUNTERS:
        table.append((title, *(_counted(getattr(r, name), r.frames) for r in runs)))
    table.append(("above a trip point, s", *(f"{r.seconds_above_trip:.0f}" for r in runs)))
    table.append(("hottest NPU / CPU / board, C", *(" / ".join(f"{t:.1f}" for t in r.hottest_c) for r in runs)))
    table.append(("changes of plan", *(r.switches for r in runs)))
    table.append(("changes of power mode or rate", *(r.steps for r in runs)))
    table.append(("time by reason", *(_reasons(r) for r in runs)))
    return table


def _counted(count: int, frames: int) -> str:
    return f"{count} ({count / frames:.2%})" if count not in (0, frames) else str(count)


def _reasons(run: Run) -> str:
    total = sum(run.reasons.values()) or 1
    ordered = sorted(run.reasons.items(), key=lambda item: -item[1])
    return ", ".join(f"{reason} {count / total:.0%}" for reason, count in ordered)


def plot(scenario: Scenario, run: Run, other: Run | None, plant: Plant) -> Figure:
    """Draws temperature, plan, power mode, rate, and latency against the deadline."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 9), layout="constrained")
    temperature, steps, latency = figure.subplots(3, 1, sharex=True)
    figure.suptitle(scenario.title or scenario.name)
    _draw_temperature(temperature, run, other, plant)
    _draw_steps(steps, run)
    _draw_latency(latency, scenario, run, other)
    return figure


def _hours(series: list[Sample]) -> list[float]:
    return [sample.t_s / 3600 for sample in series]


def _draw_temperature(axes: Any, run: Run, other: Run | None, plant: Plant) -> None:
    for index, (zone, color) in enumerate((("NPU", "tab:red"), ("CPU", "tab:blue"), ("board", "tab:green"))):
        axes.plot(_hours(run.series), [s.temps_c[index] for s in run.series], color=color, label=zone)
        axes.axhline(plant.trips_c[index], color=color, linestyle=":", linewidth=1)
    if other is not None:
        axes.plot(
            _hours(other.series),
            [s.temps_c[0] for s in other.series],
            color="tab:red",
            alpha=0.35,
            label="NPU without scheduler",
        )
    axes.plot(_hours(run.series), [s.air_c for s in run.series], color="gray", label="air")
    axes.set_ylabel("C (dotted: trip points)")
    axes.legend(loc="upper right", fontsize="small")


def _draw_steps(axes: Any, run: Run) -> None:
    """Plans as bands, the rate as a line, the power mode's place in the ladder as steps."""
    used_modes = {s.power_mode for s in run.series}
    modes = [mode for mode in PowerMode if mode in used_modes]
    hours = _hours(run.series)
    colors = {PlanKind.HTP: "tab:green", PlanKind.HYBRID: "tab:orange", PlanKind.CPU: "tab:blue"}
    for plan, color in colors.items():
        used = [s.plan is plan for s in run.series]
        axes.fill_between(hours, 0, 1, where=used, color=color, alpha=0.25, step="post", label=plan.value)
    axes.plot(hours, [s.rate for s in run.series], color="black", drawstyle="steps-post", label="rate")
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("plan, rate")
    axes.legend(loc="upper right", fontsize="small")
    beside = axes.twinx()
    places = [modes.index(s.power_mode) if s.power_mode is not None else float("nan") for s in run.series]
    beside.plot(hours, places, color="tab:purple", drawstyle="steps-post", linewidth=1)
    beside.set_yticks(range(len(modes)), [mode.value for mode in modes], fontsize="x-small")
    beside.set_ylim(len(modes), -1)


def _draw_latency(axes: Any, scenario: Scenario, run: Run, other: Run | None) -> None:
    top = scenario.deadline_ms * 2
    for drawn, label, color in ((other, "without scheduler", "tab:red"), (run, "with scheduler", "tab:green")):
        if drawn is not None:
            points = [(s.t_s / 3600, s.latency_ms) for s in drawn.series if s.latency_ms is not None]
            axes.plot(
                [x for x, _ in points], [min(y, top) for _, y in points], ".", markersize=2, color=color, label=label
            )
    axes.axhline(scenario.deadline_ms, color="black", linestyle=":", label="deadline")
    axes.set_ylim(0, top * 1.02)
    axes.set_ylabel("latency, ms (longer ones at the top)")
    axes.set_xlabel("hours")
    axes.legend(loc="upper right", fontsize="small")
