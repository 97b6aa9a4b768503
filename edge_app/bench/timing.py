"""Timing that can be trusted on a shared machine: all functions take turns, on frames that are not in the cache."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_app.bench.figures import Figures

Bytes = npt.NDArray[np.uint8]
Work = Callable[[Any], object]
COLD_BYTES = 96_000_000
"""Frames are rotated through so much memory, three times the last-level cache here, as a camera delivers them."""


@dataclass(frozen=True)
class Case:
    """One work, done by us (`ours`) and by peers; None is a peer that is not installed. A floor is named `floor`."""

    key: str
    title: str
    inputs: Sequence[Any]
    functions: Mapping[str, Work | None]


def cold(make: Callable[[int], Bytes], bytes_each: int) -> list[Bytes]:
    """Enough different inputs to leave the cache before one comes again."""
    return [make(i) for i in range(max(2, -(-COLD_BYTES // bytes_each)))]


def run(case: Case, rounds: int) -> Figures:
    """Every function once in each round, each time on the next input: medians, and the best eighth of the runs.

    Wall time is what a frame waits; the process's CPU time is told beside it, since it holds on a busy machine too.
    """
    works = {name: work for name, work in case.functions.items() if work is not None}
    times: dict[str, list[float]] = {name: [] for name in works}
    cpu: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work(case.inputs[0])
    turn = 0
    for _ in range(rounds):
        for name, work in works.items():
            turn += 1
            given = case.inputs[turn % len(case.inputs)]
            cpu_start, start = time.process_time(), time.perf_counter()
            work(given)
            end, cpu_end = time.perf_counter(), time.process_time()
            times[name].append(end - start)
            cpu[name].append(cpu_end - cpu_start)
    return compared(case.key, case.title, case.functions, times, cpu)


def compared(
    key: str,
    title: str,
    names: Iterable[str],
    times: Mapping[str, Sequence[float]],
    cpu: Mapping[str, Sequence[float]] | None = None,
) -> Figures:
    """Figures of a comparison, from the seconds (and CPU seconds) of each function that ran."""
    median = {name: statistics.median(t) * 1e3 for name, t in times.items()}
    best = {name: sorted(t)[len(t) // 8] * 1e3 for name, t in times.items()}
    values: dict[str, float | str | None] = {"ours_ms": round(median["ours"], 4)}
    values["ours_best_ms"] = round(best["ours"], 4)
    for peer in (name for name in names if name != "ours"):
        known = peer in times
        values[f"{peer}_ms"] = round(median[peer], 4) if known else None
        values[f"ratio_{peer}"] = round(_ratio(median, peer), 3) if known else None
        values[f"best_ratio_{peer}"] = round(_ratio(best, peer), 3) if known else None
        if cpu is not None:
            spent = {name: statistics.median(t) for name, t in cpu.items()}
            values[f"cpu_ratio_{peer}"] = round(_ratio(spent, peer), 3) if known else None
    return Figures(key, title, values)


def _ratio(ms: Mapping[str, float], peer: str) -> float:
    return ms["ours"] / ms[peer] if peer == "floor" else ms[peer] / ms["ours"]
