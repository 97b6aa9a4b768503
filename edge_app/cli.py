"""The command line: `edge_app --pipeline FILE ...`, and one word for everything else."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import NoReturn

from edge_app import __version__
from edge_app.commands.arguments import Parser, positive, refuse_empty
from edge_app.errors import ConfigError, EdgeAppError, ExitCode, RuntimeFault, scarcity
from edge_app.signals import keep_ctrl_c_in_mind, was_interrupted

COMMANDS = {
    "check": "validate a pipeline and print it resolved; --schema prints the JSON schema",
    "watch": "subscribe to a node and print its results live",
    "eval": "accuracy, escapes and false rejects of a model on a labelled data set",
    "eval-classes": "accuracy, calibration and confusion of a classifier on labelled pictures",
    "eval-mirror": "accuracy, flips, waiting and inferences saved of a pipeline that decides over many frames",
    "calibration": "learn the frame guard, or collect calibration frames from a line",
    "model": "import, quantize, compile, verify and show models; push one to a running line",
    "simulate": "run the scheduler against a thermal model of a board",
    "profile": "run a pipeline and show where its time goes; --trace writes a Chrome trace",
    "doctor": "look at this board: NPU, thermal zones, libraries, permissions",
    "bench": "measure this machine: kernels, host, wire, start, model, beside their peers",
    "soak": "run a pipeline with everything going wrong around it; memory, handles, lost results",
    "journal": "export, verify or count the journal of results",
    "keys": "make and check CURVE keys for the wire",
    "controller-sim": "a line controller that speaks the real bus, and misbehaves on demand",
}

EPILOG = """\
examples:
  edge_app --pipeline pipelines/defect.yaml                     run the line (Ctrl-C stops it)
  edge_app --pipeline pipelines/defect.yaml --frames 100        100 frames, then a summary
  edge_app --pipeline pipelines/defect.yaml \\
      --set camera.type=folder --set camera.path=pictures --set camera.loop=false
  edge_app --pipeline l1.yaml --pipeline l2.yaml                two lines on one board, or --pipeline FOLDER
  edge_app check pipelines/defect.yaml                          what is wrong with my YAML?
  edge_app watch                                                see the results of the node on this machine

exit codes: 0 ok, 1 a check or gate did not hold, 2 usage or configuration, 3 camera, 4 model, 5 runtime (NPU),
6 wire (port in use, keys), 70 internal error, 130 interrupted, 141 the reader of the output went away
"""
UNTIL_STOPPED = "watch"
"""Runs until Ctrl-C or its reader goes away, as the line itself does: for these that is the clean end."""
OF_A_PATH = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the main job; the words of COMMANDS are parsed by their own modules."""
    parser = Parser(
        prog="edge_app",
        description="Inspect parts: camera frames in, verdicts out over ZeroMQ, in time, every time.",
        epilog="commands:\n" + "\n".join(f"  {name:<15} {what}" for name, what in COMMANDS.items()) + "\n\n" + EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="edge_app --pipeline FILE [--pipeline FILE ...] [--set KEY=VALUE ...] [--frames N]\n"
        "       edge_app COMMAND [...]",
    )
    parser.add_argument("--version", action="version", version=f"edge_app {__version__}")
    parser.add_argument(
        "--pipeline",
        metavar="FILE",
        action="append",
        required=True,
        help="pipeline YAML, e.g. pipelines/defect.yaml, or a folder of them; may be repeated: several lines, one NPU",
    )
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="override a key of the YAML (of each, if there are several), e.g. camera.path=pictures; may be repeated",
    )
    parser.add_argument("--frames", metavar="N", type=positive, help="stop each line after N frames, with a summary")
    parser.add_argument("--json", action="store_true", help="end with the summary as one JSON document on stdout")
    parser.add_argument(
        "--log-level",
        metavar="L",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="debug, info (default), warning or error",
    )
    parser.add_argument(
        "--log-format",
        metavar="F",
        default="auto",
        choices=["auto", "text", "json", "journal"],
        help="auto (default): fields where stderr is systemd's journal, else text; text, json or journal",
    )
    return parser


