"""Measure this machine: preprocessing, decode, the host, the wire, the start and the model, each beside its peers.

Parts: preprocess, decode, host, bus, start, model; without a name all of them, which takes a quarter of an hour on a
machine that does nothing else. Needs the project's folder (pipelines/, models/). `pip install 'edge_app[bench]'` brings
the peers; those that are absent are shown as not installed. ultralytics brings opencv-python, whose Qt every line would
then load (12 MB): `pip uninstall opencv-python`, and install opencv-python-headless again. Nothing fails for being
slow: goals are shown beside the figures. A part that breaks off does not cost the figures of the others; the exit code
is then 1. `--plot` draws what a ledger holds over its commits.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from edge_app.bench import ledger
from edge_app.bench.figures import Figures, Options, document, machine
from edge_app.commands.arguments import add_overrides, positive
from edge_app.commands.report import (
    add_json_argument,
    add_plot_argument,
    check_plot,
    people,
    print_json,
    print_table,
    save_plot,
)
from edge_app.config.load import load_pipeline
from edge_app.errors import ConfigError, ExitCode

PARTS = ("preprocess", "decode", "host", "bus", "start", "model")
OF_A_PIPELINE = ("host", "start", "model")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("parts", metavar="PART", nargs="*", type=part, help=", ".join(PARTS))
    parser.add_argument("--rounds", metavar="N", type=positive, default=200, help="of each comparison (default: 200)")
    parser.add_argument("--only", metavar="KEY", default="", help="only figures whose key begins so, e.g. w1")
    parser.add_argument("--pipeline", metavar="FILE", type=Path, default=Path("pipelines/defect.yaml"),
                        help="what host, start and model run (default: pipelines/defect.yaml)")  # fmt: skip
    add_overrides(parser)
    parser.add_argument("--ledger", metavar="FILE", type=Path,
                        help="add this run to a ledger, e.g. tests/bench/ledger.jsonl")  # fmt: skip
    add_plot_argument(parser, "measure nothing, but draw the ledger over its commits")
    add_json_argument(parser)


def part(word: str) -> str:
    """One of PARTS."""
    if word not in PARTS:
        raise argparse.ArgumentTypeError(f"wanted {', '.join(PARTS)}, got {word!r}")
    return word


def run(args: argparse.Namespace) -> int:
    """Measures and tells; with --plot it draws what was measured before."""
    if args.plot is not None:
        if args.ledger is None:
            raise ConfigError("nothing to draw", wanted="--ledger FILE beside --plot", got="none")
        check_plot(args.plot)
        save_plot(ledger.plot(ledger.read(args.ledger)), args.plot)
        return int(ExitCode.OK)
    options = Options(args.pipeline, tuple(args.overrides), args.rounds, args.only)
    refuse_early(args)
    measured: list[Figures] = []
    failed: dict[str, str] = {}
    # Peers print to stdout as they load, where --json promises one document.
    with people().status("measuring") as status, contextlib.redirect_stdout(sys.stderr):
        for name in args.parts or PARTS:
            try:
                for one in measure(name, options):
                    status.update(f"measured {one.key}")
                    measured.append(one)
            except Exception as error:  # what the other parts took minutes to measure is not thrown away
                if len(args.parts) == 1:
                    raise
                people().print_exception()
                failed[name] = f"{type(error).__name__}: {error}"
    if not (measured or failed):
        raise ConfigError(f"no figure's key begins with {args.only}", where="--only",
                          wanted=f"the beginning of a key of {', '.join(args.parts or PARTS)}")  # fmt: skip
    found = document(measured) | ({"failed": failed} if failed else {})
    if args.ledger is not None:
        ledger.append(args.ledger, found)
    if args.json:
        print_json(found)
    else:
        rows = [row for one in measured for row in one.rows()]
        print_table(f"{machine()}, load {found['load']}", ("work", "measured", "goal", ""), rows)
    for name, what in failed.items():
        people().print(f"{name} was not measured to its end: {what}")
    return int(ExitCode.CHECK_FAILED if failed else ExitCode.OK)


def refuse_early(args: argparse.Namespace) -> None:
    """What would be found out after minutes, and cost their figures. Raises EdgeAppError."""
    if args.ledger is not None:
        ledger.check(args.ledger)
    if not set(OF_A_PIPELINE).isdisjoint(args.parts or PARTS):
        load_pipeline(args.pipeline, args.overrides)


def measure(name: str, options: Options) -> Iterator[Figures]:
    """All figures of a part; its module is imported when its turn comes."""
    yield from importlib.import_module(f"edge_app.bench.{name}").figures(options)
