"""The wire's figures, beside a bare pyzmq PUB/SUB of the same bytes. Both take turns, so that a busy machine hits both.

    python tests/bench/bus.py [seal] [latency] [stall] [durable] [replay] [curve] [memory] [--seconds 3] [--rounds 3]

Latencies end when a subscriber in another process has the bytes. They begin when the sockets' thread calls send
("publish", as the bare peer is measured), and when the line calls `Outlet.result` ("seal": encoding and the way to that
thread are in it). Without names all parts run but `memory`, which takes minutes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import zmq
from timing import machine

from edge_app import clock
from edge_app.client import Keys, Line, Start
from edge_app.config.results import Results
from edge_app.keys import write_pair
from edge_app.results import ModelIdentity, NodeIdentity, NodeStatus, Outlet, Recipe, new_epoch, wire
from edge_app.results.auth import new_key_pair
from edge_app.results.bus import Bus
from edge_app.results.journal import Journal
from edge_app.results.record import Record
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


def percentiles(values: list[float]) -> dict[str, float]:
    """p50 and p99."""
    ordered = sorted(values)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]}


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """Over the rounds."""
    return {name: statistics.median(run[name] for run in runs) for name in ("p50", "p99")}


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
        process = spawn.Process(target=subscribe, args=(there, endpoint, share, keys), daemon=True)
        process.start()
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


# -- the parts --------------------------------------------------------------------------------------------------------


def bench_seal(args: argparse.Namespace) -> None:
    """What `Outlet.result` costs the thread that calls it, with journal and a subscriber; alone, and beside a thread
    that computes in Python all the time. At 200/s caches are cold at each call."""
    for rate, busy in ((200, False), (1000, False), (200, True)):
        name = f"{rate}/s{', beside a busy thread' if busy else ''}"
        end = threading.Event()
        if busy:
            threading.Thread(target=spin, args=(end,), daemon=True).start()
        with tempfile.TemporaryDirectory() as folder:
            outlet = open_outlet(journal={"path": f"{folder}/results.db"})
            costs = []
            with subscribers(str(outlet.publish_endpoint), 1) as fetch:
                for seq in paced(rate, args.seconds):
                    result = sealed(seq)
                    start = time.perf_counter_ns()
                    outlet.result(result)
                    costs.append((time.perf_counter_ns() - start) / 1000)
                fetch()
            outlet.close()
        end.set()
        p = percentiles(costs)
        print(f"seal at {name}: p50 {p['p50']:.1f} us, p99 {p['p99']:.1f} us (target: 20 us)")


def spin(end: threading.Event) -> None:
    """Computes."""
    total = 0
    while not end.is_set():
        for number in range(1000):
            total += number


def bench_latency(args: argparse.Namespace) -> None:
    """Publish and seal to a subscriber, beside a bare PUB/SUB."""
    titles = " | ".join(f"{name + ' p50':>11} {'p99':>6}" for name in ("publish", "seal", "bare"))
    print(f"{'us':>26} |{titles} | {'publish / bare':>21}")
    for rate, count in ((r, c) for r in (200, 2000) for c in (1, 10, 100)):
        columns: dict[str, list[dict[str, float]]] = {"publish": [], "seal": [], "bare": []}
        for _ in range(args.rounds):
            from_publish, from_seal = outlet_run(rate, args.seconds, count)
            columns["publish"].append(percentiles(from_publish))
            columns["seal"].append(percentiles(from_seal))
            columns["bare"].append(percentiles(bare_run(rate, args.seconds, count)[0]))
        publish, seal, bare = (medians(column) for column in columns.values())
        cells = " | ".join(f"{f['p50']:>11.0f} {f['p99']:>6.0f}" for f in (publish, seal, bare))
        ratio = ", ".join(f"{publish[p] / bare[p]:.2f}" for p in ("p50", "p99"))
        print(f"{rate:>6}/s, {count:>3} subscribers |{cells} | {ratio:>21}", flush=True)


def bench_stall(args: argparse.Namespace) -> None:
    """A healthy subscriber while another never reads."""
    alone, beside = [], []
    for _ in range(args.rounds):
        alone.append(percentiles(outlet_run(1000, args.seconds, 1)[1]))
        outlet = open_outlet()
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        deaf = context.socket(zmq.SUB)
        deaf.set(zmq.RCVHWM, 1)
        deaf.set(zmq.RCVBUF, 4096)
        deaf.subscribe(b"")
        deaf.connect(str(outlet.publish_endpoint))
        with subscribers(str(outlet.publish_endpoint), 1) as fetch:
            for seq in paced(1000, args.seconds):
                outlet.result(sealed(seq))
            time.sleep(0.3)
            beside.append(percentiles(fetch()[1]))
        context.destroy(linger=0)
        outlet.close()
    a, b = (statistics.median(x["p99"] for x in runs) for runs in (alone, beside))
    print(f"p99 of a healthy subscriber at 1000/s: alone {a:.0f} us, beside a deaf one {b:.0f} us: {b / a:.2f}")


class TimedJournal(Journal):
    """Notes when each result became durable."""

    sealed_ns: dict[int, int]
    durable_us: list[float]

    def _now_durable(self, records: list[Record]) -> None:
        super()._now_durable(records)
        now = time.perf_counter_ns()
        self.durable_us += [(now - self.sealed_ns[record.seq]) / 1000 for record in records]


def bench_durable(args: argparse.Namespace) -> None:
    """Seal to disk."""
    for rate in (200, 2000):
        with tempfile.TemporaryDirectory(dir=args.disk) as folder:
            outlet = open_outlet(journal={"path": f"{folder}/results.db"})
            journal = outlet._journal
            assert journal is not None
            journal.__class__ = TimedJournal
            assert isinstance(journal, TimedJournal)
            journal.sealed_ns, journal.durable_us = {}, []
            for seq in paced(rate, args.seconds * 2):
                journal.sealed_ns[seq] = time.perf_counter_ns()
                outlet.result(sealed(seq))
            outlet.close()
            p = percentiles(journal.durable_us)
            print(f"durable at {rate}/s: p50 {p['p50'] / 1000:.1f} ms, p99 {p['p99'] / 1000:.1f} ms")


def bench_replay(args: argparse.Namespace) -> None:
    """An earlier run from the journal, and this one from memory: by hand and by the library."""
    with tempfile.TemporaryDirectory(dir=args.disk) as folder:
        results = {"journal": {"path": f"{folder}/results.db"}}
        count = 15_000
        first = open_outlet(**results)
        fill(first, count)
        first.close()
        second = open_outlet(**results)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        dealer = context.socket(zmq.DEALER)
        dealer.connect(str(second.commands_endpoint))
        epoch = first._identity.epoch
        start, got, more = time.perf_counter(), 0, True
        while more:
            dealer.send(json.dumps({"command": "replay", "request_id": "r", "epoch": epoch, "after_seq": got}).encode())
            reply = json.loads(dealer.recv())
            got, more = reply["results"][-1]["seq"], reply["more"]
        took = time.perf_counter() - start
        print(f"replay from the journal, JSON read: {got} results in {took:.2f} s, {got / took:,.0f}/s")
        context.destroy(linger=0)
        with Line(str(second.publish_endpoint), second.commands_endpoint, start=Start.OLDEST) as line:
            line.next(5)
            start, got = time.perf_counter(), 1
            while got < count:
                got += line.next(5) is not None
            took = time.perf_counter() - start
            print(f"replay by the client library: {got} results in {took:.2f} s, {got / took:,.0f}/s")
        second.close()


def fill(outlet: Outlet, count: int) -> None:
    """As fast as it goes, without running its queues over."""
    bus, journal = outlet._bus, outlet._journal
    assert bus is not None
    for seq in range(1, count + 1):
        outlet.result(sealed(seq))
        while len(bus._queue) > 2000 or (journal is not None and seq - journal.durable_seq > 4000):
            time.sleep(0.001)
    while journal is not None and journal.durable_seq < count:
        time.sleep(0.01)


def bench_curve(args: argparse.Namespace) -> None:
    """The same with and without keys."""
    with tempfile.TemporaryDirectory() as folder:
        node, client = new_key_pair("node"), new_key_pair("client")
        write_pair(Path(folder), node)
        clients = Path(folder) / "clients.toml"
        clients.write_text(f'[[client]]\nname = "client"\npublic = "{client.public}"\nrole = "viewer"\n')
        security = {"key": f"{folder}/node.secret.toml", "clients": str(clients)}
        keys = Keys(client, node.public)
        triple = (keys.own.public, str(keys.own.secret), keys.node_public)
        for rate, count in ((200, 1), (2000, 10)):
            plain, curve, cpu = [], [], []
            for _ in range(args.rounds):
                before = time.process_time()
                plain.append(percentiles(outlet_run(rate, args.seconds, count)[1]))
                middle = time.process_time()
                curve.append(percentiles(outlet_run(rate, args.seconds, count, triple, security=security)[1]))
                cpu.append((time.process_time() - middle) / (middle - before))
            p, c = (statistics.median(x["p50"] for x in runs) for runs in (plain, curve))
            print(
                f"CURVE at {rate}/s, {count} subscribers: p50 {c:.0f} us against {p:.0f} us plain ({c / p:.2f});"
                f" the node's CPU time {statistics.median(cpu):.2f}"
            )


def bench_memory(args: argparse.Namespace) -> None:
    """Resident memory over a million results, with journal and a subscriber."""
    with tempfile.TemporaryDirectory(dir=args.disk) as folder:
        outlet = open_outlet(journal={"path": f"{folder}/results.db", "keep_mib": 64})
        bus, journal = outlet._bus, outlet._journal
        assert bus is not None
        assert journal is not None
        start = time.monotonic()
        with subscribers(str(outlet.publish_endpoint), 1) as fetch:
            for seq in range(1, args.results + 1):
                outlet.result(sealed(seq))
                while len(bus._queue) > 1000 or seq - journal.durable_seq > 4000:
                    time.sleep(0.001)
                if seq % (args.results // 10) == 0:
                    rate = seq / (time.monotonic() - start)
                    print(
                        f"memory after {seq:>9,} results: {resident_mib():.1f} MiB, journal"
                        f" {journal.size_bytes / 2**20:.0f} MiB, {rate:,.0f}/s",
                        flush=True,
                    )
            fetch()
        assert bus.dropped == journal.lost == 0
        outlet.close()


def resident_mib() -> float:
    """Of this process, now."""
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


PARTS = {
    "seal": bench_seal, "latency": bench_latency, "stall": bench_stall, "durable": bench_durable,
    "replay": bench_replay, "curve": bench_curve, "memory": bench_memory,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--disk", help="folder for the journals (default: the system's temporary folder)")
    parser.add_argument("--results", type=int, default=1_000_000, help="of the memory part")
    args = parser.parse_args()
    print(machine())
    for name, part in PARTS.items():
        if name in args.parts or (not args.parts and name != "memory"):
            part(args)


if __name__ == "__main__":
    main()
