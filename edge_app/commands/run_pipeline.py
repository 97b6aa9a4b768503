"""`edge_app --pipeline FILE`: the line itself; with several files, or a folder of them, all lines of a board."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path

from edge_app import memory
from edge_app.board import Board
from edge_app.commands.report import people, print_json, print_table
from edge_app.config.lines import load_lines
from edge_app.errors import ExitCode
from edge_app.logs import LogFormat, start_logging
from edge_app.npu_lock import keep_npu
from edge_app.service import ServiceManager
from edge_app.signals import on_signals, was_interrupted
from edge_app.summary import Summary

log = logging.getLogger(__name__)
STATUS_EVERY_S = 0.25
LOOK_EVERY_S = 1.0
LOG_EVERY_S = 10.0


def run(args: argparse.Namespace) -> int:
    """Runs until every source ends, a signal comes, or something makes going on impossible."""
    start_logging(args.log_level, LogFormat(args.log_format), os.environ)
    memory.keep_little()
    manager = ServiceManager.of(os.environ)
    with manager.starting():
        board = Board(load_lines([Path(path) for path in args.pipeline], args.overrides), args.frames)
        stop_on_signals(board)
        if was_interrupted():
            raise KeyboardInterrupt
        board.start()
    memory.end_loading()
    manager.ready(board.stuck, board.status)
    try:
        follow(board, manager)
    finally:
        manager.stopping()
        board.stop()
        try:
            board.close()
        finally:
            try:
                tell_end(board, as_json=args.json)
            except BrokenPipeError:  # it must not take the place of what ended the line
                log.warning("nobody reads the summary")
    return int(ExitCode.OK)


def stop_on_signals(board: Board) -> None:
    """Ctrl-C and SIGTERM end all lines cleanly; SIGHUP reads the lists of clients again."""
    on_signals({signal.SIGINT: board.stop, signal.SIGTERM: board.stop, signal.SIGHUP: board.reload})


def follow(board: Board, manager: ServiceManager) -> None:
    """Waits for the end; on a terminal with live status lines, in a pipe with log lines now and then."""
    if not sys.stderr.isatty():
        told_after_s = 0.0
        while not board.wait(LOOK_EVERY_S):
            look_after(board, manager)
            told_after_s += LOOK_EVERY_S
            if told_after_s >= LOG_EVERY_S:
                told_after_s = 0.0
                for line in status_lines(board):
                    log.info("%s", line)
        return
    from rich.live import Live
    from rich.text import Text

    with Live(console=people(), refresh_per_second=8, transient=True) as live:
        while not board.wait(STATUS_EVERY_S):
            look_after(board, manager)
            live.update(Text("\n".join(status_lines(board))))


def look_after(board: Board, manager: ServiceManager) -> None:
    """What is to be done again and again."""
    manager.tell(board.status)
    keep_npu()


def status_lines(board: Board) -> list[str]:
    """One for each line, with its name where there are several."""
    if len(board.stations) == 1:
        return [status_line(board.stations[0].app.summary())]
    return [
        f"{one.node}: {status_line(one.app.summary()) if one.trouble is None else f'down: {one.trouble}'}"
        for one in board.stations
    ]


def status_line(s: Summary) -> str:
    """Frames, rate, verdicts, latency, plan; of a line that decides over frames, what these cost, and decisions."""
    if s.effort is not None:
        watts = s.effort["power_w_estimate"]
        power = "" if watts is None else f"  about {watts:.1f} W (an estimate)"
        return (
            f"{s.effort['frames']} frames  {s.effort['inferences']} inferences  duty cycle {s.effort['duty_cycle']:.1%}"
            f"{power}  decisions: PASS {s.passed}  UNKNOWN {s.unknown}  plan {s.plan}"
        )
    latency = "-" if s.p50_ms is None else f"p50 {s.p50_ms:.1f} ms  p99 {s.p99_ms:.1f} ms"
    degraded = f"  degraded: {', '.join(s.degraded)}" if s.degraded else ""
    return (
        f"{s.frames} frames  {s.fps:.1f}/s  PASS {s.passed}  FAIL {s.fail}  UNKNOWN {s.unknown}"
        f"  {latency}  plan {s.plan}{degraded}"
    )


def tell_end(board: Board, *, as_json: bool) -> None:
    """The summary: a document for machines, a table for people. Of several lines, each one's by its node."""
    documents = {one.node: {**one.app.summary().document(), "restarts": one.restarts} for one in board.stations}
    if len(documents) == 1:
        documents = {"": board.stations[0].app.summary().document()}
    if as_json:
        print_json(documents.get("", {"lines": documents}))
        return
    for node, document in documents.items():
        rows = [(key, value) for key, value in document.items() if value is not None]
        print_table(f"Summary {node}".strip(), ("", ""), rows)
