"""`edge_app simulate`: what the scheduler is worth on a modelled board, and that it was not tuned to that board.

tests/unit/simulation/test_plant.py holds the board to what was measured; here the scheduler, which knows none of its
constants, must hold its figures with each of them half or one and a half times as large, alone and in random
combinations. What it is held to is what the board could do at all: `could_do` finds the best that any fixed plan,
power mode and rate reaches there, a few kelvin below the trip points.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pytest

from edge_app.scheduler.policy import HOT_BELOW_TRIP_K
from edge_app.simulation.loop import Run, simulate
from edge_app.simulation.plant import MODE_SHARE, Constants, Plant
from edge_app.simulation.scenario import NAMES, Scenario, load_scenario
from edge_app.verdict import PlanKind, PowerMode

CONSTANTS = Constants()
LOWEST_RATE = 0.1
MARGIN_K = HOT_BELOW_TRIP_K


def short(name: str, minutes: float = 40) -> Scenario:
    """A shipped scenario, squeezed into less time."""
    scenario = load_scenario(name)
    squeeze = minutes / scenario.minutes

    def sooner(items):
        times = ("at_min", "from_min", "to_min")
        squeezed = [{k: v * squeeze for k, v in item if k in times and v is not None} for item in items]
        return tuple(item.model_copy(update=update) for item, update in zip(items, squeezed, strict=True))

    return scenario.model_copy(
        update={
            "minutes": minutes, "air_c": sooner(scenario.air_c), "fan": sooner(scenario.fan),
            "sensors": sooner(scenario.sensors), "npu": sooner(scenario.npu),
        }
    )  # fmt: skip


def could_do(scenario: Scenario, constants: Constants, plans: tuple[PlanKind, ...]) -> float:
    """The share of parts that a fixed step could inspect in time for ever, at the scenario's worst air.

    0 if no step can do it at any rate and stay MARGIN_K below every trip point.
    """
    air_c = max(point.value for point in scenario.air_c)
    fan = min([point.value for point in scenario.fan], default=1.0)
    steps = itertools.product(plans, MODE_SHARE)
    return max(_most(scenario, constants, air_c, fan, plan, mode) for plan, mode in steps)


def _most(scenario: Scenario, k: Constants, air_c: float, fan: float, plan: PlanKind, mode: PowerMode) -> float:
    plant = Plant(replace(k, latency_noise=0.0), air_c, random.Random(0), fan)
    ms, nsp_j, cpu_j = plant.run(plan, mode)
    if ms + k.host_ms > scenario.deadline_ms * 0.95:
        return 0.0
    fits = [rate for rate in np.arange(1.0, 0.0, -0.02) if rate * ms <= 1000 / scenario.fps]
    for rate in fits:
        per_s = float(rate) * scenario.fps
        settled = steady_c(k, air_c, fan, nsp_j * per_s, (cpu_j + k.host_j) * per_s)
        if all(t < trip - MARGIN_K for t, trip in zip(settled, plant.trips_c, strict=True)):
            return float(rate)
    return 0.0


def steady_c(k: Constants, air_c: float, fan: float, nsp_w: float, cpu_w: float) -> list[float]:
    """Where NPU, CPU and board settle under constant heat: the network's three equations solved at once."""
    to_nsp, to_cpu, across = 1 / k.nsp_to_board_k_per_w, 1 / k.cpu_to_board_k_per_w, 1 / k.nsp_to_cpu_k_per_w
    to_air = fan / k.board_to_air_k_per_w
    flows = [
        [to_nsp + across, -across, -to_nsp],
        [-across, to_cpu + across, -to_cpu],
        [-to_nsp, -to_cpu, to_nsp + to_cpu + to_air],
    ]
    return np.linalg.solve(flows, [nsp_w, cpu_w, k.base_w + air_c * to_air]).tolist()


def problems(scenario: Scenario, constants: Constants, run: Run) -> list[str]:
    """What of the figures does not hold.

    None lost, at most 1 % late, at most 1 % of the time above a trip point, at least 55 % of what the board could
    do. A hang of the NPU may cost the frames of its three seconds, and a zone that stands still the time that it takes
    to tell it from a steady one.
    """
    hangs = sum(fault.fault == "hang" for fault in scenario.npu)
    late = 0.01 * run.frames + hangs * 3.5 * scenario.fps
    frozen = any(fault.fault == "frozen" for fault in scenario.sensors)
    above_s = 0.01 * scenario.minutes * 60 + frozen * scenario.scheduler.frozen_s
    plans = (PlanKind.CPU,) if scenario.npu else (PlanKind.HTP, PlanKind.HYBRID, PlanKind.CPU)
    possible = could_do(scenario, constants, plans)
    found = []
    if run.lost:
        found.append(f"{run.lost} lost")
    if possible > 0 and run.late > late:
        found.append(f"{run.late} late")
    if possible >= LOWEST_RATE and run.seconds_above_trip > above_s:
        found.append(f"{run.seconds_above_trip} s above trip")
    if run.inspected < possible * run.frames * 0.55:
        found.append(f"{run.inspected} of {run.frames} inspected, {possible:.0%} were possible")
    assert run.accounted == run.frames
    return found


