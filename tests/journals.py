"""A journal that runs over a real SQLite file, and what that file holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from wire_samples import identity

from edge_app.config.results import Journal as Section
from edge_app.results import journal_file as jf
from edge_app.results.identity import NodeIdentity
from edge_app.results.journal import Journal
from edge_app.results.record import Record
from edge_app.verdict import Sealed

PATIENCE_S = 60.0
"""A busy disk is no reason to fail."""


class Alarms:
    """What the journal raised: name -> (active, text)."""

    def __init__(self) -> None:
        self.now: dict[str, tuple[bool, str]] = {}

    def __call__(self, name: str, active: bool, text: str, remedy: str) -> None:
        self.now[name] = (active, text)


def record(result: Sealed, who: NodeIdentity) -> Record:
    return Record(result, who, result.part_id, (), None)


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


class Opened:
    """A journal that runs, and what it raised."""

    def __init__(self, file: Path, **keep: Any) -> None:
        self.alarms = Alarms()
        self.who = identity()
        self.journal = Journal(Section(path=file, **keep), self.who, self.alarms, lambda: None)
        self.journal.start()
        self.bodies: dict[int, bytes] = {}

    def put(self, result: Sealed) -> None:
        made = record(result, self.who)
        self.bodies[result.seq] = made.body
        self.journal.put(made)
        self.journal.wake()


def runs(file: Path) -> list[jf.Run]:
    connection = jf.open_for_reading(file)
    found = jf.read_runs(connection)
    connection.close()
    return found


def held(file: Path) -> dict[int, bytes]:
    """Seq -> body of the newest run."""
    connection = jf.open_for_reading(file)
    found = dict(jf.read_after(connection, jf.read_runs(connection)[-1], 0, 100_000, pytest.fail))
    connection.close()
    return found
