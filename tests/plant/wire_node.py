"""A node's wire in a process of its own, for tests and benchmarks: the real Outlet, journal and evidence, and in place
of camera and model a generator that seals results at a rate. It counts as a line does, and serves start, stop, hold and
trigger. The first line on stdout is JSON: the endpoints and the epoch.

    python wire_node.py --config '{"journal": {"path": "results.db"}}' --rate 200
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections import Counter
from typing import Any

import numpy as np

from edge_app import clock
from edge_app.config.results import Results
from edge_app.frame import Frame, FrameStatus, PixelFormat
from edge_app.results import (
    Code,
    ModelIdentity,
    NodeIdentity,
    NodeStatus,
    Outlet,
    Recipe,
    RefusedError,
    Reply,
    Request,
    new_epoch,
)
from edge_app.signals import on_signals
from edge_app.verdict import Defect, Mode, Placement, PlanKind, PowerMode, Reason, SchedReason, Sealed

PLACEMENT = Placement(PlanKind.CPU, PowerMode.NONE, 1.0, SchedReason.NO_NPU, {"nsp0": 51.5})
PATTERN = (Reason.OK, Reason.OK, Reason.DEFECT, Reason.OK, Reason.MARGINAL)
PIXELS = np.tile(np.arange(320, dtype=np.uint8)[None, :, None], (240, 1, 3))


class Generator:
    """Seals results: every trigger one, in order of seq, whoever asks."""

    def __init__(self, args: argparse.Namespace) -> None:
        identity = NodeIdentity(
            args.node, new_epoch(), "0.1.0", Recipe("generated", "sha256:" + "ab" * 32),
            ModelIdentity("none", "cd" * 32), simulated=not args.not_simulated,
        )  # fmt: skip
        handlers = {"start": self._start, "stop": self._stop, "hold": self._hold, "trigger": self._trigger}
        if args.no_trigger:
            del handlers["trigger"]
        self.outlet = Outlet(Results.model_validate_json(args.config), identity, self.status, handlers)
        self.epoch = identity.epoch
        self.mode = Mode.STARTING
        self.reasons: Counter[Reason] = Counter()
        self.latest_seal_us = 0
        self._delay_s = args.trigger_ms / 1000
        self._detail = "x" * args.detail
        self._lock = threading.Lock()
        self._seq = 0

    def seal(self, reason: Reason, trigger_id: int | None = None, part_id: str | None = None) -> None:
        """One result, and its picture if it wants one."""
        with self._lock:
            self._seq += 1
            seq, now_us = self._seq, clock.utc_us()
            self.reasons[reason] += 1
            defects = (Defect("short", 0.93, (1.0, 2.0, 3.5, 4.5)),) if reason is Reason.DEFECT else ()
            self.outlet.result(Sealed(
                seq, trigger_id or seq, part_id, seq, reason, self._detail, now_us - 8000, now_us, now_us + 40_000,
                {"wait": 10, "preprocess": 900, "infer": 7000, "decode": 90}, PLACEMENT, (), defects,
            ))  # fmt: skip
        frame = Frame(seq, seq, now_us, 0, FrameStatus.COMPLETE, PixelFormat.BGR8, 320, 240, PIXELS)
        self.outlet.evidence(frame, lambda _frame: None)

    def status(self) -> NodeStatus:
        """As a line tells it."""
        with self._lock:
            unknown = {r.value: n for r, n in self.reasons.items() if r not in (Reason.OK, Reason.DEFECT)}
            return NodeStatus(
                self.mode, self.mode is Mode.RUNNING, self._seq, self.reasons[Reason.OK], self.reasons[Reason.DEFECT],
                unknown, 0, PLACEMENT,
            )  # fmt: skip

    def change(self, mode: Mode) -> Reply:
        """To another mode."""
        was, self.mode = self.mode, mode
        if was is not mode:
            self.outlet.state(mode, was, PLACEMENT, "asked to")
        return Reply({"mode": mode})

    def _start(self, _request: Request) -> Reply:
        return self.change(Mode.RUNNING)

    def _stop(self, _request: Request) -> Reply:
        return self.change(Mode.READY)

    def _hold(self, _request: Request) -> Reply:
        return self.change(Mode.HOLD)

    def _trigger(self, request: Request) -> Reply:
        if self.mode is not Mode.RUNNING:
            raise RefusedError(Code.NOT_READY, f"the node is in mode {self.mode}")
        trigger_id, part_id = request.args["trigger_id"], request.args.get("part_id")
        reason = PATTERN[trigger_id % len(PATTERN)]
        threading.Timer(self._delay_s, self.seal, (reason, trigger_id, part_id)).start()
        return Reply({"trigger_id": trigger_id})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="{}", help="`results:` as JSON")
    parser.add_argument("--node", default="l1/st3")
    parser.add_argument("--rate", type=float, default=0, help="results a second; 0: only on trigger")
    parser.add_argument("--count", type=int, default=None, help="seal so many, then wait")
    parser.add_argument("--trigger-ms", type=float, default=5, help="from a trigger to its result")
    parser.add_argument("--detail", type=int, default=0, help="bytes of text in each result")
    parser.add_argument("--no-trigger", action="store_true", help="as a camera that runs free")
    parser.add_argument("--not-simulated", action="store_true")
    return parser.parse_args()


def generate(line: Generator, rate: float, count: int | None, stop: threading.Event) -> None:
    """At a steady rate on the monotonic clock; what a stall held up is made up for."""
    start, made = time.monotonic(), 0
    while not stop.is_set() and (count is None or made < count):
        due = min(int((time.monotonic() - start) * rate), count if count is not None else sys.maxsize)
        for made in range(made + 1, due + 1):  # noqa: B020
            line.seal(PATTERN[made % len(PATTERN)])
        stop.wait(min(0.002, 1 / rate))


def main() -> int:
    args = arguments()
    stop = threading.Event()
    line = Generator(args)
    on_signals({signal.SIGTERM: stop.set, signal.SIGINT: stop.set, signal.SIGHUP: line.outlet.reload})
    line.outlet.start()
    told: dict[str, Any] = {
        "publish": line.outlet.publish_endpoint, "commands": line.outlet.commands_endpoint, "epoch": line.epoch,
    }  # fmt: skip
    print(json.dumps(told), flush=True)
    line.change(Mode.READY)
    line.change(Mode.RUNNING)
    if args.rate:
        generate(line, args.rate, args.count, stop)
    while not stop.wait(0.5):
        if not line.outlet.healthy(within_us=60_000_000):
            print("the bus does not go round any more", file=sys.stderr)
            return 70
    line.outlet.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
