"""The ledger: one line of JSON a release, and how its ratios went over the commits."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_app.bench.goals import GOALS
from edge_app.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check(file: Path) -> None:
    """Raises ConfigError if nothing can be added."""
    _add(file, "")


def append(file: Path, document: Mapping[str, Any]) -> None:
    """Adds one document. Raises ConfigError if the file can't be written."""
    _add(file, json.dumps(document, allow_nan=False) + "\n")


def _add(file: Path, text: str) -> None:
    """Adds all of it or nothing: half a document would make the others unreadable."""
    try:
        with file.open("ab", buffering=0) as stream:
            size = os.fstat(stream.fileno()).st_size
            if stream.write(text.encode()) != len(text.encode()):
                stream.truncate(size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise ConfigError("can't write the ledger", where=str(file), got=error.strerror or str(error)) from error


def read(file: Path) -> list[dict[str, Any]]:
    """All documents, oldest first.

    Raises:
        ConfigError: absent, empty, or a line is no JSON document.
    """
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        documents = [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        raise ConfigError("can't read the ledger", where=str(file), got=str(error)) from error
    if not documents or not all(isinstance(one, dict) for one in documents):
        raise ConfigError("the ledger has no documents", where=str(file), wanted="lines of `edge_app bench --json`")
    return documents


def series(documents: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Of each figure that has a goal: (number of the document, figure over goal), so that above 1 is reached.

    For an upper bound it is goal over figure.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for path, goal in GOALS.items():
        key, name = path.split(".")
        for number, document in enumerate(documents):
            value = document.get(key, {}).get(name)
            if isinstance(value, int | float) and value > 0:
                share = value / goal.bound if goal.at_least else goal.bound / value
                found.setdefault(path, []).append((number, share))
    return found


def plot(documents: Sequence[Mapping[str, Any]]) -> Figure:
    """Draws the series by part, a panel each; 1 is the goal."""
    from matplotlib.figure import Figure

    found = series(documents)
    parts = sorted({path.split("_")[0] for path in found})
    figure = Figure(figsize=(10, 2.6 * len(parts)))
    axes = figure.subplots(len(parts), 1, squeeze=False, sharex=True)
    for axis, part in zip(axes[:, 0], parts, strict=True):
        for path, points in found.items():
            if path.split("_")[0] == part:
                axis.plot([x for x, _ in points], [y for _, y in points], marker="o", label=path)
        axis.axhline(1, color="grey", linewidth=1)
        axis.set_yscale("log")
        axis.set_ylabel("figure / goal")
        axis.legend(fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
    names = [f"{one.get('version', '?')} {(one.get('commit') or '')[:8]}" for one in documents]
    axes[-1, 0].set_xticks(range(len(names)), names, rotation=30, fontsize=7)
    return figure
