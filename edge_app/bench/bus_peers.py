"""A wire to measure: the real outlet, a bare PUB of the same bytes, and subscribers in processes of their own.

Latencies end when a subscriber has the bytes. They begin when the sockets' thread calls send ("publish", as the bare
peer is measured), and when the line calls `Outlet.result` ("seal": encoding and the way to that thread are in it).
"""

from __future__ import annotations

import json
import multiprocessing as mp
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import zmq

from edge_app import clock
from edge_app.bench.aside import start_aside
from edge_app.config.results import Results
from edge_app.results import ModelIdentity, NodeIdentity, NodeStatus, Outlet, Recipe, new_epoch, wire
from edge_app.results.bus import Bus
from edge_app.verdict import Defect, Mode, Placement, PlanKind, PowerMode, Reason, SchedReason, Sealed

PLACEMENT = Placement(PlanKind.HTP, PowerMode.BURST, 1.0, SchedReason.NORMAL, {"nsp0": 51.5})
DEFECTS = (Defect("short", 0.93, (10.5, 20.5, 30.5, 40.5)), Defect("open", 0.71, (1.5, 2.5, 3.5, 4.5)))
TOPIC = wire.topic("result", "l1/bench")


def sealed(seq: int) -> Sealed:
    """A FAIL with two defects: about 1 KB on the wire."""
    now = clock.utc_us()
    return Sealed(seq, seq, f"A-{seq:06}", seq, Reason.DEFECT, "2 defects", now - 9000, now, now + 40_000,
                  {"wait": 100, "preprocess": 900, "infer": 7000, "decode": 300}, PLACEMENT, (), DEFECTS)  # fmt: skip


def open_outlet(**results: Any) -> Outlet:
    """The real outlet on free ports."""
    config = {"publish": "tcp://127.0.0.1:*", "commands": "tcp://127.0.0.1:*", **results}
    who = NodeIdentity("l1/bench", new_epoch(), "bench", Recipe("defect", "sha256:" + "ab" * 32),
                       ModelIdentity("pcb-defect", "cd" * 32, "qcs8550"), simulated=True)  # fmt: skip
    status = NodeStatus(Mode.RUNNING, True, 0, 0, 0, {}, 0, PLACEMENT)
    outlet = Outlet(Results.model_validate_json(json.dumps(config, default=str)), who, lambda: status)
    bus = outlet._bus
    assert bus is not None
    bus.__class__ = StampedBus
    outlet.start()
    return outlet


def paced(rate: float, seconds: float) -> Iterator[int]:
    """1, 2, 3 ... at a steady rate."""
    start = time.monotonic()
    for number in range(1, int(rate * seconds) + 1):
        wait = start + number / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        yield number


# -- subscribers, in processes of their own ---------------------------------------------------------------------------


def subscribe(pipe: Connection, endpoint: str, count: int, keys: tuple[str, str, str] | None) -> None:
    """`count` subscribers in one process; the first one's latencies (us) from publish and from seal are sent back."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    poller = zmq.Poller()
    socks = []
    for _ in range(count):
        sock = context.socket(zmq.SUB)
        sock.set(zmq.LINGER, 0)
        if keys is not None:
            sock.curve_publickey, sock.curve_secretkey, sock.curve_serverkey = (key.encode() for key in keys)
        sock.subscribe(TOPIC)
        sock.connect(endpoint)
        poller.register(sock, zmq.POLLIN)
        socks.append(sock)
    from_publish: list[float] = []
    from_seal: list[float] = []
    stamp = re.compile(rb'"t_done_us":(\d+)')
    pipe.send("ready")
    while not pipe.poll(0):
        for sock, _ in poller.poll(20):
            _, body, published_ns = sock.recv_multipart()
            if sock is socks[0]:
                now_ns, found = time.time_ns(), stamp.search(body)
                assert found is not None
                from_publish.append((now_ns - int(published_ns)) / 1000)
                from_seal.append(now_ns / 1000 - int(found[1]))
    pipe.send((from_publish, from_seal))
    context.destroy(linger=0)


Latencies = tuple[list[float], list[float]]
"""us, from publish and from seal."""
KeyTriple = tuple[str, str, str]
"""Public, secret, and the node's public."""


@contextmanager
def subscribers(endpoint: str, count: int, keys: KeyTriple | None = None) -> Iterator[Callable[[], Latencies]]:
    """A probe alone in one process, the other `count - 1` in another; gives a function that fetches the latencies."""
    started = []
    spawn = mp.get_context("spawn")
    for share in [1, count - 1] if count > 1 else [1]:
        here, there = spawn.Pipe()
        process = start_aside(subscribe, there, endpoint, share, keys)
        there.close()  # so that a process that dies is an EOFError here, not a wait for ever
        assert here.recv() == "ready"
        started.append((process, here))
    time.sleep(0.5)  # PUB learns of the subscriptions

    def fetch() -> Latencies:
        for _, pipe in started:
            pipe.send("stop")
        latencies: Latencies = started[0][1].recv()
        for process, _ in started:
            process.join(5)
        return latencies

    yield fetch


class StampedBus(Bus):
    """Adds the moment of sending as a further frame, which receivers ignore."""

    def _publish(self, kind: str, body: bytes) -> None:
        if kind == "result" and self.sockets.pub is not None:
            self.sockets.pub.send_multipart([TOPIC, body, b"%d" % time.time_ns()], zmq.NOBLOCK)
        else:
            super()._publish(kind, body)


def bare_run(rate: float, seconds: float, count: int) -> Latencies:
    """The peer: the sending thread owns a PUB and sends the same bytes with a new stamp."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pub = context.socket(zmq.PUB)
    pub.set(zmq.LINGER, 0)
    port = pub.bind_to_random_port("tcp://127.0.0.1")
    who = NodeIdentity("l1/bench", new_epoch(), "bench", Recipe("defect", "sha256:" + "ab" * 32),
                       ModelIdentity("pcb-defect", "cd" * 32, "qcs8550"), simulated=True)  # fmt: skip
    body = wire.encode(wire.result(sealed(1), who, "A-000001", (), None))
    head, tail = re.split(rb'"t_done_us":\d+', body)
    with subscribers(f"tcp://127.0.0.1:{port}", count) as fetch:
        for _ in paced(rate, seconds):
            body = head + b'"t_done_us":%d' % clock.utc_us() + tail
            pub.send_multipart([TOPIC, body, b"%d" % time.time_ns()], zmq.NOBLOCK)
        time.sleep(0.3)
        latencies = fetch()
    context.destroy(linger=0)
    return latencies


def outlet_run(rate: float, seconds: float, count: int, keys: KeyTriple | None = None, **results: Any) -> Latencies:
    """The real outlet."""
    outlet = open_outlet(**results)
    with subscribers(str(outlet.publish_endpoint), count, keys) as fetch:
        for seq in paced(rate, seconds):
            outlet.result(sealed(seq))
        time.sleep(0.3)
        latencies = fetch()
    outlet.close()
    return latencies
