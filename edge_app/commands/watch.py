"""Subscribes to a node and prints its results live; what was missed is asked for and printed in its place.

  edge_app watch                                     the node on this machine
  edge_app watch tcp://station3:5560 --key me.secret.toml --node-key station3.public.toml
  edge_app watch --json --count 100                  100 results, one JSON document a line
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from edge_app.client import PUBLISH, KeyFileError, Keys, Line, Position, Result, Start
from edge_app.client.sockets import port_after
from edge_app.commands.arguments import above_zero, add_keys, positive
from edge_app.errors import BusError, ConfigError, ExitCode

COLOURS = {"PASS": "\x1b[32m", "FAIL": "\x1b[31m", "UNKNOWN": "\x1b[33m"}
PLAIN = "\x1b[0m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of `edge_app watch`."""
    parser.add_argument("endpoint", nargs="?", default=PUBLISH, metavar="ENDPOINT", help=f"PUB endpoint ({PUBLISH})")
    parser.add_argument("--commands", metavar="ENDPOINT", help="ROUTER endpoint (default: the port after PUB's)")
    parser.add_argument("--node", metavar="LINE/STATION", help="only this node (default: the first that is heard)")
    parser.add_argument("--oldest", action="store_true", help="begin with the oldest result that the node still has")
    parser.add_argument("--count", metavar="N", type=positive, help="stop after N results")
    parser.add_argument("--timeout", metavar="S", type=above_zero, help="exit 6 if no result came for so many seconds")
    add_keys(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document a line on stdout, all else on stderr")


def run(args: argparse.Namespace) -> int:
    """Prints results until there are `--count`, or Ctrl-C."""
    start = Start.OLDEST if args.oldest else Start.NOW
    with connect(args, args.commands or port_after(args.endpoint), start) as line:
        watch(line, args)
    return int(ExitCode.OK)


def connect(args: argparse.Namespace, commands: str | None, start: Position | Start) -> Line:
    """A client of the node that the arguments name.

    Raises:
        ConfigError: an endpoint or a key is none.
    """
    keys = load_keys(args)
    if args.node is not None and not re.fullmatch(r"[^/]+/[^/]+", args.node):
        raise ConfigError("not the name of a node", where="--node", wanted="LINE/STATION, e.g. l1/st1", got=args.node)
    try:
        return Line(args.endpoint, commands, node=args.node, start=start, keys=keys)
    except ValueError as error:
        raise ConfigError(str(error), where="ENDPOINT, --commands") from error


def load_keys(args: argparse.Namespace) -> Keys | None:
    """The keys that the arguments name; None for none."""
    if args.key is None and args.node_key is None:
        return None
    if args.key is None or args.node_key is None:
        raise ConfigError("one key is missing", where="--key, --node-key", wanted="both: my secret, the node's public")
    try:
        return Keys.load(args.key, args.node_key)
    except KeyFileError as error:
        raise ConfigError("can't use the key", got=str(error), remedy="see `edge_app keys check`") from error


def watch(line: Line, args: argparse.Namespace) -> None:
    """The loop: results to stdout; faults, states and alarms to stderr."""
    seen, fault, heard = 0, None, time.monotonic()
    while args.count is None or seen < args.count:
        result = line.next(0.5)
        for event in line.events():
            note(describe_event(event))
        if line.fault != fault and not (fault is None and line.heartbeat is None and time.monotonic() - heard < 3):
            fault = line.fault
            note("the node is alive" if fault is None else f"{fault} from {args.endpoint}; is the node running?")
        if result is not None:
            seen, heard = seen + 1, time.monotonic()
            print_result(result, as_json=args.json)
        elif args.timeout is not None and time.monotonic() - heard > args.timeout:
            raise no_result(line, args)


def no_result(line: Line, args: argparse.Namespace) -> BusError:
    """Nothing came for `--timeout`: because nobody is there, or because the node has nothing to tell."""
    got, remedy = line.fault, "is the node running, and are the keys right?"
    if got is None and line.heartbeat is not None:
        got = f"heartbeats only: the node is {line.heartbeat.get('mode')}"
        remedy = "does its camera give frames, and is it triggered? its page and its log have its alarms"
    return BusError("no result came", where=args.endpoint, wanted=f"one within {args.timeout:g} s",
                    got=got or "nothing", remedy=remedy)  # fmt: skip


def print_result(result: Result, *, as_json: bool) -> None:
    """One line."""
    if result.lost_before:
        note(f"{result.lost_before} results before this one are lost")
    if as_json:
        extra = {"delivery": result.delivery, "age_us": result.age_us, "lost_before": result.lost_before}
        print(json.dumps({**result.data, **extra}), flush=True)
        return
    colour, plain = (COLOURS[result.verdict], PLAIN) if sys.stdout.isatty() else ("", "")
    when = datetime.fromtimestamp(result.t_done_us / 1e6, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
    latency_ms = (result.t_done_us - result.data.get("t_capture_us", result.t_done_us)) / 1000
    what = why(result.data) if result.verdict == "UNKNOWN" else found(result.data)
    marks = " ".join(([] if result.delivery == "live" else [str(result.delivery)]) + ["simulated"] * result.simulated)
    print(
        f"{when} {result.seq:>7} {printable(result.part_id or f'#{result.trigger_id}'):<12}"
        f" {colour}{result.verdict:<7}{plain} {latency_ms:6.1f} ms  {printable(what)} {marks}".rstrip(),
        flush=True,
    )


def why(data: Mapping[str, Any]) -> str:
    """Why a result is UNKNOWN: `BAD_IMAGE: blurred: wanted ...`."""
    return ": ".join(str(data[key]) for key in ("reason", "detail") if data.get(key))


def found(data: Mapping[str, Any]) -> str:
    """What a result found, in a few words: `2 short, 1 open`, or a class."""
    if data.get("label") is not None:
        return str(data["label"])
    labels = [str(d.get("label")) for d in data.get("detections", []) if isinstance(d, dict)]
    return ", ".join(f"{labels.count(label)} {label}" for label in dict.fromkeys(labels))


def describe_event(event: Mapping[str, Any]) -> str:
    """A `state` or `alarm` message in words."""
    if event.get("kind") == "alarm":
        word = ("acknowledged" if event.get("acked") else "raised") if event.get("active") else "cleared"
        said = (event.get("text"), event.get("remedy") if event.get("active") else None)
        return f"alarm {event.get('alarm')} {word}{': ' * any(said)}{' - '.join(str(one) for one in said if one)}"
    return f"{event.get('was')} -> {event.get('mode')}: {event.get('reason')}"


def printable(text: str) -> str:
    """Without control characters: what comes off the wire must not drive the terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def note(text: str) -> None:
    """For people, on stderr."""
    print(f"edge_app watch: {printable(text)}", file=sys.stderr, flush=True)
