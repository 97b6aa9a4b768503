"""Timing that can be trusted on a shared machine: all functions take turns, on frames that are not in the cache."""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

Work = Callable[[Any], object]
COLD_BYTES = 96_000_000
"""Frames are rotated through so much memory, three times the last-level cache here, as a camera delivers them."""


@dataclass(frozen=True)
class Case:
    """One work, done by us and by peers. `ours` is the first function; a floor is named `floor`."""

    key: str
    title: str
    inputs: Sequence[Any]
    functions: dict[str, Work]

    def only(self, peers: Sequence[str]) -> Case:
        """The same with these peers alone: what others leave in the caches is no part of it then."""
        return replace(self, functions={k: work for k, work in self.functions.items() if k == "ours" or k in peers})


@dataclass(frozen=True)
class Figures:
    """Milliseconds of each function: the median and the best eighth of interleaved runs."""

    median_ms: dict[str, float]
    best_ms: dict[str, float]

    def ratio(self, peer: str) -> float:
        """How many times as long as ours the peer took."""
        return self.median_ms[peer] / self.median_ms["ours"]


def cold(make: Callable[[int], np.ndarray], bytes_each: int) -> list[np.ndarray]:
    """Enough different inputs to leave the cache before one comes again."""
    return [make(i) for i in range(max(2, -(-COLD_BYTES // bytes_each)))]


def run(case: Case, rounds: int) -> Figures:
    """Every function once in each round, each time on the next input."""
    times: dict[str, list[float]] = {name: [] for name in case.functions}
    for work in case.functions.values():
        work(case.inputs[0])
    turn = 0
    for _ in range(rounds):
        for name, work in case.functions.items():
            turn += 1
            given = case.inputs[turn % len(case.inputs)]
            start = time.perf_counter()
            work(given)
            times[name].append(time.perf_counter() - start)
    return Figures(
        {name: statistics.median(t) * 1e3 for name, t in times.items()},
        {name: sorted(t)[len(t) // 8] * 1e3 for name, t in times.items()},
    )


def machine() -> str:
    """CPU and system, for the ledger."""
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {platform.machine()}, Python {platform.python_version()}"


def report(cases: Iterable[Case], rounds: int, as_json: bool) -> None:
    """Run all cases; a table on stdout, or one JSON document."""
    document: dict[str, Any] = {"machine": machine(), "rounds": rounds}
    for case in cases:
        figures = run(case, rounds)
        entry = {f"{name}_ms": round(ms, 4) for name, ms in figures.median_ms.items()}
        entry |= {f"{name}_best_ms": round(ms, 4) for name, ms in figures.best_ms.items()}
        entry |= {f"ratio_{name}": round(figures.ratio(name), 3) for name in case.functions if name != "ours"}
        document[case.key] = entry
        if not as_json:
            print(_row(case, figures), flush=True)
    if as_json:
        json.dump(document, sys.stdout, indent=1)
        print()


def _row(case: Case, figures: Figures) -> str:
    ours = f"{case.title:34s} ours {figures.median_ms['ours']:7.3f} ms (best {figures.best_ms['ours']:6.3f})"
    others = [name for name in case.functions if name != "ours"]
    best = {name: figures.best_ms[name] / figures.best_ms["ours"] for name in others}
    peers = (
        f"{name} {figures.median_ms[name]:.3f} = {figures.ratio(name):.2f}x (best {best[name]:.2f}x)" for name in others
    )
    return f"{ours} | " + " | ".join(peers)
