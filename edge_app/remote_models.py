"""What an engineer may tell a running line about its model, over the wire: push, activate, roll back."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

from edge_app.errors import EdgeAppError
from edge_app.results import Code, Deferred, Handler, RefusedError, Reply, Request
from edge_app.update import NotNow, Progress, Updates


def model_handlers(updates: Updates) -> Mapping[str, Handler]:
    """Handlers for the outlet. All are deferred, and run on its one thread for commands that take their time."""
    handlers: dict[str, Callable[[Request], Mapping[str, Any]]] = {
        "models": lambda _request: updates.status(),
        "stage_model": lambda request: _announced(updates, request.args),
        "stage_part": lambda request: _part(updates, request.args),
        "stage_done": lambda request: _staged(updates, request.args["version"]),
        "activate_model": lambda request: _begun(updates.activate(request.args["version"])),
        "rollback_model": lambda request: _begun(updates.roll_back(request.client)),
    }
    return {name: _deferred(handler) for name, handler in handlers.items()}


def _deferred(handler: Callable[[Request], Mapping[str, Any]]) -> Handler:
    return lambda request: Deferred(lambda: _answered(handler, request))


def _answered(handler: Callable[[Request], Mapping[str, Any]], request: Request) -> Reply:
    try:
        return Reply(handler(request))
    except NotNow as error:
        raise RefusedError(Code.NOT_READY, error.what) from error
    except EdgeAppError as error:
        raise RefusedError(Code.CONFLICT, "; ".join(error.text().splitlines())) from error


def _announced(updates: Updates, args: Mapping[str, Any]) -> Mapping[str, Any]:
    version, stored = updates.announce(args["name"], args["sums"], args["bytes"])
    return {"version": version, "stored": stored, "recipes": updates.revisions(version) if stored else {}}


def _part(updates: Updates, args: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        data = base64.b64decode(args["data"], validate=True)
    except binascii.Error as error:
        raise RefusedError(Code.BAD_REQUEST, "data: wanted base64") from error
    updates.staging.write(args["version"], args["file"], args["offset"], data)
    return {"file": args["file"], "offset": args["offset"] + len(data)}


def _staged(updates: Updates, version: str) -> Mapping[str, Any]:
    updates.staging.finish(version)
    forgotten = updates.store.forget_old({version, *updates.in_use()})
    return {"version": version, "recipes": updates.revisions(version), "removed": forgotten}


def _begun(progress: Progress) -> Mapping[str, Any]:
    return {"number": progress.number, "version": progress.version, "stage": progress.stage}
