"""Several lines of one board in one process, on the simulated HTP; and the lock that keeps a second process out."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import pytest
import toys
from nodes import PATIENCE_S, PatientLine, free_port
from supervisor import Supervisor
from toy_plans import SOC

from edge_app.client import Start

EDGE_APP = (sys.executable, "-P", "-m", "edge_app")
HANGING = (sys.executable, "-P", str(Path(__file__).with_name("hanging_node.py")))
START_S = 180.0


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Two good parts, two bad ones."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(4):
        cv2.imwrite(str(folder / f"part{number}.png"), toys.detector_picture([(2, 2)] * (number % 2), seed=number))
    return folder


@pytest.fixture
def line(tmp_path: Path, toy_plans: Path, pictures: Path) -> Any:
    """Writes a pipeline to `lines/NAME.yaml`; gives its file and its endpoints."""

    def write(station: str, more: str = "", **runtime: object) -> tuple[Path, tuple[str, str]]:
        endpoints = tuple(f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        settings = {"provider": "qnn", "soc": SOC, "threads": 1, **runtime}
        file = tmp_path / "lines" / f"{station}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"""\
station: {{station: {station}}}
camera: {{type: folder, path: {pictures}, loop: true, rate_fps: 20}}
model: {{path: {toy_plans}}}
runtime: {json.dumps(settings)}
results:
  publish: {endpoints[0]}
  commands: {endpoints[1]}
  journal: {{path: {tmp_path}/var/{station}.db}}
limits: {{pacing: offline, slots: 1}}
{more}
""")
        return file, endpoints

    return write


@contextlib.contextmanager
def process(*command: object) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield started
    finally:
        if started.poll() is None:
            started.kill()
            started.communicate()


def ended(started: subprocess.Popen[str], number: signal.Signals | None = None) -> tuple[int, str, str]:
    if number is not None:
        started.send_signal(number)
    out, err = started.communicate(timeout=START_S if number is None else PATIENCE_S)
    return started.returncode, out, err


def test_each_line_has_its_own_bus_and_summary(line) -> None:
    _, first = line("a")
    folder, second = line("b")
    found: dict[str, list[tuple[int, str]]] = {}

    def listen(endpoints: tuple[str, str]) -> None:
        with PatientLine(*endpoints) as client:
            for _ in range(12):
                result = client.next(START_S)
                assert result is not None
                found.setdefault(result.data["node"], []).append((result.data["seq"], result.data["verdict"]))

    listeners = [threading.Thread(target=listen, args=(endpoints,)) for endpoints in (first, second)]
    for listener in listeners:
        listener.start()
    with process(*EDGE_APP, "--pipeline", folder.parent, "--json") as node:
        for listener in listeners:
            listener.join(START_S)
        code, out, err = ended(node, signal.SIGTERM)
    assert code == 0, err
    assert set(found) == {"l1/a", "l1/b"}
    for results in found.values():
        seqs = [seq for seq, _ in results]
        assert seqs == list(range(seqs[0], seqs[0] + 12))
        assert {verdict for _, verdict in results} == {"PASS", "FAIL"}
        assert all(verdict == ("PASS" if seq % 2 else "FAIL") for seq, verdict in results)
    lines = json.loads(out)["lines"]
    assert {node: (one["plan"], one["lost"], one["unknown"], one["restarts"]) for node, one in lines.items()} == {
        "l1/a": ("htp", 0, 0, 0), "l1/b": ("htp", 0, 0, 0),
    }  # fmt: skip
    assert " l1/a: mode READY -> RUNNING" in err  # log lines say whose they are
    assert " l1/b: mode READY -> RUNNING" in err


def test_a_line_that_dies_of_a_hung_npu_comes_back_on_the_cpu_and_the_other_loses_nothing(line) -> None:
    hung, of_hung = line("hung", timeout_ms=3000)
    healthy, endpoints = line("healthy", timeout_ms=30_000)
    with process(*HANGING, "--pipeline", healthy, "--pipeline", hung, "--json") as node:
        with PatientLine(*endpoints, start=Start.OLDEST) as client:
            plans = [""]
            while plans[-1] != "cpu" or plans.count("cpu") < 20:
                result = client.next(START_S)
                assert result is not None, plans
                assert result.data["verdict"] == ("PASS" if result.data["seq"] % 2 else "FAIL")
                plans.append(result.data["sched"]["plan"])
        assert "htp" in plans  # until the other one's run hung
        with PatientLine(*of_hung) as client:  # built again meanwhile
            again = client.next(START_S)
            assert again is not None
            assert again.data["sched"]["plan"] == "cpu"
            (alarm,) = [one for one in client.command("status")["alarms"] if one["alarm"] == "NPU_LOST"]
            assert "never returned" in alarm["text"]
        code, out, err = ended(node, signal.SIGTERM)
    assert code == 0, err
    lines = json.loads(out)["lines"]
    assert (lines["l1/hung"]["restarts"], lines["l1/healthy"]["restarts"]) == (1, 0)
    assert (lines["l1/healthy"]["lost"], lines["l1/healthy"]["unknown"]) == (0, 0)
    assert "l1/hung is down: every slot is held by a run that never returned; built again in 2 s" in err


def test_two_lines_that_share_a_port_are_refused_before_anything_is_loaded(line) -> None:
    first, endpoints = line("a")
    second, others = line("b")
    second.write_text(second.read_text().replace(others[0], endpoints[1]))
    with process(*EDGE_APP, "--pipeline", first, "--pipeline", second) as node:
        code, out, err = ended(node)
    assert (code, out) == (2, "")
    assert f"{second}: results.publish: two lines can't share this" in err
    assert f"wanted: another one than {first}: results.commands" in err
    assert "Traceback" not in err


def test_a_second_process_is_refused_the_npu_until_the_first_is_gone(line, tmp_path: Path) -> None:
    lock = tmp_path / "npu.lock"
    first, endpoints = line("a", npu_lock=str(lock))
    second, _ = line("b", npu_lock=str(lock))
    with process(*EDGE_APP, "--pipeline", first) as holder:
        with PatientLine(*endpoints) as client:
            assert client.next(START_S) is not None
        with process(*EDGE_APP, "--pipeline", second) as refused:
            code, out, err = ended(refused)
        assert (code, out) == (5, "")
        assert f"{lock}: another process uses the NPU" in err
        assert f"got: pid {holder.pid} (" in err
        assert f"--pipeline {first}" in err
        assert "do: name all pipelines in one process" in err
        with process(*EDGE_APP, "--pipeline", second, "--set", "runtime.provider=cpu", "--frames", 1) as on_cpu:
            assert ended(on_cpu)[0] == 0
        holder.kill()
        holder.communicate()
    with process(*EDGE_APP, "--pipeline", second, "--frames", 1) as after:
        code, _, err = ended(after)
    assert code == 0, err


def test_the_service_manager_is_told_of_every_line(line, tmp_path: Path) -> None:
    for station in ("a", "b"):
        line(station, provider="cpu")
    with Supervisor([*EDGE_APP, "--pipeline", "lines"], tmp_path, 8) as manager:
        manager.run_until(lambda: manager.words.count("WATCHDOG=1") >= 2)
        assert "STATUS=inspecting as l1/a, l1/b" in manager.words
        assert manager.stop() == 0
