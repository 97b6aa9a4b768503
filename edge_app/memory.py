"""Memory of a process: its size; what glibc's malloc keeps, kept small (elsewhere nothing); Python's garbage."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import re
from pathlib import Path

M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
LARGE_BYTES = 1 << 20
"""From here on a block is a mapping of its own, which goes back to the system when it is freed."""
ARENAS = 2


def keep_little() -> None:
    """To be called before threads start.

    By itself glibc raises its threshold to the largest block that was ever freed, and gives every thread an arena: a
    line of ten threads then holds what pictures and models took once (20 MB for pipelines/defect.yaml).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(M_ARENA_MAX, ARENAS)


def give_back() -> None:
    """Freed memory goes back to the system: reading a model takes as much again as the model (15 MB for pcb-defect)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def begin_loading() -> None:
    """A line is about to be imported and loaded: what that makes stays, and looking for garbage in it takes long.

    numpy and OpenCV each bring an OpenBLAS, which starts a thread for every core; all of them spin for 0.1 s, and again
    after each larger product. A line multiplies small matrices alone. To be called before numpy is imported.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()


def end_loading() -> None:
    """The line runs: what it is made of is set aside, so that the collector never holds a frame up to go through it."""
    gc.freeze()
    gc.enable()


def resident_mb(pid: int, which: str = "VmRSS") -> float:
    """Memory of a process in 10^6 bytes; NaN where the system has no /proc to tell.

    Raises:
        OSError: there is no such process, or it has ended.
    """
    if not Path("/proc/self/status").exists():
        return math.nan
    found = re.search(rf"{which}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    if found is None:
        raise ProcessLookupError(f"process {pid} has ended")
    return int(found[1]) * 1024 / 1e6
