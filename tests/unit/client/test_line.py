"""The client library against a real outlet, over real sockets."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from wire_samples import RECIPE, config, identity, outlet, until, until_subscribed
from wire_samples import Line as Sealing

import edge_app
from edge_app.client import CommandRefused, Delivery, Line, NoAnswer
from edge_app.client.followed import MAX_READY
from edge_app.results import Code, Outlet, RefusedError, Reply, Request, wire
from edge_app.verdict import Reason


def refuse(_request: Request) -> Reply:
    raise RefusedError(Code.NOT_READY, "the model is being loaded")


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


@pytest.fixture
def sealing() -> Sealing:
    return Sealing()


@pytest.fixture
def node(sealing: Sealing) -> Iterator[Outlet]:
    opened = outlet(sealing, {"start": lambda _request: Reply({"mode": "RUNNING"}), "stop": refuse})
    opened.start()
    yield opened
    opened.close()


@pytest.fixture
def line(node: Outlet) -> Iterator[Line]:
    opened = Line(str(node.publish_endpoint), node.commands_endpoint, max_age_s=60)  # live on a busy machine too
    until_subscribed(node, opened)
    yield opened
    opened.close()


def test_results_come_live_in_order_and_typed(node: Outlet, sealing: Sealing, line: Line) -> None:
    line.command("hello")  # the node's clock is known from here on
    for reason in (Reason.OK, Reason.DEFECT, Reason.LATE):
        node.result(sealing.seal(reason))
    got = [line.next(60) for _ in range(3)]
    assert [r and (r.seq, r.verdict, r.reason) for r in got] == [(1, "PASS", "OK"), (2, "FAIL", "DEFECT"),
                                                                 (3, "UNKNOWN", "LATE")]
    first = got[0]
    assert first is not None
    assert (first.delivery, first.recipe_rev, first.simulated, first.in_time) == (Delivery.LIVE, RECIPE.rev, True, True)
    assert (first.node, first.part_id, first.trigger_id, first.lost_before) == ("l1/st3", "A-000001", 1001, 0)
    assert line.next(0.01) is None


def test_an_old_result_is_stale_and_so_is_one_from_the_future(node: Outlet, sealing: Sealing, line: Line) -> None:
    line.command("hello")
    now = time.time_ns() // 1000
    for t_done_us in (now - 200_000_000, now + 200_000_000):
        node.result(sealing.seal(t_done_us=t_done_us))
    assert [r and r.delivery for r in (line.next(60), line.next(60))] == [Delivery.STALE, Delivery.STALE]


def test_commands_are_answered_or_refused_with_a_code(line: Line) -> None:
    assert line.command("start")["mode"] == "RUNNING"
    with pytest.raises(CommandRefused, match="the model is being loaded") as caught:
        line.command("stop")
    assert caught.value.code == "NOT_READY"


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_commands_are_answered_however_many_results_nobody_has_taken(
    node: Outlet, sealing: Sealing, line: Line
) -> None:
    for _ in range(MAX_READY + 200):
        node.result(sealing.seal())
    until(lambda: line.command("start", timeout_s=60) and line._full)
    assert line.command("start", timeout_s=60)["mode"] == "RUNNING"
    seqs = [result.seq for _ in range(MAX_READY + 200) if (result := line.next(60)) is not None]
    assert seqs == list(range(1, MAX_READY + 201))


def test_a_node_may_listen_on_ipv6(sealing: Sealing) -> None:
    opened = outlet(sealing, results=config(publish="tcp://[::1]:*", commands="tcp://[::1]:*"))
    opened.start()
    with Line(str(opened.publish_endpoint), opened.commands_endpoint) as line:
        until_subscribed(opened, line)
        assert line.command("hello", timeout_s=60)["node"] == "l1/st3"
    opened.close()


def test_commands_go_to_the_same_node_where_no_endpoint_is_named(sealing: Sealing) -> None:
    """They went to this machine's port 5561: another node would have been asked for what was missed."""
    port = free_ports(2)
    ends = {"publish": f"tcp://127.0.0.1:{port}", "commands": f"tcp://127.0.0.1:{port + 1}"}
    opened = outlet(sealing, results=config(**ends))
    opened.start()
    with Line(ends["publish"]) as line:
        assert line.command("hello", timeout_s=60)["node"] == "l1/st3"
    opened.close()


def free_ports(count: int) -> int:
    """The first of so many ports side by side that nobody has."""
    while True:
        with contextlib.ExitStack() as stack:
            first = 0
            try:
                for _ in range(count):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", first and first + 1))
                    first = first or probe.getsockname()[1]
            except (OSError, OverflowError):
                continue
            return first


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"start": "oldest"}, "wanted a Position, Start.OLDEST or Start.NOW, got 'oldest'"),
        ({"node": "st3"}, "wanted LINE/STATION, e.g. l1/st1, got 'st3'"),
        ({"keys": "plc.secret.toml"}, "wanted Keys.load"),
        ({"commands": ""}, "not an endpoint"),
        ({"publish": "ipc:///run/line"}, "takes commands is not known"),
    ],
)
def test_an_argument_that_can_not_be_meant_is_told(wrong: dict[str, Any], words: str) -> None:
    """A start that is none began with what came next, a node of no line was never heard."""
    with pytest.raises(ValueError, match=re.escape(words)):
        Line(**{"publish": "tcp://127.0.0.1:9", **wrong})


