"""Checks a journal's results: none missing, none changed, each consistent with itself."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from edge_app.results import journal_file as jf
from edge_app.verdict import Reason


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one result."""

    epoch: str
    seq: int
    what: str


def check_run(connection: sqlite3.Connection, run: jf.Run) -> tuple[int, list[Problem]]:
    """How many results a run has, and what is wrong with them."""
    problems: list[Problem] = []
    count, expected = 0, run.oldest_seq or 1
    try:
        for row, crc in jf.read_all(connection, run.number):
            count += 1
            if row.seq != expected:
                problems.append(Problem(run.epoch, expected, f"missing, up to {row.seq - 1}"))
            expected = row.seq + 1
            problems += [Problem(run.epoch, row.seq, what) for what in wrong_with(run, row, crc)]
    except sqlite3.Error as error:
        problems.append(Problem(run.epoch, expected, f"can't be read, nor what follows: {error}"))
    return count, problems


def wrong_with(run: jf.Run, row: jf.Row, crc: int) -> Iterator[str]:
    """Everything that is wrong with one result."""
    if not jf.is_whole(row.body, crc):
        yield "not what was written: the checksum differs"
        return
    try:
        message: Any = json.loads(row.body)
        fields = {name: message[name] for name in ("node", "epoch", "seq", "verdict", "reason")}
        reason = Reason(fields["reason"])
    except (ValueError, TypeError, KeyError) as error:
        yield f"not a result: {type(error).__name__}: {str(error)!a}"
        return
    wanted = {"node": run.node, "epoch": run.epoch, "seq": row.seq, "verdict": row.verdict, "reason": row.reason}
    for name, value in wanted.items():
        if fields[name] != value:
            yield f"{name} is {fields[name]!a}, the journal says {value!a}"
    if reason.verdict != fields["verdict"]:
        yield f"{fields['verdict']!a} can't stand with {reason}"
