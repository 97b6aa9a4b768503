"""How long a line holds Python's global lock: another thread of the process takes it again and again, and is timed.

It comes at moments that have nothing to do with the line's, so the share of times at which it must wait is the share
of time in which the lock is held, and what it then waits is the rest of a hold.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

PAUSE_NS = 200_000
MOST = 1_000_000
TAKEN_NS = 2_000
"""A lock that is free is had in less."""


def build_probe(folder: Path) -> ctypes.CDLL | None:
    """Compiles gil.c with the system's compiler; None if there is none."""
    if shutil.which("cc") is None:
        return None
    library, source = folder / "gil.so", Path(__file__).with_name("gil.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    probe = ctypes.CDLL(str(library))  # lets go of the lock at each call
    probe.gil_waits.restype = ctypes.c_uint32
    return probe


def waits_us(probe: ctypes.CDLL, work: Callable[[], object]) -> npt.NDArray[np.float64]:
    """What each taking of the lock took while `work` was done, microseconds."""
    end = ctypes.c_int32(0)
    waited_ns = np.zeros(MOST, np.uint32)
    counts: list[int] = []

    def take() -> None:
        into = waited_ns.ctypes.data_as(ctypes.c_void_p)
        counts.append(probe.gil_waits(ctypes.byref(end), PAUSE_NS, MOST, into))

    thread = threading.Thread(target=take)
    thread.start()
    try:
        work()
    finally:
        end.value = 1
        thread.join()
    return waited_ns[: counts[0]] / 1000


def held(waits: npt.NDArray[np.float64], seconds: float, frames: int) -> dict[str, float | str | None]:
    """Figures: how long the lock was held for a frame, and what a thread waits that finds it held."""
    waiting = np.sort(waits[waits > TAKEN_NS / 1000])
    if not waiting.size:
        return {"gil_held_ms": 0.0, "gil_wait_p50_us": 0.0, "gil_wait_p99_us": 0.0}
    return {
        "gil_held_ms": round(waiting.size / waits.size * seconds * 1000 / frames, 3),
        "gil_wait_p50_us": round(float(np.percentile(waiting, 50)), 1),
        "gil_wait_p99_us": round(float(np.percentile(waiting, 99)), 1),
    }
