"""Resident memory of a running defect pipeline with the cpu plan, in a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from edge_app.bench.figures import Figures, Options

SETTLE_S, WATCH_S = 10.0, 20.0


def resident(options: Options, _pictures: Path) -> Figures:
    """As shipped, on the synthetic line: after it settled, and how much it grew while it was watched."""
    command = [sys.executable, "-m", "edge_app", "--pipeline", str(options.pipeline), "--set", "runtime.provider=cpu",
               "--set", "results.publish=tcp://127.0.0.1:*", "--set", "results.commands=null"]  # fmt: skip
    command += [word for override in options.overrides for word in ("--set", override)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(SETTLE_S)
        settled = resident_mb(process.pid)
        time.sleep(WATCH_S)
        watched = resident_mb(process.pid)
        peak = resident_mb(process.pid, "VmHWM")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    return Figures("memory_cpu_plan", "resident memory, cpu plan, synthetic line", {
        "resident_mb": round(watched, 1),
        "growth_mb": round(watched - settled, 1),
        "peak_mb": round(peak, 1),
    })  # fmt: skip


def resident_mb(pid: int, which: str = "VmRSS") -> float:
    """Of a process, in 10^6 bytes."""
    found = re.search(rf"{which}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    if found is None:
        raise ProcessLookupError(f"process {pid} has ended")
    return int(found[1]) * 1024 / 1e6
