"""`edge_app` as it is, but for an NPU of which a run never returns: arguments are those of the command line.

Its sessions are real ones, wrapped by the documented session that fails on purpose (edge_app.runtime.faulty). Those of
a station that is called `healthy` are left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import edge_app.placed
from edge_app.cli import entry
from edge_app.engine import Engine
from edge_app.plans import Options, plan_options
from edge_app.runtime.faulty import FaultScript, FaultySession, Trouble
from edge_app.verdict import PlanKind

HANGS_FROM_RUN = 6
"""After the warm-up and the canary, and some good parts."""


def with_a_hanging_npu(*args: Any, **more: Any) -> Options:
    options = plan_options(*args, **more)
    script = FaultScript({HANGS_FROM_RUN: Trouble.HANG})
    if args[0].station.station == "healthy":
        return options
    if PlanKind.HTP in options.openers:
        options.openers[PlanKind.HTP] = faulty(options.openers[PlanKind.HTP], script)
    return options


def faulty(open_engine: Callable[[], Engine], script: FaultScript) -> Callable[[], Engine]:
    def opened() -> Engine:
        engine = open_engine()
        engine.session = FaultySession(engine.session, script)
        return engine

    return opened


if __name__ == "__main__":
    edge_app.placed.plan_options = with_a_hanging_npu
    entry()
