"""A line controller that speaks the real bus: triggers parts, applies the controller rule, counts what it rejects.

  edge_app controller-sim --rate 10 --seconds 60 --allow-simulated
  edge_app controller-sim --misbehave stall,reconnect,garbage --json

The rule: a part is accepted only on a live, in-time, not simulated PASS whose trigger is pending and whose recipe
revision is the expected one (by default: the one in force when it starts). All else is rejected, with its cause.
A node that takes no software trigger is followed instead: every result is taken as that of a part that just passed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from typing import Any

from edge_app.client import (
    PUBLISH,
    Cause,
    CommandRefused,
    ControllerRule,
    Decision,
    Keys,
    Line,
    NoAnswer,
    Position,
    Start,
)
from edge_app.client.hostile import Hostile
from edge_app.client.sockets import port_after
from edge_app.commands.arguments import above_zero, add_keys, seed
from edge_app.commands.report import add_json_argument, print_json, print_table
from edge_app.commands.watch import connect, load_keys
from edge_app.errors import BusError, ConfigError, ExitCode

MISBEHAVIOURS = {
    "stall": "stops reading for --stall-s seconds now and then",
    "reconnect": "drops its connections now and then, and goes on where it was",
    "wrong-key": "knocks with a key that nobody knows",
    "duplicate": "sends each trigger but the first three times over",
    "garbage": "sends frames and bytes that are nothing",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of `edge_app controller-sim`."""
    parser.add_argument("endpoint", nargs="?", default=PUBLISH, metavar="ENDPOINT", help=f"PUB endpoint ({PUBLISH})")
    parser.add_argument("--commands", metavar="ENDPOINT", help="ROUTER endpoint (default: the port after PUB's)")
    parser.add_argument("--node", metavar="LINE/STATION", help="default: the first that is heard")
    parser.add_argument("--rate", type=above_zero, default=10.0, metavar="N", help="parts a second (default 10)")
    parser.add_argument("--seconds", type=above_zero, default=10.0, metavar="S", help="how long (default 10)")
    parser.add_argument("--budget-ms", type=above_zero, default=50.0, metavar="MS", help="of a trigger (default 50)")
    parser.add_argument("--wait-ms", type=above_zero, default=500.0, metavar="MS", help="then NO_RESULT (default 500)")
    parser.add_argument("--recipe", metavar="REV", help="expected recipe revision (default: the one in force now)")
    parser.add_argument("--allow-simulated", action="store_true", help="accept simulated results: for trials")
    add_keys(parser)
    meanings = "; ".join(f"{name}: {what}" for name, what in MISBEHAVIOURS.items())
    parser.add_argument("--misbehave", metavar="LIST", default="", help=f"comma-separated. {meanings}")
    parser.add_argument("--stall-s", type=above_zero, default=2.0, metavar="S", help="length of a stall (default 2)")
    parser.add_argument("--every-s", type=above_zero, default=5.0, metavar="S", help="between misdeeds (default 5)")
    parser.add_argument("--seed", type=seed, default=0, help="of the garbage")
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the controller, then prints what it saw."""
    wanted = [word for word in args.misbehave.split(",") if word]
    if unknown := sorted(set(wanted) - set(MISBEHAVIOURS)):
        known = ", ".join(MISBEHAVIOURS)
        raise ConfigError("unknown misbehaviour", where="--misbehave", wanted=known, got=", ".join(unknown))
    commands = args.commands or port_after(args.endpoint)
    if commands is None:
        raise ConfigError("where commands go is not clear", where="--commands", wanted="a ROUTER endpoint")
    controller = Controller(args, commands, load_keys(args), set(wanted))
    try:
        controller.run()
    finally:
        controller.close()
    report(args, controller.summary())
    return int(ExitCode.OK)


class Controller:
    """The loop of a controller: trigger, listen, decide."""

    def __init__(self, args: argparse.Namespace, commands: str, keys: Keys | None, misbehave: set[str]) -> None:
        self._args, self._commands, self._misbehave = args, commands, misbehave
        self._line = self._connect(Start.NOW)
        self._hostile = Hostile(args.endpoint, commands, keys, args.seed) if misbehave else None
        self._position: Position | None = None
        self._rule = ControllerRule(args.recipe, round(args.wait_ms * 1000), allow_simulated=args.allow_simulated)
        self._triggering = True
        self._next_id = time.time_ns() // 1_000_000
        self.decisions: Counter[Cause] = Counter()
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    def _connect(self, start: Position | Start) -> Line:
        return connect(self._args, self._commands, start)

    def close(self) -> None:
        """Lets go of all sockets."""
        self._line.close()
        if self._hostile is not None:
            self._hostile.close()

    def run(self) -> None:
        """Until the time is up, and every part has its decision.

        Raises:
            BusError: the node does not answer at all.
        """
        self._meet()
        start = next_part = time.monotonic()
        next_misdeed = start + self._args.every_s / 2
        while (now := time.monotonic()) - start < self._args.seconds:
            if now >= next_part:
                self._part()
                next_part += 1 / self._args.rate
            if self._misbehave and now >= next_misdeed:
                self._misbehave_once()
                next_misdeed = now + self._args.every_s
            self._listen(min(next_part, next_misdeed if self._misbehave else next_part))
        end = time.monotonic() + self._args.wait_ms / 1000 + 0.1
        while self._rule.pending and time.monotonic() < end:
            self._listen(time.monotonic() + 0.01)

    def _meet(self) -> None:
        try:
            hello = self._line.command("hello", timeout_s=5)
        except NoAnswer as error:
            raise BusError("the node does not answer", where=self._commands, got=str(error),
                           remedy="is it running, and are the keys right?") from error
        if self._args.recipe is None:
            self._rule = ControllerRule(
                hello["recipe"]["rev"], round(self._args.wait_ms * 1000), allow_simulated=self._args.allow_simulated
            )

    def _part(self) -> None:
        """Triggers one part; a node that takes no trigger is followed."""
        if not self._triggering:
            return
        self._next_id += 1
        part_id = f"SIM-{self._next_id}"
        fields: dict[str, Any] = {
            "trigger_id": self._next_id, "part_id": part_id, "budget_us": round(self._args.budget_ms * 1000),
        }  # fmt: skip
        self._rule.triggered(
            self._next_id, time.monotonic_ns() // 1000, (self._line.heartbeat or {}).get("epoch")
        )
        self.counts["parts"] += 1
        try:
            if self._hostile is not None and "duplicate" in self._misbehave and self.counts["parts"] > 1:
                equal = self._hostile.duplicate_command("trigger", **fields)
                self.counts["duplicates_equal" if equal else "duplicates_unequal"] += 1
            else:
                self._line.command("trigger", timeout_s=1.0, **fields)
        except CommandRefused as refusal:
            self.counts[f"trigger_{refusal.code}"] += 1
            if refusal.code == "UNAVAILABLE":
                print("edge_app controller-sim: this node takes no software trigger; following it", file=sys.stderr)
                self._triggering = False
                self._rule.overdue(2**63)
                self.counts.clear()
        except NoAnswer:
            self.counts["trigger_no_answer"] += 1

    def _listen(self, until: float) -> None:
        """Takes results until the next thing is due; at least once."""
        while True:
            result = self._line.next(max(0.0, min(0.05, until - time.monotonic())))
            now_us = time.monotonic_ns() // 1000
            fault = self._line.fault
            if result is not None:
                self._position = result.position
                self.counts[str(result.delivery)] += 1
                self.counts["lost"] += result.lost_before
                if not self._triggering:
                    self._rule.triggered(result.trigger_id, now_us, result.epoch)
                    self.counts["parts"] += 1
                self._count(self._rule.decide(result, fault))
            for decision in self._rule.overdue(now_us):
                self._count(decision)
            if fault is not None:
                self.faults[fault.partition(" for ")[0]] += 1
            if time.monotonic() >= until:
                return

    def _count(self, decision: Decision | None) -> None:
        if decision is None:
            self.counts["not_pending"] += 1
        else:
            self.decisions[decision.cause] += 1

    def _misbehave_once(self) -> None:
        assert self._hostile is not None
        if "stall" in self._misbehave:
            self.counts["stalls"] += 1
            time.sleep(self._args.stall_s)
        if "reconnect" in self._misbehave:
            self.counts["reconnects"] += 1
            self._line.close()
            self._line = self._connect(self._position or Start.NOW)
        if "wrong-key" in self._misbehave:
            self.counts["strangers_let_in" if self._hostile.wrong_key() else "strangers_refused"] += 1
        if "garbage" in self._misbehave:
            self.counts["garbage_refused"] += self._hostile.garbage_commands(20)
            self.counts["garbage_connections"] += self._hostile.garbage_bytes(5)

    def summary(self) -> dict[str, Any]:
        """What the run came to."""
        accepted = self.decisions[Cause.GOOD]
        rejected = {str(cause): count for cause, count in self.decisions.items() if cause is not Cause.GOOD}
        return {
            "node": self._line.node,
            "parts": self.counts.pop("parts", 0),
            "accepted": accepted,
            "rejected": sum(rejected.values()),
            "rejected_by_cause": rejected,
            "undecided": self._rule.pending,
            "counts": dict(self.counts),
            "faults": dict(self.faults),
        }


def report(args: argparse.Namespace, summary: dict[str, Any]) -> None:
    """As a table, or as one JSON document."""
    if args.json:
        print_json(summary)
        return
    rows = [(name, summary[name]) for name in ("node", "parts", "accepted", "rejected")]
    rows += [(f"  {cause}", count) for cause, count in summary["rejected_by_cause"].items()]
    rows += sorted(summary["counts"].items()) + [(f"fault: {fault}", n) for fault, n in summary["faults"].items()]
    print_table("controller", ("what", "count"), rows)
