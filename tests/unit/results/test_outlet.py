"""The outlet with real sockets: what is published, in which order, and what commands answer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zmq
from wire_samples import PLACEMENT, Line, config, outlet, until

from edge_app.config.results import Results
from edge_app.errors import BusError, ConfigError
from edge_app.results import Deferred, ModelIdentity, NodeStatus, Outlet, Recipe, Reply, Request
from edge_app.results.journal_file import open_for_reading, read_runs
from edge_app.verdict import Defect, Mode, Reason


class Subscriber:
    """A plain SUB and DEALER, as another language would have them."""

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


@pytest.fixture
def node() -> Iterator[Node]:
    line = Line()
    opened = outlet(line, {"start": lambda request: Reply({"mode": "RUNNING", "by": request.client})})
    opened.start()
    client = Subscriber(opened)
    client.until_subscribed(opened)
    yield Node(line, opened, client)
    client.close()
    opened.close()


def test_a_result_arrives_with_the_fields_of_the_protocol(node: Node) -> None:
    sealed = node.line.seal(Reason.DEFECT)
    node.outlet.result(sealed)
    got = node.client.next("result")
    assert got == {
        "v": 1, "kind": "result", "node": "l1/st3", "epoch": got["epoch"], "seq": 1, "trigger_id": 1001,
        "part_id": "A-000001", "frame_id": 5001, "verdict": "FAIL", "reason": "DEFECT", "detail": "",
        "t_capture_us": sealed.t_capture_us, "t_done_us": sealed.t_done_us, "deadline_us": sealed.deadline_us,
        "clock": {"source": "unsynchronised", "err_us": None},
        "stage_us": {"wait": 10, "preprocess": 900, "infer": 7000, "decode": 300},
        "recipe": {"name": "defect", "rev": "sha256:" + "ab" * 32},
        "model": {"name": "pcb-defect", "sha256": "cd" * 32, "soc": "qcs8550"},
        "sched": {"plan": "cpu", "power_mode": "none", "rate": 1.0, "reason": "NO_NPU",
                  "zones_c": {"nsp0": 51.5, "cpu0": None}},
        "degraded": [], "simulated": True, "replayed": False, "software": "0.1.0",
        "detections": [{"label": "short", "score": 0.93, "box_px": [1.0, 2.0, 3.5, 4.5]}], "image": None,
    }


def test_results_keep_their_order_and_the_heartbeat_tells_the_last(node: Node) -> None:
    for _ in range(500):
        node.outlet.result(node.line.seal())
    assert [node.client.next("result")["seq"] for _ in range(500)] == list(range(1, 501))
    beat = node.client.next("heartbeat")
    assert beat["last_seq"] == 500
    assert beat["counters"] == {"triggers": 500, "pass": 500, "fail": 0, "unknown": {}}


def test_a_heartbeat_follows_a_state_change_at_once(node: Node) -> None:
    started = time.monotonic()
    node.outlet.state(Mode.HOLD, Mode.RUNNING, PLACEMENT, "operator")
    state = node.client.next("state")
    assert (state["mode"], state["was"], state["reason"]) == ("HOLD", "RUNNING", "operator")
    assert node.client.next()["kind"] == "heartbeat"
    assert time.monotonic() - started < 0.9, "the regular heartbeat was waited for"


def test_an_alarm_is_sent_when_raised_acknowledged_and_cleared_and_not_again(node: Node) -> None:
    for _ in range(3):
        node.outlet.alarm("NPU_FAULT", True, "the NPU does not answer", "restart the board")
    raised = node.client.next("alarm")
    assert (raised["alarm"], raised["active"], raised["acked"]) == ("NPU_FAULT", True, False)
    assert [a["alarm"] for a in node.client.ask("status")["alarms"]] == ["NPU_FAULT"]
    assert node.client.ask("ack_alarm", alarm="NPU_FAULT", request_id="a1")["ok"]
    assert node.client.next("alarm")["acked"] is True
    node.outlet.alarm("NPU_FAULT", False, "the NPU answers again", "")
    cleared = node.client.next("alarm")
    assert (cleared["active"], cleared["text"]) == (False, "the NPU answers again")
    assert node.client.ask("status")["alarms"] == []
    assert node.client.ask("ack_alarm", alarm="NPU_FAULT", request_id="a2")["code"] == "NOT_FOUND"


def test_a_live_update_changes_what_the_next_result_says(node: Node) -> None:
    node.outlet.result(node.line.seal())
    node.outlet.identify(recipe=Recipe("defect", "sha256:02"), model=ModelIdentity("pcb2", "ee", None))
    node.outlet.result(node.line.seal())
    assert node.client.next("result")["recipe"]["rev"] == "sha256:" + "ab" * 32
    second = node.client.next("result")
    assert second["recipe"]["rev"] == "sha256:02"
    assert second["model"] == {"name": "pcb2", "sha256": "ee", "soc": None}


def test_numbers_that_are_not_finite_cost_no_result(node: Node) -> None:
    sealed = node.line.seal(Reason.DEFECT, stage_us={"wait": 1}, classes=(("bolt", float("nan")),), label="bolt")
    node.outlet.result(sealed)
    assert node.client.next("result")["classes"] == [{"label": "bolt", "score": None}]


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


def test_close_sends_what_waits_and_stopped_last() -> None:
    line = Line()
    opened = outlet(line)
    opened.start()
    client = Subscriber(opened)
    client.until_subscribed(opened)
    for _ in range(300):
        opened.result(line.seal())
    opened.close()
    messages = [client.next() for _ in range(302)]
    assert [m["seq"] for m in messages if m["kind"] == "result"] == list(range(1, 301))
    assert [m["kind"] for m in messages[-2:]] == ["heartbeat", "state"]
    assert messages[-2]["last_seq"] == 300
    assert (messages[-1]["mode"], messages[-1]["was"]) == ("STOPPED", "RUNNING")
    client.close()


def test_a_subscriber_to_st3_gets_nothing_of_st30() -> None:
    line = Line()
    opened = outlet(line, node="l1/st30")
    opened.start()
    client = Subscriber(opened, b"v1/result/l1/st3/")
    everything = Subscriber(opened)
    everything.until_subscribed(opened)
    opened.result(line.seal())
    assert everything.next("result")["node"] == "l1/st30"
    assert client.sub.poll(100) == 0
    client.close()
    everything.close()
    opened.close()


def test_no_wire_is_a_node_too() -> None:
    line = Line()
    opened = outlet(line, results=config(publish=None, commands=None))
    opened.start()
    opened.result(line.seal())
    opened.alarm("X", True, "t", "r")
    assert opened.healthy()
    opened.close()


def test_a_port_in_use_is_one_clear_error() -> None:
    first = outlet(Line())
    first.start()
    second = outlet(Line(), results=config(publish=first.publish_endpoint))
    with pytest.raises(BusError) as caught:
        second.start()
    assert caught.value.exit_code == 6
    assert "port is in use" in str(caught.value)
    assert str(first.publish_endpoint) in str(caught.value)
    first.close()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"publish": "127.0.0.1:5560"}, "not an endpoint"),
        ({"publish": "tcp://127.0.0.1"}, "not an endpoint"),
        ({"commands": "tcp://127.0.0.1:70000"}, "not an endpoint"),
        ({"commands": "udp://127.0.0.1:5560"}, "not an endpoint"),
        ({"publish": "tcp://0.0.0.0:*"}, "without keys"),
        ({"publish": "tcp://*:5560"}, "without keys"),
        ({"commands": "tcp://192.168.1.7:5561"}, "without keys"),
        ({"commands": "tcp://[::]:5561"}, "without keys"),
        ({"publish": "tcp://plant-pc:5560"}, "without keys"),
    ],
)
def test_what_may_not_be_bound_is_refused(changes: dict[str, Any], what: str) -> None:
    opened = outlet(Line(), results=config(**changes))
    with pytest.raises(ConfigError, match=what) as caught:
        opened.start()
    assert f"results.{next(iter(changes))}" in str(caught.value)


def test_a_queue_that_is_full_counts_what_it_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line()
    opened = outlet(line)  # not started: nothing is taken from the queue
    monkeypatch.setattr("edge_app.results.bus.MAX_QUEUED_RESULTS", 10)
    for _ in range(25):
        opened.result(line.seal())
    opened.start()
    client = Subscriber(opened)
    beat = client.next("heartbeat")
    while beat["last_seq"] < 25:
        beat = client.next("heartbeat")
    assert beat["wire"]["dropped"] == 15
    client.close()
    opened.close()


def test_the_defaults_are_those_of_the_protocol() -> None:
    assert Results.model_validate({}).publish == "tcp://127.0.0.1:5560"
    assert Results.model_validate({}).commands == "tcp://127.0.0.1:5561"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bus_that_ends_on_an_error_is_told_at_the_next_result_which_the_journal_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    line = Line()
    opened = outlet(line, results=config(journal={"path": tmp_path / "results.db"}))
    opened.start()
    assert opened.healthy()

    def broken() -> NodeStatus:
        raise ZeroDivisionError

    monkeypatch.setattr(opened, "_status", broken)
    opened.state(Mode.HOLD, Mode.RUNNING, PLACEMENT, "a heartbeat follows, and its status fails")
    until(lambda: not opened.healthy())
    with pytest.raises(BusError, match="the wire has died") as caught:
        opened.result(line.seal())
    assert "ZeroDivisionError" in str(caught.value)
    opened.close()
    connection = open_for_reading(tmp_path / "results.db")
    (run,) = read_runs(connection)
    assert (run.last_seq, run.ended_us is not None) == (1, True)
    connection.close()


def test_a_result_that_can_not_be_encoded_goes_out_as_internal(node: Node) -> None:
    unsendable: Any = Defect("short", object(), (1.0, 2.0, 3.0, 4.0))  # type: ignore[arg-type]
    node.outlet.result(node.line.seal(Reason.DEFECT, defects=(unsendable,)))
    node.outlet.result(node.line.seal())
    first, second = node.client.next("result"), node.client.next("result")
    assert (first["seq"], first["verdict"], first["reason"]) == (1, "UNKNOWN", "INTERNAL")
    assert first["detail"] == "not encoded: TypeError: object can't be sent"
    assert (second["seq"], second["verdict"]) == (2, "PASS")
    assert node.outlet.healthy()


def test_a_bus_that_stands_still_is_not_healthy() -> None:
    stuck = threading.Event()
    opened = outlet(Line(), {"hold": lambda _request: Reply({"waited": stuck.wait(60)})})
    opened.start()
    client = Subscriber(opened)
    client.dealer.send(b'{"command":"hold","request_id":"1"}')
    until(lambda: not opened.healthy(within_us=200_000))
    stuck.set()
    until(lambda: opened.healthy(within_us=1_500_000))
    client.close()
    opened.close()
