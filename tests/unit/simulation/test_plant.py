"""A board without a scheduler does what others measured on boards; only then may a scheduler be tried on it."""

from __future__ import annotations

import random
import statistics
from dataclasses import fields, replace

import pytest

from edge_app.simulation.loop import simulate
from edge_app.simulation.plant import COLD_C, Constants, Plant, Throttle
from edge_app.simulation.record import Run
from edge_app.simulation.scenario import Point, Scenario
from edge_app.verdict import PlanKind, PowerMode

CONSTANTS = Constants()


def loaded(air_c: float, minutes: float = 45) -> Run:
    """A board that was idle at this temperature, then inspects without a scheduler."""
    air = (Point(at_min=0.0, value=air_c),)
    return simulate(Scenario(name="load", minutes=minutes, air_c=air), CONSTANTS, scheduled=False)


def median_ms(run: Run, from_min: float) -> float:
    return statistics.median(s.infer_ms for s in run.series if s.t_s >= from_min * 60 and s.infer_ms is not None)


def test_112_ms_at_25_c_and_189_ms_at_45_c_without_any_error() -> None:
    cool, warm = loaded(25), loaded(45)
    assert median_ms(cool, 20) == pytest.approx(112, abs=1)
    assert median_ms(warm, 20) == pytest.approx(189, abs=1)
    for run in (cool, warm):
        assert (run.fault, run.lost) == (0, 0)


def test_1_5_to_0_9_ghz_after_three_minutes_of_load() -> None:
    clocks = [(s.t_s / 60, s.clock_ghz) for s in loaded(45).series if s.clock_ghz is not None]
    assert {round(ghz, 1) for minute, ghz in clocks if minute <= 2.5} == {1.5}
    assert {round(ghz, 1) for minute, ghz in clocks if minute >= 3.5} == {0.9}
    onset = next(minute for minute, ghz in clocks if ghz < 1.4)
    assert onset == pytest.approx(3.0, abs=0.5)


def test_37_percent_of_starts_fail_at_minus_20_c() -> None:
    plant = Plant(CONSTANTS, COLD_C, random.Random(3), temps_c=[COLD_C] * 3)
    failed = sum(not plant.starts(PlanKind.HTP) for _ in range(4000)) / 4000
    assert failed == pytest.approx(0.37, abs=0.02)
    assert sum(not plant.starts(PlanKind.HYBRID) for _ in range(4000)) / 4000 < 0.02
    assert all(plant.starts(PlanKind.CPU) for _ in range(100))


def test_starts_do_not_fail_on_a_warm_chip() -> None:
    plant = Plant(CONSTANTS, 20.0, random.Random(3))
    assert all(plant.starts(PlanKind.HTP) for _ in range(1000))


def test_zones_read_cool_while_the_chip_throttles() -> None:
    """The facts' point: 189 ms came without any error, and with the zone well below its trip point."""
    run = loaded(45)
    last = run.series[-1]
    assert last.clock_ghz == pytest.approx(0.889, abs=0.001)
    assert last.temps_c[0] < 50 + CONSTANTS.nsp_trip_k - 1.5


def test_heat_flows_to_where_arithmetic_says() -> None:
    """One watt into each mass of a board that was left alone for long: the steady state of three coupled masses."""
    constants = replace(CONSTANTS, base_w=0.0, nsp_to_cpu_k_per_w=1e9)
    plant = Plant(constants, 20.0, random.Random(1))
    for _ in range(20_000):
        plant.step(1.0, 1.0, 1.0)
    board = 20.0 + 2.0 * constants.board_to_air_k_per_w
    wanted = [board + constants.nsp_to_board_k_per_w, board + constants.cpu_to_board_k_per_w, board]
    assert plant.temps_c == pytest.approx(wanted, abs=0.01)


def test_steps_of_any_length_give_the_same_board() -> None:
    """Fast constants and long steps: the integration stays stable and agrees with itself."""
    constants = replace(CONSTANTS, nsp_j_per_k=0.5, cpu_j_per_k=0.5)
    short, long = (Plant(constants, 20.0, random.Random(1)) for _ in range(2))
    for _ in range(1200):
        short.step(0.05, 0.05 * 2, 0.05)
    long.step(60.0, 120.0, 60.0)
    assert long.temps_c == pytest.approx(short.temps_c, abs=0.05)


def test_less_air_is_hotter() -> None:
    half, full = (Plant(CONSTANTS, 20.0, random.Random(1), fan=fan) for fan in (0.5, 1.0))
    assert half.temps_c[2] - 20.0 == pytest.approx(2 * (full.temps_c[2] - 20.0))


def test_the_governor_steps_down_only_while_it_gets_hotter_and_up_with_hysteresis() -> None:
    throttle = Throttle(70.0, 8.0, (1.0, 0.6, 0.4))
    shares = []
    for temp in (69, 70, 70, 69, 71, 71, 63, 62.5, 61.9, 61.9, 61):
        throttle.poll(temp)
        shares.append(throttle.share)
    assert shares == [1.0, 0.6, 0.6, 0.6, 0.4, 0.4, 0.4, 0.4, 0.6, 1.0, 1.0]


def test_power_modes_trade_latency_for_heat() -> None:
    plant = Plant(replace(CONSTANTS, latency_noise=0.0), 20.0, random.Random(1))
    runs = [plant.run(PlanKind.HTP, mode) for mode in list(PowerMode)[:-1]]
    latencies, joules = [ms for ms, _, _ in runs], [j for _, j, _ in runs]
    assert latencies == sorted(latencies)
    assert joules == sorted(joules, reverse=True)
    assert latencies[0] == CONSTANTS.htp_ms
    assert joules[0] == pytest.approx(CONSTANTS.htp_ms / 1000 * CONSTANTS.nsp_busy_w)


def test_every_constant_is_a_number_that_can_be_varied() -> None:
    for field in fields(Constants):
        value = getattr(CONSTANTS, field.name)
        assert isinstance(value, float)
        assert value > 0
