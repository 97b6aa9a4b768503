"""What a controller or an engineer may tell a running line over the wire: start, stop, hold, self_test."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edge_app.errors import EdgeAppError
from edge_app.line import Line
from edge_app.results import Code, Deferred, Handler, RefusedError, Reply, Request
from edge_app.verdict import Mode

SelfTest = Callable[[], str | None]
"""Runs the canary on the plan in use; None if it held, else what was wrong."""


def handlers(line: Callable[[], Line], self_test: SelfTest | None) -> Mapping[str, Handler]:
    """Handlers for the outlet. They only set a mode or defer: the wire's thread never waits.

    Args:
        line: the running line.
        self_test: None where the model has no canary.
    """
    return {
        "start": lambda request: _to(line(), Mode.RUNNING, f"started by {request.client}"),
        "stop": lambda request: _to(line(), Mode.READY, f"stopped by {request.client}"),
        "hold": lambda request: _to(line(), Mode.HOLD, f"held by {request.client}"),
        "self_test": lambda request: _self_test(self_test, request),
    }


def _to(line: Line, mode: Mode, reason: str) -> Reply:
    if line.mode is not mode and not line.change_mode(mode, reason):
        raise RefusedError(Code.NOT_READY, f"there is no way from {line.mode} to {mode}")
    return Reply({"mode": line.mode.value})


def _self_test(self_test: SelfTest | None, request: Request) -> Deferred:
    if self_test is None:
        raise RefusedError(Code.NOT_READY, "this model has no canary: nothing can be tested")

    def work() -> Reply:
        try:
            wrong = self_test()
        except EdgeAppError as error:
            wrong = error.what
        return Reply({"held": wrong is None, "detail": wrong or "the canary gave what was stored"})

    return Deferred(work)
