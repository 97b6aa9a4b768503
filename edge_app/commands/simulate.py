"""Run the real scheduler against a thermal model of a board, beside the same board without a scheduler.

A scenario is a shipped one (cold-start, hot-hall, fan-failure, sensor-loss, npu-loss, day) or a YAML file. The model
and what it can't tell are described in edge_app/simulation/plant.py. Exit code 0: every trigger had its result.
"""

from __future__ import annotations

import argparse
import random

from rich.progress import Progress

from edge_app.commands.report import (
    add_json_argument,
    add_plot_argument,
    check_plot,
    people,
    print_json,
    print_table,
    save_plot,
)
from edge_app.errors import ExitCode
from edge_app.simulation.loop import simulate
from edge_app.simulation.plant import Constants, Plant
from edge_app.simulation.record import Run
from edge_app.simulation.report import as_json, plot, rows
from edge_app.simulation.scenario import NAMES, Scenario, load_scenario


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--scenario", metavar="NAME|FILE", required=True, help=f"{', '.join(NAMES)}, or a YAML file")
    parser.add_argument("--without-scheduler", action="store_true", help="only the board without a scheduler")
    add_plot_argument(parser, "draw it")
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Plays the scenario; CHECK_FAILED if a trigger was lost with the scheduler."""
    scenario = load_scenario(args.scenario)
    if args.plot is not None:
        check_plot(args.plot)
    console = people()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        without = shown(progress, scenario, scheduled=False)
        main = without if args.without_scheduler else shown(progress, scenario, scheduled=True)
    other = None if args.without_scheduler else without
    if args.plot is not None:
        plant = Plant(Constants(), scenario.air_at(0.0), random.Random(scenario.seed))
        save_plot(plot(scenario, main, other, plant), args.plot)
    if args.json:
        document = {"scenario": scenario.name, "scheduler": not args.without_scheduler, **as_json(main)}
        if other is not None:
            document["without"] = as_json(other)
        print_json(document)
    else:
        terms = f"{scenario.minutes:g} min, {scenario.fps:g}/s, deadline {scenario.deadline_ms:g} ms"
        title = f"{scenario.name}: {scenario.title} ({terms})"
        columns = ("without scheduler",) if other is None else ("with scheduler", "without")
        print_table(title, ("", *columns), rows(main, other))
    lost = not args.without_scheduler and main.lost > 0
    return int(ExitCode.CHECK_FAILED if lost else ExitCode.OK)


def shown(progress: Progress, scenario: Scenario, scheduled: bool) -> Run:
    """Plays the scenario under a progress bar of its minutes."""
    name = f"{scenario.name}, {'with' if scheduled else 'without'} scheduler"
    bar = progress.add_task(name, total=scenario.minutes)
    return simulate(scenario, scheduled=scheduled, on_minute=lambda minute: progress.update(bar, completed=minute))
