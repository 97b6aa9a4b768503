"""The whole node, `edge_app --pipeline`, with journal, pictures and keys: killed, restarted, watched, commanded."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import toys
from nodes import PatientLine, free_port
from wire_samples import until

from edge_app.cli import main
from edge_app.client import CommandRefused, Keys, Line, NoAnswer, Result, Start
from edge_app.keys import read_public, read_secret


class WholeNode:
    """A folder of pictures, good and bad in turn, inspected for ever by the toy model."""

    def __init__(self, folder: Path, model: Path, extra: str = "") -> None:
        (folder / "pictures").mkdir()
        for number in range(10):
            cells = [(2, 2)] if number % 2 else []
            cv2.imwrite(str(folder / "pictures" / f"part{number}.png"), toys.detector_picture(cells, seed=number))
        self.publish, self.commands = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        self.file = folder / "line.yaml"
        self.file.write_text(f"""\
camera: {{type: folder, path: pictures, loop: true, rate_fps: 50}}
model: {{path: {model}}}
runtime: {{provider: cpu}}
limits: {{pacing: realtime, deadline_ms: 2000}}
results:
  publish: "{self.publish}"
  commands: "{self.commands}"
  journal: {{path: var/results.db}}
  evidence: {{path: var/evidence, free_mib: 0, pass_every: 0}}
{extra}""")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-P", "-m", "edge_app", "--pipeline", self.file])

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(60)

    def line(self, **more: Any) -> Line:
        return PatientLine(self.publish, self.commands, **more)


@pytest.fixture
def node(tmp_path: Path, toy_model: Path) -> Iterator[WholeNode]:
    made = WholeNode(tmp_path, toy_model)
    made.start()
    yield made
    made.end()


def take(line: Line, count: int) -> list[Result]:
    got: list[Result] = []
    end = time.monotonic() + 120
    while len(got) < count:
        assert time.monotonic() < end, f"{len(got)} of {count} results; {line.fault}"
        if (result := line.next(0.2)) is not None:
            got.append(result)
    return got


def test_the_controller_follows_a_line_that_triggers_itself(
    node: WholeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    with node.line() as line:
        take(line, 1)
        with pytest.raises(CommandRefused, match=r"limits\.trigger: software") as refused:
            line.command("trigger", trigger_id=1)
    assert refused.value.code == "UNAVAILABLE"
    words = [node.publish, "--commands", node.commands, "--allow-simulated", "--seconds", "4", "--json"]
    assert main(["controller-sim", *words]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["accepted"] >= 1
    assert "NO_RESULT" not in summary["rejected_by_cause"]


def test_a_killed_node_is_followed_into_its_next_run(node: WholeNode) -> None:
    with node.line(start=Start.OLDEST) as line:
        got = take(line, 60)
        durable = line.command("status")["durable_seq"]
        assert durable > 0
        assert node.end(signal.SIGKILL) == -signal.SIGKILL
        node.start()
        while got[-1].epoch == got[0].epoch:
            got += take(line, 20)
        got += take(line, 40)
        first = [r.seq for r in got if r.epoch == got[0].epoch]
        second = [r.seq for r in got if r.epoch != got[0].epoch]
        assert first == list(range(1, len(first) + 1))
        assert len(first) >= durable
        assert second == list(range(1, len(second) + 1))
        # What a busy machine has no slot for, or no time, is told as such.
        assert {"OK", "DEFECT"} <= {r.reason for r in got} <= {"OK", "DEFECT", "OVERRUN", "OVERLOAD", "LATE"}
    assert main(["journal", "verify", str(node.file)]) == 0


def is_written(line: Line, image: str) -> bool:
    try:
        return len(line.image(image)) > 0
    except CommandRefused:
        return False


def test_a_failed_part_has_its_picture(node: WholeNode) -> None:
    with node.line(start=Start.OLDEST) as line:
        failed = next(r for r in take(line, 10) if r.verdict == "FAIL")
        assert failed.data["image"]["state"] == "pending"
        until(lambda: is_written(line, failed.data["image"]["id"]))
        jpeg = line.image(failed.data["image"]["id"])
        shown = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
        number = (failed.seq - 1) % 10
        assert np.abs(shown.astype(int) - toys.detector_picture([(2, 2)], seed=number).astype(int)).mean() < 12
        passed = next(r for r in take(line, 10) if r.verdict == "PASS")
        assert passed.data["image"] is None


def answers(line: Line) -> bool:
    try:
        return bool(line.command("hello", timeout_s=1)["ok"])
    except NoAnswer:
        return False


def test_keys_made_by_the_command_open_the_node_and_sighup_closes_it(
    tmp_path: Path, toy_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("node", "plc", "guest"):
        assert main(["keys", "new", name, "--dir", str(tmp_path)]) == 0
    clients = tmp_path / "clients.toml"

    def allow(*names: str) -> None:
        capsys.readouterr()
        main(["keys", "show", *(str(tmp_path / f"{n}.public.toml") for n in names), "--role", "controller"])
        clients.write_text(capsys.readouterr().out)

    def keys(name: str) -> Keys:
        return Keys(read_secret(tmp_path / f"{name}.secret.toml"), read_public(tmp_path / "node.public.toml").public)

    allow("plc", "guest")
    node = WholeNode(tmp_path, toy_model, "  security: {key: node.secret.toml, clients: clients.toml}\n")
    assert main(["keys", "check", str(node.file)]) == 0
    node.start()
    try:
        with node.line(keys=keys("plc")) as plc, node.line(keys=keys("guest")) as guest, node.line() as nobody:
            assert len(take(plc, 5)) == len(take(guest, 5)) == 5
            assert plc.command("hold")["mode"] == "HOLD"
            assert plc.command("start")["mode"] == "RUNNING"
            with pytest.raises(NoAnswer):
                nobody.command("hello", timeout_s=0.5)
            assert nobody.next(0.1) is None
            allow("plc")
            node.send(signal.SIGHUP)
            until(lambda: not answers(guest))
            before = [r.seq for r in take(plc, 30)]
            assert before == list(range(before[0], before[0] + 30))
            assert plc.lost == 0
    finally:
        assert node.end() == 0


def test_a_trigger_that_was_held_up_on_its_way_is_late(tmp_path: Path, toy_model: Path) -> None:
    """It was answered by a picture of whatever stood there by then: a PASS, live and in time, of another part."""
    node = WholeNode(tmp_path, toy_model)
    text = node.file.read_text().replace("deadline_ms: 2000", "deadline_ms: 60000, trigger: software")
    node.file.write_text(text.replace(", rate_fps: 50", ""))
    node.start()
    try:
        with node.line() as line:
            until(lambda: line.next(0.05) is None and (line.heartbeat or {}).get("mode") == "RUNNING")
            until(lambda: line.next(0.05) is None and line._session.clock.known)
            line.command("trigger", trigger_id=1)
            (first,) = take(line, 1)
            node.send(signal.SIGSTOP)  # or the network's switch is started again
            line._ask("trigger", {"trigger_id": 2, "budget_us": 1_000_000})  # as `command` does, and it waits on
            assert line.next(1.2) is None
            node.send(signal.SIGCONT)
            (held_up,) = take(line, 1)
            line.command("trigger", trigger_id=3)
            (after,) = take(line, 1)
        assert (held_up.trigger_id, held_up.reason) == (2, "LATE")
        assert {(one.trigger_id, one.reason) for one in (first, after)} == {(1, "OK"), (3, "OK")}
    finally:
        assert node.end() == 0


def test_the_controller_that_ships_runs_a_real_line(
    tmp_path: Path, toy_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = WholeNode(tmp_path, toy_model)
    text = node.file.read_text().replace("deadline_ms: 2000", "deadline_ms: 2000, trigger: software")
    node.file.write_text(text.replace(", rate_fps: 50", ""))
    node.start()
    try:
        with node.line() as line:
            until(lambda: line.next(0.05) is None and (line.heartbeat or {}).get("mode") == "RUNNING")
        capsys.readouterr()
        assert main(["controller-sim", node.publish, "--commands", node.commands, "--rate", "10", "--seconds", "2",
                     "--allow-simulated", "--budget-ms", "60000", "--wait-ms", "60000", "--json"]) == 0  # fmt: skip
        summary = json.loads(capsys.readouterr().out)
        assert summary["parts"] == summary["accepted"] + summary["rejected"] > 2
        assert summary["undecided"] == 0
        # Every other part is good; what a busy machine brings late is rejected as such.
        assert set(summary["rejected_by_cause"]) <= {"FAIL", "UNKNOWN", "NOT_LIVE", "LATE"}
        assert 1 <= summary["accepted"] <= summary["parts"] // 2 + 1
    finally:
        assert node.end() == 0
