"""Run a pipeline and show where its time goes, stage by stage; --trace writes every call for a trace viewer.

The pipeline runs as it would, but publishes on a free port of this machine and keeps neither journal nor pictures, so
that a line beside it is not disturbed (its NPU and processors are shared all the same).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from edge_app.app import build, recipe_name
from edge_app.commands.arguments import add_overrides, positive
from edge_app.commands.report import add_json_argument, people, print_json, print_table
from edge_app.config.load import load_pipeline
from edge_app.durable import write_whole
from edge_app.errors import ConfigError, ExitCode
from edge_app.profiling import Recorder, StageTimes, chrome_trace, stage_times
from edge_app.summary import Summary

APART = (
    "results.publish=tcp://127.0.0.1:*", "results.commands=null", "results.journal.path=null",
    "results.evidence.path=null", "monitor.http=null",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("pipeline", metavar="FILE", type=Path, help="pipeline YAML")
    add_overrides(parser)
    parser.add_argument("--frames", metavar="N", type=positive, default=200, help="how many (default 200)")
    parser.add_argument("--trace", metavar="FILE", type=Path, help="write a Chrome trace (open it in ui.perfetto.dev)")
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Runs and reports; CHECK_FAILED if a trigger had no result."""
    if args.trace is not None and args.trace.is_dir():
        raise ConfigError("can't write the trace", where=f"--trace {args.trace}", wanted="a file", got="a folder")
    recorder = Recorder()
    app = build(load_pipeline(args.pipeline, [*args.overrides, *APART]), recipe_name(args.pipeline), args.frames)
    recorder.instrument(app)
    with people().status(f"{args.frames} frames"):
        app.start()
        try:
            app.wait()
        finally:
            app.stop()
            app.wait(5.0)
            app.close()
    summary, times = app.summary(), stage_times(recorder)
    if args.json:
        print_json({"summary": summary.document(), "stages": [asdict(stage) for stage in times]})
    else:
        show(summary, times)
    if args.trace is not None:
        trace = json.dumps(chrome_trace(recorder, recipe_name(args.pipeline)), separators=(",", ":"))
        write_whole(args.trace, trace, "the trace", ConfigError)
        people().print(f"trace: {args.trace}: open it in https://ui.perfetto.dev or chrome://tracing")
    return int(ExitCode.CHECK_FAILED if summary.lost else ExitCode.OK)


def show(summary: Summary, times: list[StageTimes]) -> None:
    """The table, and what bounds the throughput."""
    rows = [
        (one.stage, one.calls, *(f"{ms:.3f}" for ms in (one.mean_ms, one.p50_ms, one.p99_ms, one.worst_ms)),
         f"{100 * one.busy:.0f} %")
        for one in times
    ]  # fmt: skip
    title = f"{summary.frames} frames, {summary.fps:g}/s, plan {summary.plan}: time in each stage, ms"
    print_table(title, ("stage", "calls", "mean", "p50", "p99", "worst", "busy"), rows)
    own = [one for one in times if one.stage not in ("camera", "publish", "evidence")]
    if own:
        slowest = max(own, key=lambda one: one.busy)
        people().print("What ran before the first result, which fills caches, is left out.")
        people().print(f"{slowest.stage} is the busiest stage: at {slowest.mean_ms:.2f} ms a frame, the line makes at"
                       f" most {1000 / slowest.mean_ms:.0f} frames a second")  # fmt: skip
