"""Closed loop: triggers into a simulated line on a simulated board, with the real scheduler or without one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from edge_app.simulation.applications import Application, Scheduled, Served, Unscheduled
from edge_app.simulation.plant import FULL_CLOCK_GHZ, Constants, Plant
from edge_app.simulation.record import Run, Sample
from edge_app.simulation.scenario import Scenario
from edge_app.simulation.world import EPOCH_US, World
from edge_app.verdict import Placement, SchedReason

HEAT_EVERY_S = 1.0
"""The board is moved on in steps of this: far below its fastest time constant, and no finer than its zones are read."""
SAMPLE_EVERY_S = 5.0
"""Of the time series for the plot."""


def simulate(
    scenario: Scenario,
    constants: Constants | None = None,
    scheduled: bool = True,
    on_minute: Callable[[float], None] = lambda _minute: None,
) -> Run:
    """Plays a scenario.

    Args:
        scenario: what happens.
        constants: of the board; None: as shipped.
        scheduled: with the real scheduler; False: as an application without one.
        on_minute: told now and then how many minutes were played.
    """
    plant = Plant(constants or Constants(), scenario.air_at(0.0), random.Random(scenario.seed), scenario.fan_at(0.0))
    world = World(scenario, plant)
    application: Application = Scheduled(world) if scheduled else Unscheduled(world)
    run, outcomes, reasons = Run(), Counter[str](), Counter[SchedReason]()
    last = application.placement
    warmed_s = next_sample_s = nsp_j = cpu_j = 0.0
    for frame in range(round(scenario.minutes * 60 * scenario.fps)):
        world.t_us = EPOCH_US + round(frame / scenario.fps * 1e6)
        served = application.frame(world, run)
        outcomes[served.outcome] += 1
        placement = application.placement
        if placement is not None:
            reasons[placement.reason] += 1
            if placement is not last:
                last = _count_change(run, last, placement)
        nsp_j, cpu_j = nsp_j + served.nsp_j, cpu_j + served.cpu_j
        end_s = (frame + 1) / scenario.fps
        if end_s - warmed_s >= HEAT_EVERY_S:
            world.warm(end_s - warmed_s, nsp_j, cpu_j)
            _count_heat(run, plant, end_s - warmed_s)
            warmed_s, nsp_j, cpu_j = end_s, 0.0, 0.0
        if end_s >= next_sample_s:
            next_sample_s += SAMPLE_EVERY_S
            on_minute(end_s / 60)
            run.series.append(_sample(end_s, plant, placement, served))
    for outcome, count in outcomes.items():
        setattr(run, outcome, count)
    run.frames, run.reasons = outcomes.total(), dict(reasons)
    return run


def _count_change(run: Run, was: Placement | None, now: Placement) -> Placement:
    if was is not None:
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
