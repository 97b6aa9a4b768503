"""The outlet with real sockets: what is published, and in which order."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from wire_samples import PLACEMENT, Line, Node, Subscriber, config, outlet, until

from edge_app.config.results import Results
from edge_app.errors import BusError, ConfigError
from edge_app.results import ModelIdentity, NodeStatus, Recipe, Reply
from edge_app.results.journal_file import open_for_reading, read_runs
from edge_app.verdict import Defect, Mode, Reason


def test_a_result_arrives_with_the_fields_of_the_protocol(node: Node) -> None:
    sealed = node.line.seal(Reason.DEFECT)
    node.outlet.result(sealed)
    got = node.client.next("result")
    assert got == {
        "v": 1, "kind": "result", "node": "l1/st3", "epoch": got["epoch"], "seq": 1, "trigger_id": 1001,
        "part_id": "A-000001", "frame_id": 5001, "verdict": "FAIL", "reason": "DEFECT", "detail": "",
        "t_capture_us": sealed.t_capture_us, "t_done_us": sealed.t_done_us, "deadline_us": sealed.deadline_us,
        "clock": got["clock"],  # this machine's: see test_kernel_clock.py
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


def test_a_heartbeat_follows_a_state_change_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_app.results.wire.HEARTBEAT_PERIOD_US", 3_600_000_000)  # for the regular one nobody waits
    opened = outlet(Line())
    opened.start()
    client = Subscriber(opened)
    client.until_subscribed(opened)
    opened.state(Mode.HOLD, Mode.RUNNING, PLACEMENT, "operator")
    state = client.next("state")
    assert (state["mode"], state["was"], state["reason"]) == ("HOLD", "RUNNING", "operator")
    assert client.next()["kind"] == "heartbeat"
    client.close()
    opened.close()


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
    node.outlet.alarm("NPU_FAULT", False, "the NPU answers as before", "")
    node.outlet.alarm("OTHER", True, "something else", "")
    assert node.client.next("alarm")["alarm"] == "OTHER", "what is cleared is not cleared again, in whatever words"


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


FEW_HANDLES = """
import resource, sys
from pathlib import Path
import zmq
from edge_app.errors import BusError
from edge_app.results.sockets import Sockets

resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) - 1 + int(sys.argv[1]), 100))
sockets = Sockets("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", None, None)
try:
    sockets.open()
except (zmq.ZMQError, BusError) as error:
    print(error)
"""


def test_a_start_without_file_handles_ends() -> None:
    """A socket that was left open kept it waiting for ever. With yet fewer, libzmq itself aborts."""
    told = []
    for handles in range(4, 16):
        command = [sys.executable, "-P", "-c", FEW_HANDLES, str(handles)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in (0, -signal.SIGABRT), done.stderr
        told += done.stdout.splitlines()
    assert told
    assert all("Too many open files" in line for line in told)


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
