"""The outlet with real sockets: what commands answer, and that a retry runs nothing again."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import zmq
from wire_samples import Line, Node, Subscriber, outlet

from edge_app.results import Deferred, Reply, Request


def test_hello_says_who_and_how(node: Node) -> None:
    hello = node.client.ask("hello")
    assert hello["ok"]
    assert (hello["versions"], hello["node"]) == ([1], "l1/st3")
    assert hello["topics"]["result"] == "v1/result/l1/st3/"
    assert hello["limits"] == {"command_bytes": 65536, "replay": 256, "heartbeat_us": 1_000_000}
    assert hello["modes"] == ["STARTING", "READY", "RUNNING", "HOLD", "FAULT", "STOPPED"]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"", "BAD_REQUEST"),
        (b"\xff\xfe\x00garbage", "BAD_REQUEST"),
        (b"[" * 60_000, "BAD_REQUEST"),
        (b"9" * 60_000, "BAD_REQUEST"),
        (b"[1]", "BAD_REQUEST"),
        (b'{"command":"hello"}', "BAD_REQUEST"),
        (b'{"command":"hello","request_id":7}', "BAD_REQUEST"),
        (b'{"command":"hello","request_id":"\\u001b[2J"}', "BAD_REQUEST"),
        (b'{"command":"hello","request_id":"\\ud800"}', "BAD_REQUEST"),
        (b'{"command":"hello","request_id":NaN}', "BAD_REQUEST"),
        (b'{"command":"format_disk","request_id":"1"}', "UNKNOWN_COMMAND"),
        (b'{"command":"hold","request_id":"1"}', "UNAVAILABLE"),
        (b'{"command":"trigger","request_id":"1"}', "BAD_REQUEST"),
        (b'{"command":"trigger","request_id":"1","trigger_id":-1}', "BAD_REQUEST"),
        (b'{"command":"trigger","request_id":"1","trigger_id":true}', "BAD_REQUEST"),
        (b'{"command":"trigger","request_id":"1","trigger_id":1e999}', "BAD_REQUEST"),
        (b'{"command":"replay","request_id":"1","epoch":"e","after_seq":0,"limit":257}', "BAD_REQUEST"),
    ],
)
def test_bad_requests_get_one_clear_error(node: Node, frame: bytes, code: str) -> None:
    reply = node.client.ask(frame=frame)
    assert (reply["ok"], reply["code"], reply["mode"]) == (False, code, "RUNNING")
    assert reply["message"].isprintable()
    assert node.client.ask("hello")["ok"]


def test_a_retry_gets_the_first_reply_and_runs_nothing_again() -> None:
    calls: list[Request] = []

    def trigger(request: Request) -> Reply:
        calls.append(request)
        return Reply({"n": len(calls)})

    opened = outlet(Line(), {"trigger": trigger})
    opened.start()
    client = Subscriber(opened)
    first = client.ask("trigger", trigger_id=5, part_id="A", budget_us=50_000)
    assert client.ask("trigger", trigger_id=5, part_id="A", budget_us=50_000) == first
    assert len(calls) == 1
    assert calls[0].args == {"trigger_id": 5, "part_id": "A", "budget_us": 50_000}
    assert client.ask("trigger", trigger_id=6)["code"] == "CONFLICT"
    assert client.ask("trigger", trigger_id=6, request_id="r2")["n"] == 2
    client.close()
    opened.close()


def test_a_retry_is_known_by_its_content_not_by_its_bytes(node: Node) -> None:
    """A program's JSON library may write the fields in another order the next time."""
    frames = [b'{"command":"announce","request_id":"a","trigger_id":5,"part_id":"A"}',
              b'{ "part_id": "\\u0041", "trigger_id": 5, "request_id": "a", "later_field": 1, "command": "announce" }']
    assert [node.client.ask(frame=frame)["ok"] for frame in frames] == [True, True]
    assert node.client.ask(frame=frames[0].replace(b"A", b"B"))["code"] == "CONFLICT"


def test_a_client_that_comes_back_under_its_old_identity_is_answered(node: Node) -> None:
    """Its old connection may still stand here: half-open, after a cut cable. The newer one takes the place."""
    old, new = (node.client.context.socket(zmq.DEALER) for _ in range(2))
    for sock in (old, new):
        sock.set(zmq.ROUTING_ID, b"plc-1")
        sock.connect(str(node.outlet.commands_endpoint))
        sock.send(b'{"command":"hello","request_id":"1"}')
        assert sock.poll(20_000), "no reply"
        assert json.loads(sock.recv())["ok"]


def test_a_retry_of_what_takes_its_time_runs_nothing_again() -> None:
    calls: list[Request] = []
    go_on = threading.Event()

    def slow() -> Reply:
        go_on.wait(60)
        return Reply({"n": len(calls)})

    def prepare(request: Request) -> Deferred:
        calls.append(request)
        return Deferred(slow)

    opened = outlet(Line(), {"prepare_recipe": prepare})
    opened.start()
    client = Subscriber(opened)
    frame = json.dumps({"command": "prepare_recipe", "request_id": "p", "name": "a", "rev": "b"}).encode()
    for _ in range(3):
        client.dealer.send(frame)
    assert client.dealer.poll(200) == 0
    go_on.set()
    assert client.dealer.poll(60_000)
    first = json.loads(client.dealer.recv())
    assert client.ask(frame=frame) == first
    assert len(calls) == first["n"] == 1
    client.close()
    opened.close()


def test_a_handler_that_fails_is_an_error_and_the_bus_goes_on() -> None:
    def broken(_request: Request) -> Reply:
        raise ZeroDivisionError("secret")

    can_not_be_sent = Reply({"secret": object()})
    handlers: dict[str, Any] = {
        "hold": broken, "start": lambda _: can_not_be_sent, "stop": lambda _: Deferred(lambda: can_not_be_sent),
    }  # fmt: skip
    opened = outlet(Line(), handlers)
    opened.start()
    client = Subscriber(opened)
    for command in handlers:
        reply = client.ask(command, request_id=command)
        assert (reply["code"], "secret" in reply["message"]) == ("INTERNAL", False)
    assert client.ask("hello")["ok"]
    assert opened.healthy()
    client.close()
    opened.close()
