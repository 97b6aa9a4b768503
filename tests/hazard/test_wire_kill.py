"""SIGKILL at any moment under 200 results a second: what was durable is there, bit for bit, and nothing twice."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from nodes import NodeProcess
from wire_samples import until

from edge_app.client import Start

RATE = 200
LIVE, REPLAYED = b',"replayed":false,', b',"replayed":true,'


class Recorder(threading.Thread):
    """A plain SUB and DEALER beside the library: keeps every byte, and what the node called durable."""

    def __init__(self, node: NodeProcess) -> None:
        super().__init__(daemon=True)
        self.bodies: dict[tuple[str, int], bytes] = {}
        self.durable: Counter[str] = Counter()
        self.conflicts: list[tuple[str, int]] = []
        self.unequal_counts: list[dict[str, Any]] = []
        self._node = node
        self._end = threading.Event()

    def run(self) -> None:
        context = zmq.Context()
        sub, dealer = context.socket(zmq.SUB), context.socket(zmq.DEALER)
        sub.subscribe("v1/")
        dealer.set(zmq.IMMEDIATE, 1)
        sub.connect(self._node.publish)
        dealer.connect(self._node.commands)
        poller = zmq.Poller()
        for sock in (sub, dealer):
            sock.set(zmq.LINGER, 0)
            poller.register(sock, zmq.POLLIN)
        asked = 0.0
        while not self._end.is_set():
            if time.monotonic() - asked > 0.02 and dealer.poll(0, zmq.POLLOUT):
                asked = time.monotonic()
                dealer.send(b'{"command":"status","request_id":"s"}')
            for sock, _ in poller.poll(20):
                frames = sock.recv_multipart()
                self.take(frames[-1])
        context.destroy(linger=0)

    def take(self, body: bytes) -> None:
        message = json.loads(body)
        if message.get("kind") == "result":
            self.keep(message["epoch"], message["seq"], body)
        elif "durable_seq" in message:
            self.durable[message["epoch"]] = max(self.durable[message["epoch"]], message["durable_seq"])
            counters = message["counters"]
            if counters["triggers"] != counters["pass"] + counters["fail"] + sum(counters["unknown"].values()):
                self.unequal_counts.append(counters)

    def keep(self, epoch: str, seq: int, body: bytes) -> None:
        if self.bodies.setdefault((epoch, seq), body) != body:
            self.conflicts.append((epoch, seq))

    def stop(self) -> None:
        self._end.set()
        self.join()


class Books(threading.Thread):
    """A program with the client library, from the first result on, through every restart."""

    def __init__(self, node: NodeProcess) -> None:
        super().__init__(daemon=True)
        self.got: list[tuple[str, int]] = []
        self.lost = 0
        self._node = node
        self._end = threading.Event()

    def run(self) -> None:
        with self._node.line(start=Start.OLDEST) as line:
            while not self._end.is_set():
                if (result := line.next(0.1)) is not None:
                    self.got.append((result.epoch, result.seq))
                    self.lost += result.lost_before

    def stop(self) -> None:
        self._end.set()
        self.join()


def replay_all(node: NodeProcess, epoch: str) -> Iterator[tuple[int, bytes]]:
    """Seq and body (as it was live) of all results of a run, as the wire gives them."""
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.connect(node.commands)
    after, more = 0, True
    while more:
        dealer.send(json.dumps({"command": "replay", "request_id": "r", "epoch": epoch, "after_seq": after}).encode())
        assert dealer.poll(60_000)
        reply = dealer.recv()
        head = json.loads(reply)
        assert head["ok"], head
        more = head["more"]
        start = reply.index(b'"results":[') + len(b'"results":[')
        for result in head["results"]:
            # The body stands in the reply as it was published: cut it out by its length, found by decoding.
            _, length = json.JSONDecoder().raw_decode(reply[start:].decode())
            body = reply[start : start + length]
            start += length + 1
            after = result["seq"]
            assert body.count(REPLAYED) == 1
            yield after, body.replace(REPLAYED, LIVE, 1)
    context.destroy(linger=0)


@pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_random_kills_lose_nothing_that_was_durable(tmp_path: Path, kills: int) -> None:
    chance = random.Random(5)
    node = NodeProcess({"journal": {"path": tmp_path / "results.db"}}, rate=RATE)
    recorder, books = Recorder(node), Books(node)
    recorder.start()
    books.start()
    epochs = []
    for number in range(kills):
        epochs.append(node.start().epoch)
        if number % 2:  # every other one no sooner than it has something to lose
            until(lambda: recorder.durable[epochs[-1]] > 0)
        time.sleep(chance.uniform(0.05, 1.5))
        node.kill()
    epochs.append(node.start().epoch)
    until(lambda: recorder.durable[epochs[-1]] > RATE)
    recorder.stop()

    replayed: dict[str, dict[int, bytes]] = {}
    for epoch in epochs:
        replayed[epoch] = dict(replay_all(node, epoch))
        seqs = sorted(replayed[epoch])
        assert seqs == list(range(1, len(seqs) + 1)), "no holes"
        assert len(seqs) >= recorder.durable[epoch], "what was called durable is there"
        for seq, body in replayed[epoch].items():
            recorder.keep(epoch, seq, body)
        assert dict(replay_all(node, epoch)).items() >= replayed[epoch].items(), "twice the same"
    assert recorder.conflicts == []
    assert recorder.unequal_counts == []
    assert sum(recorder.durable[epoch] > 0 for epoch in epochs) > len(epochs) / 2, "the test saw durable results"

    present = epochs[-1]
    wait_until_handed_over(books, (present, max(replayed[present])))
    books.stop()
    node.stop()
    assert len(set(books.got)) == len(books.got), "each once"
    assert books.got == sorted(books.got, key=lambda r: (epochs.index(r[0]), r[1])), "in order"
    handed = set(books.got)
    for epoch in epochs:
        assert all((epoch, seq) in handed for seq in range(1, recorder.durable[epoch] + 1))
        assert all((epoch, seq) in handed for seq in replayed[epoch])


def wait_until_handed_over(books: Books, last: tuple[str, int]) -> None:
    end = time.monotonic() + 120
    while last not in books.got:
        assert time.monotonic() < end, f"{last} never came; the last was {books.got[-1:]}"
        time.sleep(0.1)
