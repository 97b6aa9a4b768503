"""A node in which something goes wrong: `edge_app` with one function replaced by one that hangs or is slow.

    troubled_node.py TROUBLE ARGUMENTS...       the arguments are edge_app's

`none`; `frame-loop`: preprocessing hangs at the 20th frame; `bus`: the third heartbeat hangs; `lock`: a frame never
gives back the lock of the counters; `slow-load`: loading the model takes SLOW_S more. With a file `healed` in the
current folder, nothing is wrong.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import edge_app.app
import edge_app.line
import edge_app.service
from edge_app.cli import entry
from edge_app.results.outlet import Outlet
from edge_app.sealing import Sealer

SLOW_S = 6.0
FOR_EVER = threading.Event()


def hang_at(call: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """The original, until that call of it."""
    calls = itertools.count(1)

    def hanging(*args: Any, **more: Any) -> Any:
        if next(calls) >= call:
            FOR_EVER.wait()
        return original(*args, **more)

    return hanging


def slowly(original: Callable[..., Any]) -> Callable[..., Any]:
    """The original, after SLOW_S."""

    def slow(*args: Any, **more: Any) -> Any:
        time.sleep(SLOW_S)
        return original(*args, **more)

    return slow


def keep_lock(self: Sealer, *_: Any) -> None:
    """In place of counting: never returns, with the counters' lock in its hands."""
    FOR_EVER.wait()


if __name__ == "__main__":
    trouble = sys.argv.pop(1)
    edge_app.app.STUCK_US = 1_000_000
    edge_app.service.EXTEND_EVERY_S = 0.5
    edge_app.service.EXTEND_BY_US = 3_000_000
    if not Path("healed").exists():
        if trouble == "frame-loop":
            edge_app.line.fill = hang_at(20, edge_app.line.fill)  # type: ignore[attr-defined]
        elif trouble == "bus":
            Outlet._beat = hang_at(3, Outlet._beat)  # type: ignore[method-assign]
        elif trouble == "lock":
            Sealer._count = keep_lock  # type: ignore[method-assign]
        elif trouble == "slow-load":
            edge_app.app.place_model = slowly(edge_app.app.place_model)  # type: ignore[attr-defined]
    entry()
