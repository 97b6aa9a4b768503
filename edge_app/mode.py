"""The node's modes and the ways between them: pure."""

from __future__ import annotations

from edge_app.verdict import Mode

WAYS: dict[Mode, frozenset[Mode]] = {
    Mode.STARTING: frozenset({Mode.READY, Mode.FAULT, Mode.STOPPED}),
    Mode.READY: frozenset({Mode.RUNNING, Mode.HOLD, Mode.FAULT, Mode.STOPPED}),
    Mode.RUNNING: frozenset({Mode.READY, Mode.HOLD, Mode.FAULT, Mode.STOPPED}),
    Mode.HOLD: frozenset({Mode.READY, Mode.RUNNING, Mode.FAULT, Mode.STOPPED}),
    Mode.FAULT: frozenset({Mode.READY, Mode.RUNNING, Mode.HOLD, Mode.STOPPED}),
    Mode.STOPPED: frozenset(),
}


def may_change(now: Mode, to: Mode) -> bool:
    """Whether a node may go from one mode to another."""
    return to in WAYS[now]


def inspects(mode: Mode) -> bool:
    """Whether triggers are inspected in this mode; in every other they are sealed UNKNOWN/NOT_RUNNING."""
    return mode in (Mode.RUNNING, Mode.FAULT)