def command_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one command; imports that command's module alone."""
    module = importlib.import_module(f"edge_app.commands.{name.replace('-', '_')}")
    parser = Parser(
        prog=f"edge_app {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    parser.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code says what became of it.

    Expected errors, and files that the system refuses, are printed without a traceback, all others (bugs) with it. A
    command that was interrupted or could not write its output is never 0: a gate that did not finish has not held.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments[0] if arguments and arguments[0] in COMMANDS else None
    endless = command in (None, UNTIL_STOPPED)
    try:
        code = run_command(command, arguments)
        sys.stdout.flush()
        return code
    except EdgeAppError as error:
        print(f"edge_app: {error}", file=sys.stderr)
        return int(error.exit_code)
    except BrokenPipeError:
        return int(ExitCode.OK if endless else ExitCode.PIPE_CLOSED)
    except KeyboardInterrupt:
        return int(ExitCode.OK if endless else ExitCode.INTERRUPTED)
    except OSError as error:
        if error.errno is None:
            return bug()
        refused = refusal(error)
        print(f"edge_app: {refused}", file=sys.stderr)
        return int(refused.exit_code)
    except Exception as error:
        if was_interrupted():
            return int(ExitCode.OK if endless else ExitCode.INTERRUPTED)
        scarce = scarcity(error)
        if scarce is None:
            return bug()
        print(f"edge_app: {scarce}", file=sys.stderr)
        return int(scarce.exit_code)


def refusal(error: OSError) -> EdgeAppError:
    """What the system refused: a path, which stays wrong, or (no space, no handles, a dying disk) what may yet come.

    A service is started again after the latter, not after the former.
    """
    where = None if error.filename is None else str(error.filename)
    if error.errno in OF_A_PATH:
        return ConfigError("the system refused a file", where=where, got=error.strerror,
                           remedy="see its path, its owner and its folders")  # fmt: skip
    return RuntimeFault("the system refused what was asked of it", where=where, got=error.strerror,
                        remedy="see the disk, its free space, and the system's log")  # fmt: skip


def bug() -> int:
    """Prints the exception in hand as what it is."""
    traceback.print_exc()
    print("edge_app: an error that nobody expected; this is a bug: report it, with the above", file=sys.stderr)
    return int(ExitCode.INTERNAL)


def run_command(command: str | None, arguments: list[str]) -> int:
    """Runs a word of COMMANDS, or the line for None."""
    refuse_empty(arguments)
    if command is not None:
        args = command_parser(command).parse_args(arguments[1:])
        return int(args.run(args))
    if arguments and not arguments[0].startswith("-"):
        return unknown_command(arguments[0])
    args = build_parser().parse_args(arguments or ["--help"])
    from edge_app import memory

    memory.begin_loading()
    from edge_app.commands import run_pipeline

    return int(run_pipeline.run(args))


def entry() -> NoReturn:
    """The process: runs `main` and leaves with its code.

    A thread that hangs in a driver (a run that never returns, a camera that does not answer) can't be ended; when the
    interpreter is torn down under it, the process may abort instead of exiting with its code. So it is left at once.
    """
    open_what_is_closed()
    keep_ctrl_c_in_mind()
    if sys.argv[1:] and sys.argv[1] in COMMANDS:
        end_as_by_ctrl_c()
    code = main()
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # else Python tries once more at its end, and changes the exit code
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.stderr.flush()
    if any(thread is not threading.main_thread() for thread in threading.enumerate()):
        os._exit(code)
    raise SystemExit(code)


def open_what_is_closed() -> None:
    """Standard streams that were closed (`>&-`) go nowhere; else a journal or a camera would get their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode))


def end_as_by_ctrl_c() -> None:
    """Commands start processes, and mount: a SIGTERM, or a terminal that is closed, must not leave them behind."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, signal.default_int_handler)


def unknown_command(word: str) -> int:
    """Exit 2, with the nearest command."""
    import difflib

    near = difflib.get_close_matches(word, COMMANDS, n=1)
    meant = f"--pipeline {word}" if word.endswith((".yaml", ".yml")) else next(iter(near), None)
    hint = f"did you mean `edge_app {meant}`?" if meant else "see `edge_app --help`"
    print(f"edge_app: there is no command {word!r}; {hint}", file=sys.stderr)
    return int(ExitCode.USAGE)
