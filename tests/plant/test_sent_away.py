"""Commands that start processes are sent away in the middle: `edge_app soak`, `edge_app bench`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from wire_samples import until

from edge_app.bench.start import write_picture

PIPELINE = Path(__file__).parents[2] / "pipelines" / "defect.yaml"


def children(pid: int) -> list[int]:
    return [int(word) for file in Path(f"/proc/{pid}/task").glob("*/children") for word in file.read_text().split()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_nothing_is_left_behind(tmp_path: Path, number: signal.Signals) -> None:
    """No line that runs for ever, no disk in memory, no folder."""
    words = ["soak", "--pipeline", str(PIPELINE), "--set", "runtime.provider=null"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    soak = subprocess.Popen([sys.executable, "-P", "-m", "edge_app", *words], env=environment)
    try:
        until(lambda: any(tmp_path.glob("*/state/results.db")), 60)
        (line,) = children(soak.pid)
        soak.send_signal(number)
        assert soak.wait(60) == 130
    finally:
        soak.kill()
    assert not Path(f"/proc/{line}").exists()
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    assert list(tmp_path.iterdir()) == []


def test_a_line_that_decides_but_once_is_followed(tmp_path: Path) -> None:
    """Its one result may leave before the soak's client has subscribed: nothing would come for five minutes."""
    write_picture(tmp_path)
    document = soaked("camera.type=folder", f"camera.path={tmp_path}", "camera.loop=true", "camera.rate_fps=2")
    assert (document["results"] > 0, document["lost on the way"], document["exit code"]) == (True, 0, 0)


def test_a_line_that_decides_over_frames_is_judged_by_those_it_inspected() -> None:
    """None of its results is a part that was inspected."""
    document = soaked()
    assert (document["ok"], document["failed"], document["exit code"]) == (True, [], 0)
    assert document["inspected"] > 0
    assert "picture cut" not in document["troubles"]  # its camera draws


def soaked(*settings: str) -> dict[str, Any]:
    words = ["soak", "--pipeline", str(PIPELINE.with_name("garment.yaml")), "--minutes", "0.02", "--json"]
    words += [word for setting in ("runtime.provider=null", *settings) for word in ("--set", setting)]
    soak = subprocess.run([sys.executable, "-P", "-m", "edge_app", *words], capture_output=True, timeout=200)
    return dict(json.loads(soak.stdout))


def test_ctrl_c_ends_a_bench_and_its_subscribers_without_a_word() -> None:
    command = [sys.executable, "-P", "-m", "edge_app", "bench", "bus"]
    bench = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    beside: list[int] = []

    def subscribed() -> bool:
        beside[:] = [pid for pid in children(bench.pid) if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]
        return any(len(list(Path(f"/proc/{pid}/task").iterdir())) > 2 for pid in beside)  # its sockets have threads

    try:
        until(subscribed, 60)
        os.killpg(bench.pid, signal.SIGINT)
        _, said = bench.communicate(timeout=60)
        assert (bench.returncode, said.decode().rpartition("Traceback")[1:]) == (130, ("", ""))
    finally:
        bench.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in beside), 60)
