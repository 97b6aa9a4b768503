"""What `Line` and `AsyncLine` tell of the node they follow."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from edge_app.client.messages import Position, Start
from edge_app.client.session import Answer, Session

PUBLISH = "tcp://127.0.0.1:5560"
COMMANDS = "tcp://127.0.0.1:5561"
MAX_READY = 1000
"""While so many results wait to be taken, further ones are left in the socket, whose queue is bounded."""


class CommandRefused(Exception):
    """The node answered a command with an error; `code` is of protocol v1's list."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class NoAnswer(Exception):
    """The node did not answer in time. The command may have been carried out."""


class Followed:
    """A node as it is known so far."""

    def __init__(self, node: str | None, start: Position | Start, *, can_ask: bool, max_age_s: float) -> None:
        self._session = Session(node, start, can_ask=can_ask, max_age_us=round(max_age_s * 1e6))

    @property
    def fault(self) -> str | None:
        """Why the node can't be trusted now (no heartbeat for 3 s, two of the same name); None if it can."""
        return self._session.liveness.fault(monotonic_us())

    @property
    def heartbeat(self) -> Mapping[str, Any] | None:
        """The last heartbeat: mode, ready, counters, recipe, durable_seq, ..."""
        return self._session.heartbeat

    @property
    def node(self) -> str | None:
        """`line/station`, once it is known."""
        return self._session.node

    @property
    def lost(self) -> int:
        """Results that nobody could give any more (see also Result.lost_before)."""
        return self._session.follower.lost

    @property
    def bad_messages(self) -> int:
        """Messages that were not of protocol v1, or of another node."""
        return self._session.bad_messages

    def events(self) -> list[Mapping[str, Any]]:
        """`state` and `alarm` messages since the last call."""
        events, self._session.events = self._session.events, []
        return events

    @property
    def _full(self) -> bool:
        return len(self._session.follower.ready) >= MAX_READY


def checked(answer: Answer) -> Answer:
    """The answer, unless it is an error.

    Raises:
        CommandRefused: it is.
    """
    if answer.fields.get("ok") is not True:
        raise CommandRefused(str(answer.fields.get("code")), str(answer.fields.get("message")))
    return answer


def monotonic_us() -> int:
    """This machine's monotonic clock."""
    return time.monotonic_ns() // 1000


def utc_us() -> int:
    """This machine's UTC."""
    return time.time_ns() // 1000
