"""Resident memory of a running defect pipeline with the cpu plan, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from edge_app.bench.figures import Figures, Options
from edge_app.bench.ports import free_port
from edge_app.bench.start import Environment, as_installed, output_of, stopped, write_picture
from edge_app.errors import RuntimeFault
from edge_app.memory import resident_mb

SETTLE_S, WATCH_S = 10.0, 10.0


def resident(options: Options, _pictures: Path) -> Figures:
    """With pictures from a file, and with the pages beside it: after it settled, and how it grew while watched.

    Then the shipped line, which draws its parts: what drawing takes is no part of a line in a plant.
    """
    with tempfile.TemporaryDirectory() as folder, as_installed() as environment:
        write_picture(Path(folder))
        picture = ("camera.type=folder", f"camera.path={folder}", "camera.loop=true")
        monitor = f"monitor.http=127.0.0.1:{free_port()}"
        output_of([*command(options, monitor), "--frames", "1"], environment)  # compiles
        _, with_pages, _ = watch(options, environment, monitor, *picture)
        settled, watched, peak = watch(options, environment, "monitor.http=null", *picture)
        _, drawn, _ = watch(options, environment, "monitor.http=null")
    return Figures("memory_cpu_plan", "resident memory of a running line, cpu plan", {
        "resident_mb": round(watched, 1),
        "growth_mb": round(watched - settled, 1),
        "peak_mb": round(peak, 1),
        "with_monitor_mb": round(with_pages, 1),
        "drawn_camera_mb": round(drawn, 1),
    })  # fmt: skip


def watch(options: Options, environment: Environment, *overrides: str) -> tuple[float, float, float]:
    """Resident memory of one run SETTLE_S after it started, WATCH_S later, and at its peak."""
    with tempfile.TemporaryFile() as log:
        words = command(options, *overrides)
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log, env=environment)
        try:
            while b": started" not in os.pread(log.fileno(), 1 << 20, 0):  # as the line tells its mode
                if process.poll() is not None:
                    raise RuntimeFault("the line did not start", got=os.pread(log.fileno(), 1 << 20, 0).decode())
                time.sleep(0.1)
            time.sleep(SETTLE_S)
            settled = resident_mb(process.pid)
            time.sleep(WATCH_S)
            return settled, resident_mb(process.pid), resident_mb(process.pid, "VmHWM")
        finally:
            stopped(process, 30)


def command(options: Options, *overrides: str) -> list[str]:
    """A line with the cpu plan, as a user starts it."""
    settings = ["runtime.provider=cpu", "results.publish=tcp://127.0.0.1:*", "results.commands=null", *overrides]
    words = [sys.executable, "-P", "-m", "edge_app", "--pipeline", str(options.pipeline)]
    return words + [word for setting in (*settings, *options.overrides) for word in ("--set", setting)]
