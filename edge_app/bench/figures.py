"""What benchmarks hand out: named figures, as rows of a table, and as the one document that goes into the ledger."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_app import __version__
from edge_app.bench.goals import GOALS

PEERS = ("numpy", "opencv-python-headless", "opencv-python", "onnxruntime", "torch", "torchvision", "ultralytics",
         "kornia-rs", "edgefirst-decoder")  # fmt: skip
NOT_INSTALLED = "not installed"


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    pipeline: Path
    overrides: tuple[str, ...] = ()
    rounds: int = 200
    """Of each comparison; other measurements are scaled by it."""
    only: str = ""
    """Only comparisons whose key begins so."""


@dataclass(frozen=True)
class Figures:
    """One work: figures by name. In `ours_ms` and `<peer>_ms` milliseconds; in `ratio_<peer>` how many times as long as
    ours the peer took, in `ratio_floor` how many times as long as the floor we took; `best_ratio_` of the best eighth
    of the runs, `cpu_ratio_` of CPU time. None: the peer is not installed.
    """

    key: str
    title: str
    values: Mapping[str, float | str | None]

    def rows(self) -> Iterator[tuple[str, str, str, str]]:
        """(what, value, goal, reached) for the table; a comparison has a row for each peer.

        A goal that memory alone forbids on this machine is named as `beyond the floor`, with the ratio that is left.
        """
        peers = [name.removeprefix("ratio_") for name in self.values if name.startswith("ratio_")]
        if "ours_ms" not in self.values:
            yield (f"{self.key}: {self.title}", "", "", "")
            for name, value in self.values.items():
                yield (f"  {name}", shown(value), *self._goal(name))
            return
        best = self.values.get("ours_best_ms")
        tail = "" if best is None else f" (best eighth {shown(best)})"
        yield (f"{self.key}: {self.title}", f"{shown(self.values['ours_ms'])} ms{tail}", "", "")
        for peer in peers:
            yield (f"  {peer}", self._against(peer), *self._goal(f"ratio_{peer}"))
        for name, value in self.values.items():
            if not name.endswith("_ms") and "ratio_" not in name:
                yield (f"  {name}", shown(value), *self._goal(name))

    def _against(self, peer: str) -> str:
        ratio = self.values[f"ratio_{peer}"]
        if ratio is None:
            return NOT_INSTALLED
        others = f"best eighth {shown(self.values[f'best_ratio_{peer}'])}x"
        if f"cpu_ratio_{peer}" in self.values:
            others += f", CPU {shown(self.values[f'cpu_ratio_{peer}'])}x"
        return f"{shown(self.values[f'{peer}_ms'])} ms = {shown(ratio)}x ({others})"

    def _goal(self, name: str) -> tuple[str, str]:
        goal = GOALS.get(f"{self.key}.{name}")
        if goal is None:
            return "", ""
        value = self.values[name]
        if not isinstance(value, float | int):
            return str(goal), "?"
        if goal.reached(value):
            return str(goal), "reached"
        at_floor = self._at_floor(name.removeprefix("ratio_"))
        if goal.at_least and at_floor is not None and not goal.reached(at_floor):
            return str(goal), f"beyond the floor, {shown(at_floor)}x"
        return str(goal), "missed"

    def _at_floor(self, peer: str) -> float | None:
        """How many times as long as the floor a peer took: no kernel could have a better ratio."""
        peer_ms, floor_ms, ours_ms = (self.values.get(f"{name}_ms") for name in (peer, "floor", "ours"))
        if not (isinstance(peer_ms, float) and isinstance(floor_ms, float) and isinstance(ours_ms, float)):
            return None
        return peer_ms / min(floor_ms, ours_ms)


def shown(value: float | str | None) -> str:
    """A figure with three significant digits."""
    if value is None:
        return NOT_INSTALLED
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def document(measured: Iterable[Figures]) -> dict[str, Any]:
    """The machine and how busy it is, the versions, and every figure as `key` -> `name` -> value."""
    return {
        "version": __version__,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "load": round(os.getloadavg()[0], 2),
        "peers": {name: installed(name) for name in PEERS},
        **{one.key: dict(one.values) for one in measured},
    }


def machine() -> str:
    """CPU, cores and system."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    cpu = names[0] if names else platform.processor() or "unknown CPU"
    return f"{cpu}, {len(names) or '?'} cores, {platform.machine()}, Python {platform.python_version()}"


def installed(package: str) -> str:
    """Its version."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return NOT_INSTALLED


def commit() -> str | None:
    """Of the checkout that this package lies in; None for an installed wheel. A tree with changes ends in `+`."""
    folder = Path(__file__).resolve().parent
    try:
        asked = ["git", "-C", str(folder), "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
        found = subprocess.run(asked, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() if found.returncode == 0 else None
