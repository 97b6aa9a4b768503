"""Sealed results, a node and a line's status, as the tests of the wire need them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import zmq

from edge_app import clock
from edge_app.config.results import Results
from edge_app.results import ModelIdentity, NodeIdentity, NodeStatus, Outlet, Recipe, new_epoch
from edge_app.verdict import Defect, Mode, Placement, PlanKind, PowerMode, Reason, SchedReason, Sealed

PLACEMENT = Placement(PlanKind.CPU, PowerMode.NONE, 1.0, SchedReason.NO_NPU, {"nsp0": 51.5, "cpu0": None})
RECIPE = Recipe("defect", "sha256:" + "ab" * 32)


def sealed(seq: int, reason: Reason = Reason.OK, **changes: Any) -> Sealed:
    """A result as a line seals it; a DEFECT has one."""
    now = clock.utc_us()
    defects = (Defect("short", 0.93, (1.0, 2.0, 3.5, 4.5)),) if reason is Reason.DEFECT else ()
    fields: dict[str, Any] = {
        "seq": seq, "trigger_id": 1000 + seq, "part_id": f"A-{seq:06}", "frame_id": 5000 + seq, "reason": reason,
        "detail": "", "t_capture_us": now - 9000, "t_done_us": now, "deadline_us": now + 41_000,
        "stage_us": {"wait": 10, "preprocess": 900, "infer": 7000, "decode": 300}, "placement": PLACEMENT,
        "degraded": (), "defects": defects,
    }
    return Sealed(**{**fields, **changes})


def identity(**changes: Any) -> NodeIdentity:
    fields: dict[str, Any] = {
        "node": "l1/st3", "epoch": new_epoch(), "software": "0.1.0", "recipe": RECIPE,
        "model": ModelIdentity("pcb-defect", "cd" * 32, "qcs8550"), "simulated": True,
    }
    return NodeIdentity(**{**fields, **changes})


class Line:
    """The other side of the seam: counts what it sealed, and says how it stands."""

    def __init__(self) -> None:
        self.mode = Mode.RUNNING
        self.triggers = 0
        self.by_reason: dict[Reason, int] = {}

    def seal(self, reason: Reason = Reason.OK, **changes: Any) -> Sealed:
        self.triggers += 1
        self.by_reason[reason] = self.by_reason.get(reason, 0) + 1
        return sealed(self.triggers, reason, **changes)

    def status(self) -> NodeStatus:
        unknown = {r.value: n for r, n in self.by_reason.items() if r not in (Reason.OK, Reason.DEFECT)}
        return NodeStatus(
            self.mode, self.mode is Mode.RUNNING, self.triggers, self.by_reason.get(Reason.OK, 0),
            self.by_reason.get(Reason.DEFECT, 0), unknown, 0, PLACEMENT,
        )


def config(**changes: Any) -> Results:
    """Both sockets on free ports of this machine."""
    return Results.model_validate({"publish": "tcp://127.0.0.1:*", "commands": "tcp://127.0.0.1:*", **changes})


def outlet(
    line: Line, handlers: Mapping[str, Callable[..., Any]] | None = None, *, results: Results | None = None, **who: Any
) -> Outlet:
    return Outlet(results or config(), identity(**who), line.status, handlers)


def until(condition: Callable[[], Any], seconds: float = 40.0) -> None:
    """Waits for something that other threads or processes bring about; a busy machine is no reason to fail."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


def until_subscribed(node: Outlet, *clients: Any) -> None:
    """PUB learns of a subscription a moment after the connect: what is sent before is not for that client."""
    for client in clients:
        while client.heartbeat is None:
            node.state(Mode.RUNNING, Mode.READY, PLACEMENT, "are you there")  # a heartbeat follows
            client.next(0.02)


class Subscriber:
    """A plain SUB and DEALER at an outlet, as another language would have them."""

    def __init__(self, node: Outlet, topic: bytes = b"v1/") -> None:
        self.context = zmq.Context()
        self.sub = self.context.socket(zmq.SUB)
        self.sub.subscribe(topic)
        self.sub.connect(str(node.publish_endpoint))
        self.dealer = self.context.socket(zmq.DEALER)
        self.dealer.connect(str(node.commands_endpoint))

    def until_subscribed(self, node: Outlet) -> None:
        """PUB learns of a subscription a moment after the connect: what is sent before is not for us."""
        while not self.sub.poll(10):
            node.state(Mode.RUNNING, Mode.RUNNING, PLACEMENT, "are you there")
        node.alarm("LAST", True, "of the noise", "")
        self.next("alarm")
        node.alarm("LAST", False, "of the noise", "")
        self.next("alarm")

    def next(self, kind: str | None = None, timeout_s: float = 60.0) -> dict[str, Any]:
        """The next message, of this kind if one is given."""
        end = time.monotonic() + timeout_s
        while self.sub.poll(max(0, int((end - time.monotonic()) * 1000))):
            topic, body = self.sub.recv_multipart()
            message: dict[str, Any] = json.loads(body)
            assert topic.decode() == f"v1/{message['kind']}/{message['node']}/"
            if kind in (None, message["kind"]):
                return message
        raise TimeoutError(f"no {kind} within {timeout_s} s")

    def ask(self, command: str | None = None, frame: bytes | None = None, **fields: Any) -> dict[str, Any]:
        request = {"v": 1, "command": command, "request_id": "r1", **fields}
        self.dealer.send(frame if frame is not None else json.dumps(request).encode())
        assert self.dealer.poll(60_000), "no reply"
        reply: dict[str, Any] = json.loads(self.dealer.recv_multipart()[0])
        return reply

    def close(self) -> None:
        self.context.destroy(linger=0)


@dataclass
class Node:
    line: Line
    outlet: Outlet
    client: Subscriber
