"""How commands speak: one JSON document on stdout for machines, tables for people, all else on stderr.

rich is imported when something is shown, so that a line that starts in a service does not wait for it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_IN_PIPES = 100


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

    return Console(stderr=True, highlight=False)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*("-" if cell is None else str(cell) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_IN_PIPES
    with console.capture() as drawn:  # rich itself would leave with exit 1 where nobody reads any more
        console.print(table)
    sys.stdout.write(drawn.get())
    sys.stdout.flush()
