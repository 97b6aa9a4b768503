"""`edge_app --pipeline FILE`: the line itself."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path

from edge_app import memory
from edge_app.app import App, build, recipe_name
from edge_app.commands.report import people, print_json, print_table
from edge_app.config.load import load_pipeline
from edge_app.errors import ExitCode
from edge_app.logs import LogFormat, start_logging
from edge_app.service import ServiceManager
from edge_app.signals import on_signals
from edge_app.summary import Summary

log = logging.getLogger(__name__)
STATUS_EVERY_S = 0.25
LOG_EVERY_S = 10.0


def run(args: argparse.Namespace) -> int:
    """Runs until the source ends, a signal comes, or something makes going on impossible."""
    start_logging(args.log_level, LogFormat(args.log_format), os.environ)
    memory.keep_little()
    file = Path(args.pipeline)
    manager = ServiceManager.of(os.environ)
    with manager.starting():
        app = build(load_pipeline(file, args.overrides), recipe_name(file), args.frames)
        stop_on_signals(app)
        app.start()
    manager.ready(app.stuck, f"inspecting as {app.pipeline.station.node}")
    try:
        follow(app)
    finally:
        manager.stopping()
        app.stop()
        app.wait(5.0)
        try:
            app.close()
        finally:
            try:
                tell_end(app.summary(), as_json=args.json)
            except BrokenPipeError:  # it must not take the place of what ended the line
                log.warning("nobody reads the summary")
    return int(ExitCode.OK)


def stop_on_signals(app: App) -> None:
    """Ctrl-C and SIGTERM end the line cleanly; SIGHUP reads the list of clients again."""
    on_signals({signal.SIGINT: app.stop, signal.SIGTERM: app.stop, signal.SIGHUP: app.reload})


def follow(app: App) -> None:
    """Waits for the end; on a terminal with one live status line, in a pipe with a log line now and then."""
    if not sys.stderr.isatty():
        while not app.wait(LOG_EVERY_S):
            log.info("%s", status_line(app.summary()))
        return
    from rich.live import Live
    from rich.text import Text

    with Live(console=people(), refresh_per_second=8, transient=True) as live:
        while not app.wait(STATUS_EVERY_S):
            live.update(Text(status_line(app.summary())))


def status_line(s: Summary) -> str:
    """Frames, rate, verdicts, latency, plan; of a line that decides over frames, what these cost, and decisions."""
    if s.effort is not None:
        return (
            f"{s.effort['frames']} frames  {s.effort['inferences']} inferences  duty cycle {s.effort['duty_cycle']:.1%}"
            f"  decisions: PASS {s.passed}  UNKNOWN {s.unknown}  plan {s.plan}"
        )
    latency = "-" if s.p50_ms is None else f"p50 {s.p50_ms:.1f} ms  p99 {s.p99_ms:.1f} ms"
    degraded = f"  degraded: {', '.join(s.degraded)}" if s.degraded else ""
    return (
        f"{s.frames} frames  {s.fps:.1f}/s  PASS {s.passed}  FAIL {s.fail}  UNKNOWN {s.unknown}"
        f"  {latency}  plan {s.plan}{degraded}"
    )


def tell_end(summary: Summary, *, as_json: bool) -> None:
    """The summary: a document for machines, a table for people."""
    if as_json:
        print_json(summary.document())
        return
    rows = [(key, cell(value)) for key, value in summary.document().items() if value is not None]
    print_table("Summary", ("", ""), rows)


def cell(value: object) -> object:
    """A value as a table shows it."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {cell(count)}" for key, count in value.items() if count is not None) or "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return value
