"""Measure a pipeline that decides over many frames: garments come and go before a drawn mirror, through the whole line.

  edge_app eval-mirror MY-MIRROR.yaml --pictures clothing/test.txt
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.progress import Progress

from edge_app.commands.arguments import above_zero, add_overrides, positive, seed
from edge_app.commands.report import add_json_argument, people, print_json, print_table
from edge_app.config.load import load_pipeline
from edge_app.errors import ConfigError, ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of this command."""
    parser.add_argument("pipeline", type=Path, metavar="FILE", help="pipeline YAML with a `decision:`")
    parser.add_argument(
        "--pictures", required=True, type=Path, metavar="P",
        help="a .txt list of LABEL/PICTURE, relative to it, or a folder of folders LABEL",
    )  # fmt: skip
    parser.add_argument("--visits", type=positive, metavar="N", help="show N pictures (default: every picture once)")
    parser.add_argument("--seed", type=seed, default=0, metavar="S", help="who comes when, and how the room looks")
    parser.add_argument("--rate-fps", type=above_zero, default=15.0, metavar="R", help="of the drawn camera (15)")
    add_overrides(parser)
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the script through the line and tells what came of it."""
    from edge_app.app import make_missing_plans
    from edge_app.camera.mirror import MirrorSource
    from edge_app.config.camera import MirrorCamera
    from edge_app.evaluate_decisions import measures, offline, run_mirror
    from edge_app.model import resolve
    from edge_app.placed import place_model

    pipeline = load_pipeline(args.pipeline, args.overrides)
    decision = pipeline.decision
    if decision is None:
        raise ConfigError("this pipeline decides on each frame alone", where=str(args.pipeline), wanted="a `decision:`")
    card = resolve(pipeline.model, pipeline.preprocess)
    section = MirrorCamera(
        type="mirror", path=args.pictures, seed=args.seed, visits=args.visits, rate_fps=args.rate_fps
    )
    source = MirrorSource(section, paced=False)
    source.open()
    known = {visit.label for visit in source.scenes.visits}
    if unknown := sorted(known - set(card.labels)):
        raise ConfigError(
            "the pictures have labels that the model has not", wanted=", ".join(card.labels), got=", ".join(unknown)
        )
    pipeline = offline(pipeline)
    make_missing_plans(pipeline, card)
    placed = place_model(pipeline, card, args.pipeline.stem)
    try:
        with Progress(console=people(), transient=True) as bars:
            bar = bars.add_task("frames", total=source.scenes.frames)
            done = run_mirror(pipeline, placed, source, lambda frames: bars.update(bar, completed=frames))
        plan = placed.placer.last.plan.value
    finally:
        placed.stop()
    document = {"model": card.name, "plan": plan, **measures(done, decision.energy)}
    if args.json:
        print_json(document)
        return int(ExitCode.OK)
    rows = [(key, value) for key, value in document.items() if value is not None]
    print_table(f"{args.pipeline.stem} on {args.pictures}", ("", ""), rows)
    people().print(
        "duty_cycle is this machine's; power_w_estimate follows from it and from decision.energy: an estimate, not"
        " measured" if decision.energy is not None else "duty_cycle is this machine's"
    )  # fmt: skip
    return int(ExitCode.OK)
