"""How commands speak: one JSON document on stdout for machines, tables for people, all else on stderr.

rich is imported when something is shown, so that a line that starts in a service does not wait for it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edge_app.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_IN_PIPES = 100
PLOTS = (".png", ".svg", ".pdf")


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """`--json`, as every command that reports has it."""
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, all else on stderr")


def print_json(document: Mapping[str, Any]) -> None:
    """The one document of a `--json` run."""
    json.dump(document, sys.stdout, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")
    sys.stdout.flush()


def people() -> Console:
    """Where progress bars and notes for people go: stderr, plain when it is no terminal."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text  # no markup: brackets of a name or a message are its own

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_IN_PIPES
    table = Table(title=Text(title), title_justify="left", show_header=any(columns))
    cells = [[cell(value) for value in row] for row in rows]
    room = console.width - 3 * len(columns) - 1
    for column, width in zip(columns, widths([columns, *cells], room), strict=True):
        table.add_column(Text(column), overflow="fold", width=width)
    for row in cells:
        table.add_row(*map(Text, row))
    with console.capture() as drawn:  # rich itself would leave with exit 1 where nobody reads any more
        console.print(table)
    sys.stdout.write(drawn.get())
    sys.stdout.flush()


def widths(rows: Sequence[Sequence[str]], room: int) -> Sequence[int | None]:
    """Of columns that do not fit, so that words are whole, those of the longest column last; None: they fit.

    rich itself takes from the widest columns, and breaks short words there.
    """
    columns = list(zip(*rows, strict=True))
    wanted = [max(len(line) for text in column for line in text.split("\n")) for column in columns]
    if sum(wanted) <= room:
        return [None] * len(columns)
    given = [max((len(word) for text in column for word in text.split()), default=1) for column in columns]
    while sum(given) > room and max(given) > 1:
        given[given.index(max(given))] -= 1
    while sum(given) < room:
        neediest = max(range(len(columns)), key=lambda one: wanted[one] / given[one])
        given[neediest] += 1
    return given


def cell(value: object) -> str:
    """A value as a table shows it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {cell(count)}" for key, count in value.items() if count is not None) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value)) or "-"
    return "-" if value is None else str(value)


def add_plot_argument(parser: argparse.ArgumentParser, what: str) -> None:
    """`--plot`, for `check_plot` before the work and `save_plot` after it."""
    parser.add_argument("--plot", metavar="FILE", type=Path, help=f"{what}: {', '.join(PLOTS)} (needs matplotlib)")


def check_plot(file: Path) -> None:
    """Before the work: whether a plot can be drawn into this file.

    Raises:
        ConfigError: matplotlib is not installed, it draws no such files, or this one can't be written.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(
            "matplotlib is needed for a plot",
            where="--plot",
            got="not installed",
            remedy="pip install 'edge_app[toolchain]'",
        )
    if file.suffix.lower() not in PLOTS:
        raise _not_drawn(file, f"{file.suffix or 'no suffix'}")
    if file.is_dir():
        raise _not_drawn(file, "a folder")
    if not file.parent.is_dir():
        raise _not_drawn(file, f"there is no folder {file.parent}")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise _not_drawn(file, "permission denied")


class Drawing(Protocol):
    """What matplotlib's Figure can do, which a line's own commands must not import."""

    def savefig(self, fname: Any, *, dpi: int, bbox_inches: str) -> None:
        """Writes the picture."""


def save_plot(figure: Drawing, file: Path) -> None:
    """Writes what was drawn, and says where. Raises ConfigError."""
    try:
        figure.savefig(file, dpi=150, bbox_inches="tight")
    except OSError as error:
        raise _not_drawn(file, str(error)) from error
    people().print(f"plot: {file}")


def _not_drawn(file: Path, got: str) -> ConfigError:
    wanted = f"a {', '.join(PLOTS)} in a folder that can be written"
    return ConfigError("the plot can't be written", where=f"--plot {file}", got=got, wanted=wanted)