# -- the shipped scenarios -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "worse"),
    [
        ("hot-hall", "late"),
        ("sensor-loss", "late"),
        ("npu-loss", "lost"),
        ("cold-start", "lost"),
        ("fan-failure", "trip"),
    ],
)
def test_the_scheduler_holds_its_figures_and_a_board_without_one_fails(name: str, worse: str) -> None:
    scenario = load_scenario(name)
    run, without = simulate(scenario), simulate(scenario, scheduled=False)
    assert problems(scenario, CONSTANTS, run) == []
    assert run.seconds_above_trip == 0
    failing = {"late": without.late, "lost": without.lost, "trip": without.seconds_above_trip}
    holding = {"late": run.late, "lost": run.lost, "trip": run.seconds_above_trip}
    assert failing[worse] > 0
    assert holding[worse] < failing[worse] / 10
    if name != "fan-failure":  # there the chip's own throttling costs no deadline, and the scheduler some parts
        assert run.inspected > without.inspected


def test_hot_hall_in_numbers() -> None:
    scenario = load_scenario("hot-hall")
    run, without = simulate(scenario), simulate(scenario, scheduled=False)
    assert (run.late, run.lost, run.seconds_above_trip) == (0, 0, 0.0)
    assert run.inspected / run.frames == pytest.approx(0.74, abs=0.05)
    assert without.inspected / without.frames == pytest.approx(0.14, abs=0.05)


def test_a_simulation_is_the_same_each_time() -> None:
    one, other = (simulate(short("npu-loss", 20)) for _ in range(2))
    assert one == other


# -- not tuned until it wins -----------------------------------------------------------------------------------------

VARIED = [(field.name, factor) for field in fields(Constants) for factor in (0.5, 1.5)]


def with_factor(name: str, factor: float) -> Constants:
    return replace(CONSTANTS, **{name: getattr(CONSTANTS, name) * factor})


def joint_draw(seed: int) -> Constants:
    """Every constant anywhere between half and one and a half."""
    drawn = random.Random(seed)
    return Constants(**{f.name: getattr(CONSTANTS, f.name) * drawn.uniform(0.5, 1.5) for f in fields(Constants)})


def held(scenarios: list[Scenario], boards: dict[str, Constants]) -> tuple[dict[str, list[str]], int]:
    """Problems by board and scenario, and how many boards could not be held by anybody."""
    bad: dict[str, list[str]] = {}
    hopeless = 0
    for (board, constants), scenario in itertools.product(boards.items(), scenarios):
        found = problems(scenario, constants, simulate(scenario, constants))
        hopeless += (
            could_do(scenario, constants, (PlanKind.CPU,) if scenario.npu else tuple(PlanKind)[:3]) < LOWEST_RATE
        )
        if found:
            bad[f"{board} in {scenario.name}"] = found
    return bad, hopeless


def test_each_constant_alone_half_and_one_and_a_half() -> None:
    boards = {f"{name} x {factor}": with_factor(name, factor) for name, factor in VARIED}
    bad, hopeless = held([short("hot-hall", 20)], boards)
    assert bad == {}
    assert hopeless == 0


def test_random_combinations_of_all_constants() -> None:
    boards = {f"draw {seed}": joint_draw(seed) for seed in range(4)}
    bad, hopeless = held([short(name, 30) for name in NAMES if name != "day"], boards)
    assert bad == {}
    assert hopeless < 5


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != "day"])
def test_each_constant_alone_in_every_scenario(name: str) -> None:
    boards = {f"{constant} x {factor}": with_factor(constant, factor) for constant, factor in VARIED}
    bad, hopeless = held([load_scenario(name)], boards)
    assert bad == {}
    assert hopeless <= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != "day"])
def test_many_random_combinations_in_every_scenario(name: str) -> None:
    bad, hopeless = held([load_scenario(name)], {f"draw {seed}": joint_draw(seed) for seed in range(100, 140)})
    assert bad == {}
    assert hopeless < 20


# -- the command -----------------------------------------------------------------------------------------------------


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-P", "-m", "edge_app", "simulate", *map(str, arguments)],
                          capture_output=True, text=True, timeout=120, check=False)  # fmt: skip


def test_the_command_gives_one_document_and_draws_a_plot(tmp_path) -> None:
    plot = tmp_path / "cold.svg"
    done = command("--scenario", "cold-start", "--json", "--plot", plot)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert set(document) >= {
        "scenario",
        "frames",
        "frames_lost",
        "frames_late",
        "seconds_above_trip",
        "switches",
        "without",
    }
    assert (document["scenario"], document["frames"], document["frames_lost"]) == ("cold-start", 14400, 0)
    assert document["switches"] == 1
    assert set(document["without"]) >= {"frames", "frames_lost", "frames_late", "seconds_above_trip", "switches"}
    assert plot.read_text().startswith("<?xml")


def test_the_command_takes_a_file_and_prints_a_table(tmp_path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nminutes: 2\nair_c: [{at_min: 0, value: 20}]\n")
    done = command("--scenario", file)
    assert done.returncode == 0, done.stderr
    assert "UNKNOWN/OVERLOAD" in done.stdout
    assert "with scheduler" in done.stdout
    alone = command("--scenario", file, "--without-scheduler", "--json")
    assert json.loads(alone.stdout)["scheduler"] is False


def test_what_can_not_be_simulated_or_drawn_is_told(tmp_path) -> None:
    unknown = command("--scenario", "sauna")
    assert (unknown.returncode, "hot-hall" in unknown.stderr) == (2, True)
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nminutes: 1\nair_c: [{at_min: 0, value: 20}]\n")
    no_folder = command("--scenario", file, "--plot", tmp_path / "none" / "x.png")
    assert (no_folder.returncode, "can't be written" in no_folder.stderr) == (2, True)
