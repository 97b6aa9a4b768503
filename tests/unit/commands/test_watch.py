"""`edge_app watch` against a real outlet: what it prints, and how it ends."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import pytest
from wire_samples import PLACEMENT, outlet, until
from wire_samples import Line as Sealing

from edge_app.cli import main
from edge_app.results import Outlet
from edge_app.verdict import Defect, Mode, Reason


@pytest.fixture
def sealing() -> Sealing:
    return Sealing()


@pytest.fixture
def node(sealing: Sealing) -> Iterator[Outlet]:
    opened = outlet(sealing)
    opened.start()
    yield opened
    opened.close()


def watch(node: Outlet, *arguments: str) -> int:
    return main(["watch", str(node.publish_endpoint), "--commands", str(node.commands_endpoint), *arguments])


def seal_some(node: Outlet, sealing: Sealing) -> None:
    defects = tuple(Defect(label, 0.9, (1, 2, 3, 4)) for label in ("short", "short", "\x1b[2Jopen"))
    node.result(sealing.seal(Reason.OK))
    node.result(sealing.seal(Reason.DEFECT, defects=defects))
    node.result(sealing.seal(Reason.LATE, part_id="P\x07", detail="no verdict by the deadline"))


def test_a_line_for_each_result_and_nothing_that_drives_a_terminal(
    node: Outlet, sealing: Sealing, capsys: pytest.CaptureFixture[str]
) -> None:
    seal_some(node, sealing)
    assert watch(node, "--oldest", "--count", "3") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[3] for line in lines] == ["PASS", "FAIL", "UNKNOWN"]
    assert "2 short, 1 ?[2Jopen" in lines[1]
    assert "LATE: no verdict by the deadline" in lines[2]
    assert "P?" in lines[2]
    assert all(line.isprintable() for line in lines)


def test_times_are_those_of_this_machine_as_in_the_log(
    node: Outlet, sealing: Sealing, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seal_some(node, sealing)
    hours = []
    for zone in ("UTC", "UTC-5"):  # in POSIX's words five hours ahead
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert watch(node, "--oldest", "--count", "1") == 0
        hours.append(int(capsys.readouterr().out[:2]))
    monkeypatch.undo()
    time.tzset()
    assert (hours[1] - hours[0]) % 24 == 5


def test_json_is_one_document_a_line(node: Outlet, sealing: Sealing, capsys: pytest.CaptureFixture[str]) -> None:
    seal_some(node, sealing)
    assert watch(node, "--oldest", "--count", "3", "--json") == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(r["seq"], r["verdict"]) for r in results] == [(1, "PASS"), (2, "FAIL"), (3, "UNKNOWN")]
    assert {r["lost_before"] for r in results} == {0}
    assert {r["delivery"] for r in results} <= {"live", "replayed"}


def test_states_and_alarms_are_told_on_stderr(
    node: Outlet, sealing: Sealing, capsys: pytest.CaptureFixture[str]
) -> None:
    def later() -> None:
        until(lambda: node.connections["publish"] > 0)
        node.state(Mode.HOLD, Mode.RUNNING, PLACEMENT, "operator")
        node.alarm("LAMP", True, "the lamp is dark", "replace it")
        node.alarm("LAMP", False, "", "replace it")
        node.result(sealing.seal())

    thread = threading.Thread(target=later)
    thread.start()
    assert watch(node, "--count", "1") == 0
    thread.join()
    told = capsys.readouterr().err
    assert "RUNNING -> HOLD: operator" in told
    assert "alarm LAMP raised: the lamp is dark - replace it\n" in told
    assert "alarm LAMP cleared\n" in told


def test_silence_ends_with_exit_code_6_when_asked_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "tcp://127.0.0.1:9", "--timeout", "0.6"]) == 6
    assert "is the node running" in capsys.readouterr().err


def test_a_node_without_results_is_not_told_to_be_absent(node: Outlet, capsys: pytest.CaptureFixture[str]) -> None:
    assert watch(node, "--timeout", "3") == 6
    told = capsys.readouterr().err
    assert "heartbeats only: the node is " in told
    assert "is it triggered?" in told


@pytest.mark.parametrize(
    "arguments",
    [
        ["127.0.0.1:5560"], ["tcp://127.0.0.1"], ["tcp://127.0.0.1:0"], ["tcp://127.0.0.1:65536"], ["tcp://a b:5560"],
        ["--commands", "x"], ["--key", "only-one"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["watch", "controller-sim"])
def test_bad_usage_is_exit_code_2(command: str, arguments: list[str]) -> None:
    assert main([command, *(["--timeout", "1"] if command == "watch" else []), *arguments]) == 2


@pytest.mark.parametrize(
    "words",
    ["controller-sim --rate nan", "controller-sim --rate inf", "controller-sim --seconds nan",
     "controller-sim --every-s 0", "watch --timeout nan", "watch --timeout -1", "soak --pipeline p.yaml --minutes nan"],
)  # fmt: skip
def test_a_time_that_would_never_end_is_refused(capsys: pytest.CaptureFixture[str], words: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    assert "wanted a number above 0" in capsys.readouterr().err
