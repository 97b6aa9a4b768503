"""The wire's figures, beside a bare pyzmq PUB/SUB of the same bytes. Both take turns, so that a busy machine hits both.

The memory over a million results takes minutes and is measured only with `--only bus_memory`.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import zmq

from edge_app.bench.bus_peers import bare_run, open_outlet, outlet_run, paced, sealed, subscribers
from edge_app.bench.figures import Figures, Options
from edge_app.client import Keys, Line, Start
from edge_app.keys import write_pair
from edge_app.memory import resident_mb
from edge_app.results import Outlet
from edge_app.results.auth import new_key_pair
from edge_app.results.journal import Journal
from edge_app.results.record import Record
from edge_app.summary import nearest_rank

ROUNDS, ROUNDS_A_SECOND = 3, 66
LATENCY_ROUNDS = 7
RESULTS = 1_000_000


def percentiles(values: list[float]) -> dict[str, float]:
    """p50 and p99."""
    ordered = sorted(values)
    return {"p50": nearest_rank(ordered, 0.5), "p99": nearest_rank(ordered, 0.99)}


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """Over the rounds."""
    return {name: statistics.median(run[name] for run in runs) for name in ("p50", "p99")}


def micros(found: dict[str, float], prefix: str = "") -> dict[str, float]:
    """As figures."""
    return {f"{prefix}{name}_us": round(value, 1) for name, value in found.items()}


def bench_seal(seconds: float) -> Iterator[Figures]:
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
                for seq in paced(rate, seconds):
                    result = sealed(seq)
                    start = time.perf_counter_ns()
                    outlet.result(result)
                    costs.append((time.perf_counter_ns() - start) / 1000)
                fetch()
            outlet.close()
        end.set()
        yield Figures(
            f"bus_seal_{rate}{'_busy' if busy else ''}", f"sealing a result, {name}", micros(percentiles(costs))
        )


def spin(end: threading.Event) -> None:
    """Computes."""
    total = 0
    while not end.is_set():
        for number in range(1000):
            total += number


def bench_latency(seconds: float) -> Iterator[Figures]:
    """Publish and seal to a subscriber, beside a bare PUB/SUB. Many rounds: one alone says little."""
    for rate, count in ((r, c) for r in (200, 2000) for c in (1, 10, 100)):
        columns: dict[str, list[dict[str, float]]] = {"publish": [], "seal": [], "bare": []}
        for _ in range(LATENCY_ROUNDS):
            from_publish, from_seal = outlet_run(rate, seconds / 2, count)
            columns["publish"].append(percentiles(from_publish))
            columns["seal"].append(percentiles(from_seal))
            columns["bare"].append(percentiles(bare_run(rate, seconds / 2, count)[0]))
        publish, seal, bare = (medians(column) for column in columns.values())
        yield Figures(f"bus_latency_{rate}_{count}", f"{rate} results a second to {count} subscribers", {
            **micros(publish, "publish_"), **micros(seal, "seal_"), **micros(bare, "bare_"),
            "publish_to_bare_p50": round(publish["p50"] / bare["p50"], 2),
            "publish_to_bare_p99": round(publish["p99"] / bare["p99"], 2),
        })  # fmt: skip


def bench_stall(seconds: float) -> Iterator[Figures]:
    """A healthy subscriber while another never reads."""
    alone, beside = [], []
    for _ in range(ROUNDS):
        alone.append(percentiles(outlet_run(1000, seconds, 1)[1]))
        outlet = open_outlet()
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        deaf = context.socket(zmq.SUB)
        deaf.set(zmq.RCVHWM, 1)
        deaf.set(zmq.RCVBUF, 4096)
        deaf.subscribe(b"")
        deaf.connect(str(outlet.publish_endpoint))
        with subscribers(str(outlet.publish_endpoint), 1) as fetch:
            for seq in paced(1000, seconds):
                outlet.result(sealed(seq))
            time.sleep(0.3)
            beside.append(percentiles(fetch()[1]))
        context.destroy(linger=0)
        outlet.close()
    a, b = (statistics.median(x["p99"] for x in runs) for runs in (alone, beside))
    yield Figures("bus_stall", "a healthy subscriber at 1000 results a second, beside one that never reads", {
        "alone_p99_us": round(a, 1), "beside_p99_us": round(b, 1), "beside_to_alone": round(b / a, 2),
    })  # fmt: skip


class TimedJournal(Journal):
    """Notes when each result became durable."""

    sealed_ns: dict[int, int]
    durable_us: list[float]

    def _now_durable(self, records: list[Record]) -> None:
        super()._now_durable(records)
        now = time.perf_counter_ns()
        self.durable_us += [(now - self.sealed_ns[record.seq]) / 1000 for record in records]


def bench_durable(seconds: float) -> Iterator[Figures]:
    """Seal to disk."""
    for rate in (200, 2000):
        with tempfile.TemporaryDirectory() as folder:
            outlet = open_outlet(journal={"path": f"{folder}/results.db"})
            journal = outlet._journal
            assert journal is not None
            journal.__class__ = TimedJournal
            assert isinstance(journal, TimedJournal)
            journal.sealed_ns, journal.durable_us = {}, []
            for seq in paced(rate, seconds * 2):
                journal.sealed_ns[seq] = time.perf_counter_ns()
                outlet.result(sealed(seq))
            outlet.close()
        yield Figures(
            f"bus_durable_{rate}", f"seal to disk, {rate} results a second", micros(percentiles(journal.durable_us))
        )


def bench_replay(_seconds: float) -> Iterator[Figures]:
    """An earlier run from the journal, and this one from memory: by hand and by the library."""
    with tempfile.TemporaryDirectory() as folder:
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
        by_hand = got / (time.perf_counter() - start)
        context.destroy(linger=0)
        with Line(str(second.publish_endpoint), second.commands_endpoint, start=Start.OLDEST) as line:
            line.next(5)
            start, got = time.perf_counter(), 1
            while got < count:
                got += line.next(5) is not None
            by_library = got / (time.perf_counter() - start)
        second.close()
    yield Figures("bus_replay", f"an earlier run's {count} results out of the journal, a second", {
        "json_read": round(by_hand), "client_library": round(by_library),
    })  # fmt: skip


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


def bench_curve(seconds: float) -> Iterator[Figures]:
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
            for _ in range(ROUNDS):
                before = time.process_time()
                plain.append(percentiles(outlet_run(rate, seconds, count)[1]))
                middle = time.process_time()
                curve.append(percentiles(outlet_run(rate, seconds, count, triple, security=security)[1]))
                cpu.append((time.process_time() - middle) / (middle - before))
            p, c = (statistics.median(x["p50"] for x in runs) for runs in (plain, curve))
            yield Figures(f"bus_curve_{rate}_{count}", f"with keys, {rate} results a second to {count} subscribers", {
                "p50_us": round(c, 1), "plain_p50_us": round(p, 1), "ratio": round(c / p, 2),
                "node_cpu_ratio": round(statistics.median(cpu), 2),
            })  # fmt: skip


def bench_memory(_seconds: float) -> Iterator[Figures]:
    """Resident memory over a million results, with journal and a subscriber."""
    with tempfile.TemporaryDirectory() as folder:
        outlet = open_outlet(journal={"path": f"{folder}/results.db", "keep_mib": 64})
        bus, journal = outlet._bus, outlet._journal
        assert bus is not None
        assert journal is not None
        grown: list[float] = []
        with subscribers(str(outlet.publish_endpoint), 1) as fetch:
            for seq in range(1, RESULTS + 1):
                outlet.result(sealed(seq))
                while len(bus._queue) > 1000 or seq - journal.durable_seq > 4000:
                    time.sleep(0.001)
                if seq % (RESULTS // 10) == 0:
                    grown.append(resident_mb(os.getpid()))
            fetch()
        assert bus.dropped == journal.lost == 0
        outlet.close()
    yield Figures("bus_memory", f"resident memory over {RESULTS:,} results, journal and a subscriber", {
        "first_tenth_mb": round(grown[0], 1), "last_tenth_mb": round(grown[-1], 1),
    })  # fmt: skip


PARTS: dict[str, Callable[[float], Iterator[Figures]]] = {
    "bus_seal": bench_seal, "bus_latency": bench_latency, "bus_stall": bench_stall, "bus_durable": bench_durable,
    "bus_replay": bench_replay, "bus_curve": bench_curve, "bus_memory": bench_memory,
}  # fmt: skip


def figures(options: Options) -> Iterator[Figures]:
    """All parts but the memory, or those that are asked for."""
    for name, part in PARTS.items():
        asked = bool(options.only) and (options.only.startswith(name) or name.startswith(options.only))
        if asked or (not options.only and name != "bus_memory"):
            yield from part(options.rounds / ROUNDS_A_SECOND)
