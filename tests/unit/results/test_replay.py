"""Replay over real sockets: from memory, from the journal, from earlier runs, and past what is kept."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import zmq
from wire_samples import Line, config, outlet

from edge_app.client import Line as Client
from edge_app.client import Position
from edge_app.results import Code, Deferred, Outlet, RefusedError, Reply, Request
from edge_app.results import bus as bus_module
from edge_app.results import journal_file as jf
from edge_app.results import parts as parts_module
from edge_app.results import replay as replay_module
from edge_app.results.parts import Parts
from edge_app.results.replay import Tail
from edge_app.verdict import Reason


class Node:
    """A node with a journal, and a DEALER to ask it."""

    def __init__(self, file: Path | None, handlers: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self.line = Line()
        journal = {"path": file} if file is not None else {}
        self.outlet: Outlet = outlet(self.line, handlers, results=config(journal=journal))
        self.outlet.start()
        self.context = zmq.Context()
        self.dealer = self.context.socket(zmq.DEALER)
        self.dealer.connect(str(self.outlet.commands_endpoint))
        self.epoch = self.ask("hello")["epoch"]

    def seal(self, count: int, **changes: Any) -> None:
        for n in range(count):
            self.outlet.result(self.line.seal(Reason.DEFECT if n % 5 == 0 else Reason.OK, **changes))

    def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        self.dealer.send(json.dumps({"command": command, "request_id": "r", **fields}).encode())
        assert self.dealer.poll(60_000)
        reply: dict[str, Any] = json.loads(self.dealer.recv())
        return reply

    def replay(self, epoch: str, after_seq: int, **fields: Any) -> dict[str, Any]:
        return self.ask("replay", epoch=epoch, after_seq=after_seq, **fields)

    def wait(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end = time.monotonic() + 60
        while not condition(status := self.ask("status")):
            assert time.monotonic() < end
            time.sleep(0.01)
        return status

    def close(self) -> None:
        self.context.destroy(linger=0)
        self.outlet.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


@pytest.fixture
def node(file: Path) -> Iterator[Node]:
    opened = Node(file)
    yield opened
    opened.close()


def seqs(reply: dict[str, Any]) -> list[int]:
    assert reply["ok"], reply
    return [result["seq"] for result in reply["results"]]


def test_memory_serves_what_is_not_durable_yet() -> None:
    node = Node(None)
    node.seal(600)
    node.wait(lambda s: s["last_seq"] == 600)
    first = node.replay(node.epoch, 0)
    assert (seqs(first), first["more"], first["last_seq"]) == (list(range(1, 257)), True, 600)
    assert seqs(node.replay(node.epoch, 590, limit=4)) == [591, 592, 593, 594]
    rest = node.replay(node.epoch, 590)
    assert (seqs(rest), rest["more"]) == (list(range(591, 601)), False)
    assert (seqs(node.replay(node.epoch, 600)), node.replay(node.epoch, 600)["more"]) == ([], False)
    assert all(result["replayed"] is True for result in rest["results"])
    assert [e["epoch"] for e in node.ask("epochs")["epochs"]] == [node.epoch]
    assert node.replay("another", 0)["code"] == "GONE"
    node.close()


def test_the_journal_serves_what_memory_has_forgotten(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "TAIL_RESULTS", 10)
    node.seal(300)
    status = node.wait(lambda s: s["durable_seq"] == 300)
    assert (status["journal"], status["oldest_seq"]) == (True, 1)
    replies = [node.replay(node.epoch, after, limit=100) for after in (0, 100, 200)]
    assert [seq for reply in replies for seq in seqs(reply)] == list(range(1, 301))
    assert [reply["more"] for reply in replies] == [True, True, False]


def test_an_earlier_run_is_replayed_after_a_restart(node: Node, file: Path) -> None:
    node.seal(10)
    node.close()
    second = Node(file)
    second.seal(3)
    listed = second.ask("epochs")["epochs"]
    assert [e["epoch"] for e in listed] == [node.epoch, second.epoch]
    assert (listed[0]["oldest_seq"], listed[0]["last_seq"]) == (1, 10)
    old = second.replay(node.epoch, 4)
    assert (seqs(old), old["more"], old["last_seq"]) == ([5, 6, 7, 8, 9, 10], False, 10)
    assert {result["epoch"] for result in old["results"]} == {node.epoch}
    second.close()


@pytest.mark.parametrize(
    "damage", ["body = CAST(replace(body, 'PASS', 'FAIL') AS BLOB)", "body = x'00'", "body = 'text'", "crc = 0"]
)
def test_a_result_that_is_not_what_was_written_is_lost_and_no_other(node: Node, file: Path, damage: str) -> None:
    """A bad block: its verdict may be another one, and what is no JSON would cost the client the whole run."""
    node.seal(10)
    node.close()
    with closing(sqlite3.connect(file)) as connection, connection:
        damaged = f"UPDATE result SET {damage} WHERE id & {jf.SEQ_MASK} IN (2, 5, 10)"
        assert connection.execute(damaged).rowcount == 3
    second = Node(file)
    old = second.replay(node.epoch, 0, limit=7)
    assert (seqs(old), old["more"]) == ([1, 3, 4, 6, 7, 8, 9], True)
    rest = second.replay(node.epoch, 9)
    assert (seqs(rest), rest["more"], rest["last_seq"]) == ([], False, 10)
    second.close()


PAGE = 4096
LEAF = 13
"""First byte of a page that holds rows."""


def damage_a_page(file: Path) -> None:
    """A block in the middle of the file that says nothing any more."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(file.read_bytes())
    leaves = [at for at in range(0, len(data), PAGE) if data[at] == LEAF]
    middle = leaves[len(leaves) // 2]
    data[middle : middle + PAGE] = bytes(PAGE)
    file.write_bytes(data)


def test_a_damaged_page_costs_what_was_in_it_and_is_told(node: Node, file: Path) -> None:
    """The whole rest of the run was BUSY, until the client gave it up."""
    node.seal(100)
    node.close()
    damage_a_page(file)
    second = Node(file)
    reply = second.replay(node.epoch, 0, limit=7)
    got = seqs(reply)
    while reply["more"]:
        reply = second.replay(node.epoch, got[-1], limit=7)
        got += seqs(reply)
    assert (got[0], got[-1], got) == (1, 100, sorted(set(got)))
    assert 80 < len(got) < 100
    (alarm,) = second.ask("status")["alarms"]
    assert (alarm["alarm"], node.epoch in alarm["text"]) == ("JOURNAL_DAMAGED", True)
    second.close()


def test_a_client_is_told_how_much_a_damaged_page_held(node: Node, file: Path) -> None:
    node.seal(600)
    node.wait(lambda s: s["durable_seq"] == 600)
    node.close()
    damage_a_page(file)
    second = Node(file)
    second.seal(1)
    got, lost = 0, 0
    endpoints = str(second.outlet.publish_endpoint), second.outlet.commands_endpoint
    with Client(*endpoints, start=Position(node.epoch, 0)) as client:
        while (result := client.next(60)) is not None and result.epoch == node.epoch:
            got, lost = got + 1, lost + result.lost_before
        assert result is not None
        assert (result.seq, got + lost, client.lost) == (1, 600, lost)
        assert lost > 0
    second.close()


def test_a_seq_that_no_run_has_reached_brings_nothing(node: Node, file: Path) -> None:
    """Row ids carry the run's number above the seq: an absurd seq must not reach into another place."""
    epochs = [node.epoch]
    node.seal(3)
    node.close()
    for _ in range(3):
        other = Node(file)
        epochs.append(other.epoch)
        other.seal(3)
        asked = [(epoch, 2**bit) for epoch in epochs for bit in range(2, 53)]
        assert [seqs(other.replay(epoch, seq)) for epoch, seq in asked] == [[]] * len(asked)
        other.close()


def test_what_is_on_its_way_to_the_disk_is_not_called_lost(
    node: Node, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wire's queue was full, so memory does not have it; the journal has not written it yet."""
    node.seal(5)
    node.wait(lambda s: s["durable_seq"] == 5)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # the disk stands still
    monkeypatch.setattr(bus_module, "MAX_QUEUED_RESULTS", 0)
    node.seal(5)
    monkeypatch.undo()
    node.seal(1)
    node.wait(lambda s: s["last_seq"] == 11)
    assert node.replay(node.epoch, 5)["code"] == "BUSY"
    assert seqs(node.replay(node.epoch, 3)) == [4, 5]
    other.execute("ROLLBACK")
    other.close()
    node.wait(lambda s: s["durable_seq"] == 11)
    assert seqs(node.replay(node.epoch, 5)) == list(range(6, 12))


def test_a_command_that_takes_minutes_holds_up_no_replay(file: Path) -> None:
    """A client that gets no replay for ten seconds gives its results up as lost."""
    go_on = threading.Event()

    def slow() -> Reply:
        go_on.wait(60)
        return Reply()

    first = Node(file)
    first.seal(3)
    first.close()
    node = Node(file, {"self_test": lambda _request: Deferred(slow)})
    node.dealer.send(b'{"command":"self_test","request_id":"slow"}')
    assert seqs(node.replay(first.epoch, 0)) == [1, 2, 3]
    assert [run["epoch"] for run in node.ask("epochs")["epochs"]] == [first.epoch, node.epoch]
    go_on.set()
    assert node.dealer.poll(60_000)
    assert json.loads(node.dealer.recv())["request_id"] == "slow"
    node.close()


def test_a_replayed_result_is_the_published_one_but_for_its_mark(node: Node) -> None:
    context = zmq.Context()
    sub = context.socket(zmq.SUB)
    sub.subscribe("v1/")
    sub.connect(str(node.outlet.publish_endpoint))
    assert sub.poll(60_000), "a heartbeat: the subscription has arrived"
    node.seal(20, detail='"replayed":false, \\"replayed":false,')
    live = {}
    while len(live) < 20:
        assert sub.poll(60_000)
        topic, body = sub.recv_multipart()
        if topic.startswith(b"v1/result/"):
            live[json.loads(body)["seq"]] = body
    node.wait(lambda s: s["durable_seq"] == 20)
    node.dealer.send(json.dumps({"command": "replay", "request_id": "r", "epoch": node.epoch, "after_seq": 0}).encode())
    reply = node.dealer.recv()
    for body in live.values():
        assert body.replace(b',"replayed":false,', b',"replayed":true,') in reply
    context.destroy(linger=0)


def test_past_retention_is_gone_and_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "TAIL_RESULTS", 10)
    node = Node(None)
    node.seal(50)
    node.wait(lambda s: s["last_seq"] == 50)
    reply = node.replay(node.epoch, 0)
    assert (reply["code"], reply["oldest_seq"]) == ("GONE", 41)
    assert seqs(node.replay(node.epoch, 40)) == list(range(41, 51))
    node.close()


def test_a_batch_is_bounded_in_bytes_too(node: Node) -> None:
    node.seal(300, detail="x" * 10_000)
    node.wait(lambda s: s["durable_seq"] == 300)
    got, replies = [], 0
    while True:
        reply = node.replay(node.epoch, got[-1] if got else 0)
        got += seqs(reply)
        replies += 1
        assert len(json.dumps(reply)) < 1_200_000
        if not reply["more"]:
            break
    assert (got, replies) == (list(range(1, 301)), 4)


def test_an_announcement_names_the_part_unless_it_is_late(node: Node) -> None:
    assert node.ask("announce", trigger_id=1001, part_id="B-7")["ok"]
    node.seal(2, part_id=None)
    node.wait(lambda s: s["last_seq"] == 2)
    assert [r["part_id"] for r in node.replay(node.epoch, 0)["results"]] == ["B-7", None]
    assert node.ask("announce", trigger_id=1002, part_id="B-8", request_id="2")["code"] == "TOO_LATE"
    assert node.ask("announce", trigger_id=1001, part_id="B-9", request_id="3")["code"] == "CONFLICT"
    assert node.ask("announce", trigger_id=1001, part_id="B-7", request_id="4")["ok"]
    assert [r["part_id"] for r in node.replay(node.epoch, 0)["results"]] == ["B-7", None]


@pytest.fixture
def triggered() -> Iterator[Node]:
    """A line that takes software triggers, and refuses the ninth."""

    def trigger(request: Request) -> Reply:
        if request.args["trigger_id"] == 9:
            raise RefusedError(Code.CONFLICT, "trigger ids must rise")
        return Reply()

    opened = Node(None, {"trigger": trigger})
    yield opened
    opened.close()


def test_a_trigger_and_an_announcement_never_contradict(triggered: Node) -> None:
    def code(command: str, trigger_id: int, part_id: str) -> str:
        reply = triggered.ask(command, trigger_id=trigger_id, part_id=part_id, request_id=str(next(ids)))
        return str(reply.get("code", "ok"))

    ids = count()
    assert code("announce", 1, "A") == "ok"
    assert code("trigger", 1, "B") == "CONFLICT"
    assert code("trigger", 1, "A") == "ok"
    assert code("trigger", 2, "B") == "ok"
    assert code("announce", 2, "C") == "CONFLICT", "the trigger said B, so the result will"
    assert code("announce", 2, "B") == "ok"
    assert code("trigger", 9, "D") == "CONFLICT"
    assert code("announce", 9, "E") == "ok", "a trigger that was refused names no part"


def test_parts_are_forgotten_only_once_their_trigger_is_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "KEPT", 10)
    parts = Parts()
    parts.announce(100, "far ahead")
    for trigger_id in range(1, 51):
        assert parts.take(trigger_id) is None
        parts.forget_old()
    with pytest.raises(RefusedError) as caught:
        parts.announce(3, "too late for long")
    assert caught.value.code is Code.TOO_LATE
    assert parts.take(100) == "far ahead"
    for trigger_id in range(1000, 1030):
        parts.announce(trigger_id, "never comes")
        parts.forget_old()
    assert [parts.take(trigger_id) for trigger_id in (1019, 1020)] == [None, "never comes"], "bounded all the same"


@pytest.mark.parametrize("after", [0, 1, 40, 60, 89, 90, 91, 500])
@pytest.mark.parametrize("limit", [1, 7, 256])
def test_the_tail_gives_what_follows_a_seq(after: int, limit: int) -> None:
    tail = Tail()
    for seq in range(10, 91):
        tail.append(seq, b"%d" % seq)
    wanted = [seq for seq in range(10, 91) if seq > after][:limit]
    assert list(tail.after(after, limit)) == [(seq, b"%d" % seq) for seq in wanted]


def test_the_tail_has_no_holes() -> None:
    tail = Tail()
    for seq in (1, 2, 3, 7, 8):
        tail.append(seq, b"")
    assert (tail.oldest_seq, [seq for seq, _ in tail.after(0, 10)]) == (7, [7, 8])
