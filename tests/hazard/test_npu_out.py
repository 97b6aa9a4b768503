"""Out of slots: exit code 5, and the next start of the same pipeline runs on the CPU with an alarm, as processes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import pytest
import toys
from nodes import PATIENCE_S, PatientLine, free_port
from toy_plans import SOC
from wire_samples import until

from edge_app.app import build
from edge_app.config.load import load_pipeline
from edge_app.engine import Engine
from edge_app.plans import Options, plan_options
from edge_app.runtime.faulty import FaultScript, FaultySession, Trouble
from edge_app.verdict import PlanKind

HANGING = Path(__file__).with_name("hanging_node.py")
PATIENCE_AT_START_S = 120.0


@pytest.fixture
def pipeline(toy_plans: Path, tmp_path: Path) -> tuple[Path, tuple[str, str]]:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for number in range(2):
        cv2.imwrite(str(pictures / f"part{number}.png"), toys.detector_picture([(2, 2)] * number, seed=number))
    publish, commands = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
    file = tmp_path / "toy.yaml"
    file.write_text(f"""\
camera: {{type: folder, path: pictures, rate_fps: 10, loop: true}}
model: {{path: {toy_plans}}}
runtime: {{provider: qnn, soc: {SOC}, threads: 1, timeout_ms: 3000}}
results:
  publish: {publish}
  commands: {commands}
  journal: {{path: var/results.db}}
limits: {{pacing: offline, slots: 1}}
""")
    return file, (publish, commands)


@contextmanager
def node(*command: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def ended(process: subprocess.Popen[str], seconds: float) -> tuple[int, str]:
    _, err = process.communicate(timeout=seconds)
    return process.returncode, err


def test_a_node_that_a_hung_npu_has_ended_comes_back_on_the_cpu_with_an_alarm(pipeline) -> None:
    file, endpoints = pipeline
    note = file.parent / "var" / "toy.npu-out.json"
    with node(sys.executable, HANGING, "--pipeline", file) as hung:
        code, err = ended(hung, PATIENCE_AT_START_S)
    assert code == 5, err
    assert "every slot is held by a run that never returned" in err
    left = json.loads(note.read_text())
    assert (left["plan"], "never returned" in left["reason"]) == ("htp", True)

    edge_app = (sys.executable, "-P", "-m", "edge_app")
    # The client is made now: one that was there before would be given the last result of the run that hung first.
    with PatientLine(*endpoints) as line, node(*edge_app, "--pipeline", file) as again:
        first = line.next(PATIENCE_AT_START_S)
        assert first is not None
        status = line.command("status")
        again.terminate()
        code, err = ended(again, PATIENCE_S)
    assert code == 0, err
    sched = first.data["sched"]
    assert (sched["plan"], sched["reason"]) == ("cpu", "NO_NPU")
    assert "cpu_fallback" in first.data["degraded"]
    (alarm,) = [alarm for alarm in status["alarms"] if alarm["alarm"] == "NPU_LOST"]
    assert "plan htp" in alarm["text"]
    assert "edge_app doctor --pipeline FILE --allow-npu" in alarm["remedy"]
    assert note.exists(), "parts on the CPU say nothing about the NPU"

    doctor = (*edge_app, "doctor", "--pipeline", file, "--json")
    told = subprocess.run(list(map(str, doctor)), capture_output=True, text=True, timeout=120, check=False)
    assert [f["grade"] for f in json.loads(told.stdout)["findings"] if f["check"] == "npu_out"] == ["fail"]
    assert told.returncode == 1
    allowed = [*map(str, doctor), "--allow-npu"]
    told = subprocess.run(allowed, capture_output=True, text=True, timeout=120, check=False)
    assert [f["grade"] for f in json.loads(told.stdout)["findings"] if f["check"] == "npu_out"] == ["ok"]
    assert not note.exists()
    with node(*edge_app, "--pipeline", file, "--frames", 1, "--json") as cured:
        out, err = cured.communicate(timeout=PATIENCE_AT_START_S)
    assert json.loads(out)["plan"] == "htp", err


@pytest.mark.parametrize("hangs_in", ["load", "warm-up"])
def test_an_npu_that_hangs_while_it_is_loaded_does_not_keep_the_line_down(pipeline, monkeypatch, hangs_in) -> None:
    file, _ = pipeline
    released = threading.Event()
    script = FaultScript({1: Trouble.HANG})

    def with_a_hanging_load(*args: Any, **more: Any) -> Options:
        options = plan_options(*args, **more)
        open_engine = options.openers[PlanKind.HTP]

        def opened() -> Engine:
            if hangs_in == "load":
                released.wait()
            engine = open_engine()
            engine.session = FaultySession(engine.session, script)
            return engine

        options.openers[PlanKind.HTP] = opened
        return options

    monkeypatch.setattr("edge_app.placed.plan_options", with_a_hanging_load)
    monkeypatch.setattr("edge_app.placed.stuck_us", lambda *_: 5_000_000)
    app = build(load_pipeline(file), "toy", max_frames=4)
    try:
        app.start()
        until(lambda: any(alarm.name == "NPU_LOST" for alarm in app.outlet._alarms.active()))
        assert app.wait(PATIENCE_AT_START_S)
        counts = app.line.sealer.counts()
        assert (counts.passed, counts.failed) == (2, 2)
        assert app.line.placement.plan is PlanKind.CPU
    finally:
        app.stop()
        app.close()
        released.set()
        script.release()
        for thread in threading.enumerate():  # two loads at a time, this one's and the next test's, end the process
            if thread.name == "loading":
                thread.join(PATIENCE_AT_START_S)
    mechanic = app.placed.mechanic
    assert mechanic is not None
    assert mechanic.longest_us < 5_000_000  # by which the watchdog judges: what comes back too late does not count
    left = json.loads((file.parent / "var" / "toy.npu-out.json").read_text())
    assert "load of plan htp did not end within 5 s at the start" in left["reason"]
