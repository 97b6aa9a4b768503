"""Commands: the table, the check of a request, and replies."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

MAX_TEXT = 128
MOST_DATA = 60_000
"""Characters: a command's frame has 64 KiB at most."""
MAX_INTEGER = 2**53 - 1
MAX_TRIGGER_ID = 2**53 - 2**32
"""Ids of a run rise: a higher one, sent by mistake, would leave no room for the next."""


class Role(IntEnum):
    """Who may command; each may do what the ones before it may."""

    VIEWER = 0
    CONTROLLER = 1
    ENGINEER = 2


class Code(StrEnum):
    """Why a command was refused."""

    BAD_REQUEST = "BAD_REQUEST"
    UNKNOWN_COMMAND = "UNKNOWN_COMMAND"
    FORBIDDEN = "FORBIDDEN"
    NOT_READY = "NOT_READY"
    NOT_FOUND = "NOT_FOUND"
    GONE = "GONE"
    TOO_LATE = "TOO_LATE"
    """An announcement for a trigger that is sealed already."""
    CONFLICT = "CONFLICT"
    """The request id was used with other content, or the trigger was announced as another part."""
    BUSY = "BUSY"
    UNAVAILABLE = "UNAVAILABLE"
    INTERNAL = "INTERNAL"


class RefusedError(Exception):
    """A command that is answered with an error; `more` are further fields of the reply."""

    def __init__(self, code: Code, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.more = more


@dataclass(frozen=True, slots=True)
class Argument:
    """One field of a command."""

    kind: type
    required: bool = True
    low: int = 0
    high: int = MAX_INTEGER
    most: int = MAX_TEXT
    """Characters of a text."""
    lines: bool = False
    """A text may have several lines."""

    def check(self, name: str, value: Any) -> None:
        """Raises RefusedError unless the value is of the kind and within bounds."""
        if self.kind is int:
            fits = type(value) is int and self.low <= value <= self.high
            wanted = f"a whole number from {self.low} to {self.high}"
        else:
            fits = isinstance(value, str) and 0 < len(value) <= self.most
            fits = fits and (value.replace("\n", "") if self.lines else value).isprintable()
            wanted = f"printable text of 1 to {self.most} characters"
        if not fits:
            raise RefusedError(Code.BAD_REQUEST, f"{name}: wanted {wanted}")


@dataclass(frozen=True, slots=True)
class Command:
    """What a command needs. One that changes something is answered once: a retry gets the same reply."""

    role: Role
    what: str
    changes: bool = False
    arguments: Mapping[str, Argument] = field(default_factory=dict)


TEXT = Argument(str)
NUMBER = Argument(int)
TRIGGER_ID = Argument(int, high=MAX_TRIGGER_ID)
RECIPE = {"name": TEXT, "rev": TEXT}

COMMANDS: dict[str, Command] = {
    "hello": Command(Role.VIEWER, "versions, node, epoch, modes, topics, limits, recipes"),
    "status": Command(Role.VIEWER, "the heartbeat's fields, and the alarms that stand"),
    "describe": Command(Role.VIEWER, "the pipeline, the commands, and the closed lists"),
    "epochs": Command(Role.VIEWER, "runs of this node that the journal still holds"),
    "replay": Command(
        Role.VIEWER,
        "results after a seq",
        arguments={"epoch": TEXT, "after_seq": NUMBER, "limit": Argument(int, required=False, low=1, high=256)},
    ),
    "image": Command(Role.VIEWER, "a picture, as a second frame", arguments={"id": TEXT}),
    "announce": Command(
        Role.CONTROLLER, "which part a trigger will be", True, {"trigger_id": TRIGGER_ID, "part_id": TEXT}
    ),
    "trigger": Command(
        Role.CONTROLLER,
        "take a picture now; budget_us is the time for its verdict; t_us, by this node's clock, when it was asked for",
        True,
        {
            "trigger_id": TRIGGER_ID,
            "part_id": Argument(str, required=False),
            "budget_us": Argument(int, required=False, low=1, high=60_000_000),
            "t_us": Argument(int, required=False),
        },
    ),
    "prepare_recipe": Command(Role.CONTROLLER, "load a recipe beside the one in force", True, RECIPE),
    "activate_recipe": Command(Role.CONTROLLER, "judge by the prepared recipe from the next frame on", True, RECIPE),
    "start": Command(Role.CONTROLLER, "inspect", True),
    "stop": Command(Role.CONTROLLER, "stop inspecting", True),
    "hold": Command(Role.CONTROLLER, "keep ready, seal triggers as UNKNOWN/NOT_RUNNING", True),
    "ack_alarm": Command(Role.CONTROLLER, "a person has seen the alarm", True, {"alarm": TEXT}),
    "models": Command(Role.VIEWER, "versions of the model that are stored, the one in force, how the last update went"),
    "stage_model": Command(
        Role.ENGINEER,
        "a version of the model will come: its SHA256SUMS and its size",
        True,
        {"name": TEXT, "sums": Argument(str, most=MOST_DATA, lines=True), "bytes": NUMBER},
    ),
    "stage_part": Command(
        Role.ENGINEER,
        "a part of one of its files, base64; a file's parts come in order",
        arguments={"version": TEXT, "file": TEXT, "offset": NUMBER, "data": Argument(str, most=MOST_DATA)},
    ),
    "stage_done": Command(Role.ENGINEER, "it is whole: check it, and store it", True, {"version": TEXT}),
    "activate_model": Command(Role.ENGINEER, "load, prove and swap in a stored version", True, {"version": TEXT}),
    "rollback_model": Command(Role.ENGINEER, "go back to the version before", True),
    "self_test": Command(Role.ENGINEER, "run the canary on the plan in use", True),
    "prefer_plan": Command(
        Role.ENGINEER, "use this plan alone while it is ready; any: as the scheduler sees fit", True, {"plan": TEXT}
    ),
}


@dataclass(frozen=True, slots=True)
class Request:
    """A command that passed all checks."""

    command: str
    request_id: str
    args: dict[str, Any]
    """The command's fields; optional ones that were not given are absent."""
    client: str
    """Name of the key in clients.toml; `local` where no keys are in use."""
    role: Role


@dataclass(frozen=True, slots=True)
class Reply:
    """What a handler answers: fields beside `ok: true`, and a picture for `image`. Refuse by raising RefusedError."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    blob: bytes | None = None
    raw: bytes | None = None
    """Fields that are JSON already: `"name":value,...`."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """A reply that needs the disk: `work` is run on another thread, and may raise RefusedError as a handler may."""

    work: Callable[[], Reply]


Handler = Callable[[Request], Reply | Deferred]
"""Runs on the wire's thread: must return at once."""


def parse_request(frame: bytes) -> dict[str, Any]:
    """The request as JSON data, with a usable `command` and `request_id`.

    Raises:
        RefusedError: not JSON, not an object, or without those.
    """
    try:
        data = json.loads(frame, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RefusedError(Code.BAD_REQUEST, "not one frame of UTF-8 JSON; clients use DEALER, not REQ") from error
    if not isinstance(data, dict):
        raise RefusedError(Code.BAD_REQUEST, "wanted a JSON object")
    for name in ("command", "request_id"):
        if name not in data:
            raise RefusedError(Code.BAD_REQUEST, f"{name} is missing")
        TEXT.check(name, data[name])
    return data


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def check_request(data: Mapping[str, Any], client: str, role: Role) -> Request:
    """Checks role and arguments.

    Raises:
        RefusedError: unknown command, role too low, or a bad argument.
    """
    name = data["command"]
    command = COMMANDS.get(name)
    if command is None:
        raise RefusedError(Code.UNKNOWN_COMMAND, f"wanted one of {', '.join(COMMANDS)}")
    if role < command.role:
        raise RefusedError(
            Code.FORBIDDEN, f"{name} needs the role {command.role.name.lower()}; this key is {role.name.lower()}"
        )
    args: dict[str, Any] = {}
    for field_name, argument in command.arguments.items():
        value = data.get(field_name)
        if value is None:
            if argument.required:
                raise RefusedError(Code.BAD_REQUEST, f"{field_name} is missing")
            continue
        argument.check(field_name, value)
        args[field_name] = value
    return Request(name, data["request_id"], args, client, role)