def test_a_line_that_is_closed_says_so() -> None:
    line = Line("tcp://127.0.0.1:9")
    line.close()
    line.close()
    with pytest.raises(RuntimeError, match="this Line is closed"):
        line.next(0.01)


def test_silence_is_a_fault_and_no_answer() -> None:
    with Line("tcp://127.0.0.1:9", "tcp://127.0.0.1:9") as line:
        assert line.next(0.05) is None
        assert line.fault == "no heartbeat yet"
        with pytest.raises(NoAnswer, match="hello: no reply within"):
            line.command("hello", timeout_s=0.05)


def test_a_node_that_stops_is_a_fault_after_three_heartbeats(node: Outlet, line: Line) -> None:
    until(lambda: line.next(0.05) is None and line.fault is None)
    node.close()
    until(lambda: line.next(0.1) is None and line.fault is not None)
    assert str(line.fault).startswith("no heartbeat for ")
    assert [e["mode"] for e in line.events() if e["kind"] == "state"][-1] == "STOPPED"


def test_garbage_from_a_publisher_is_counted_and_passed_over(sealing: Sealing) -> None:
    whole = wire.result(sealing.seal(), identity(), None, (), None)
    context = zmq.Context()
    pub = context.socket(zmq.PUB)
    port = pub.bind_to_random_port("tcp://127.0.0.1")
    bodies = [b"", b"\xff\x00", b"[" * 10_000, b"[]", b'{"v":1,"kind":"result","node":"l1/st3"}',
              b'{"v":2,"kind":"result","node":"l1/st3","epoch":"e","seq":1}',
              json.dumps({"v": 1, "kind": "result", "node": "l1/st3", "epoch": "e", "seq": True}).encode(),
              *(wire.encode({**whole, **change}) for change in ({"deadline_us": "soon"}, {"recipe": []}))]
    with Line(f"tcp://127.0.0.1:{port}", None) as line:
        while line.bad_messages == 0:
            pub.send_multipart([b"v1/result/l1/st3/", b"first"])
            line.next(0.02)
        before = line.bad_messages
        pub.send(b"v1/result/l1/st3/")
        for body in bodies:
            pub.send_multipart([b"v1/result/l1/st3/", body])
        until(lambda: line.next(0.05) is None and line.bad_messages >= before + 1 + len(bodies))
    context.destroy(linger=0)


def test_two_threads_at_once_are_told_and_harm_nothing(node: Outlet, sealing: Sealing, line: Line) -> None:
    """ZeroMQ's sockets are for one thread at a time."""
    entered, got = threading.Event(), []

    def read() -> None:
        entered.set()
        got.append(line.next(60))

    reader = threading.Thread(target=read)
    reader.start()
    entered.wait(60)
    until(lambda: line._in_use.locked())
    for use in (lambda: line.command("hello"), lambda: line.next(0), lambda: line.image("ab/1"), line.close):
        with pytest.raises(RuntimeError, match="in use by another thread"):
            use()
    node.result(sealing.seal())
    reader.join(60)
    assert [result and result.seq for result in got] == [1]
    assert line.command("start")["mode"] == "RUNNING", "one after the other is fine"


FOLLOW = """
import sys
sys.path.insert(0, sys.argv[1])
from edge_app.client import Line, AsyncLine, ControllerRule, Keys, Start
with Line(sys.argv[2], sys.argv[3], start=Start.OLDEST) as line:
    print(line.command("hello", timeout_s=60)["node"], [line.next(60).seq for _ in range(3)])
import asyncio
async def main():
    async with AsyncLine(sys.argv[2], sys.argv[3], start=Start.OLDEST) as line:
        print((await line.command("hello", timeout_s=60))["node"], [(await line.next(60)).seq for _ in range(3)])
asyncio.run(main())
"""


def test_the_library_needs_pyzmq_alone(tmp_path: Path, node: Outlet, sealing: Sealing) -> None:
    """An interpreter without site-packages sees pyzmq and edge_app's source, and nothing else; it follows a node."""
    for name in ("zmq", "pyzmq.libs"):
        found = Path(zmq.__file__).parent.parent / name
        if found.exists():
            (tmp_path / name).symlink_to(found)
    (tmp_path / "edge_app").symlink_to(Path(edge_app.__file__).parent)
    for _ in range(3):
        node.result(sealing.seal())
    places = [str(tmp_path), str(node.publish_endpoint), str(node.commands_endpoint)]
    bare = [sys.executable, "-I", "-S", "-c"]
    done = subprocess.run([*bare, FOLLOW, *places], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "l1/st3 [1, 2, 3]\n" * 2), done.stderr
    without = "import sys; sys.path.insert(0, sys.argv[1]); import numpy"
    assert subprocess.run([*bare, without, *places], capture_output=True, check=False).returncode == 1
