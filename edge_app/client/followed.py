"""What `Line` and `AsyncLine` have in common: all but the waiting."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import NoneType
from typing import Any

import zmq

from edge_app.client.access import Keys
from edge_app.client.messages import Position, Result, Start
from edge_app.client.session import Answer, Session
from edge_app.client.sockets import check_endpoint, open_dealer, open_sub, port_after

PUBLISH = "tcp://127.0.0.1:5560"
COMMANDS = "tcp://127.0.0.1:5561"
PORT_AFTER = "the port after publish"
MAX_READY = 1000
"""While so many results wait to be taken, further ones are left in the socket, whose queue is bounded. Answers are not:
a program that takes no results may command."""


class CommandRefused(Exception):
    """The node answered a command with an error; `code` is of protocol v1's list."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class NoAnswer(Exception):
    """The node did not answer in time. The command may have been carried out."""


class Followed(ABC):
    """A node as it is known so far.

    Args:
        publish: the node's PUB endpoint.
        commands: its ROUTER endpoint; left out: the port after PUB's; None: no commands and no replay, gaps are lost
            (and counted).
        node: `line/station`; None: the first that is heard there.
        start: a Position (go on after it), Start.OLDEST, or Start.NOW.
        keys: where the node has keys.
        max_age_s: an older result is STALE. Without `commands` the two clocks must agree for this.

    Raises:
        ValueError: an endpoint, a node's name, a start or keys that are none.
    """

    def __init__(
        self,
        publish: str = PUBLISH,
        commands: str | None = PORT_AFTER,
        *,
        node: str | None = None,
        start: Position | Start = Start.NOW,
        keys: Keys | None = None,
        max_age_s: float = 0.5,
    ) -> None:
        check_endpoint(publish)
        if commands == PORT_AFTER:
            commands = port_after(publish)
            if commands is None:
                raise ValueError(f"where the node behind {publish} takes commands is not known: name it (commands=...)")
        if commands is not None:
            check_endpoint(commands)
        if node is not None and not re.fullmatch(r"[^/]+/[^/]+", node):
            raise ValueError(f"not the name of a node: wanted LINE/STATION, e.g. l1/st1, got {node!a}")
        if not isinstance(start, (Position, Start)):
            raise ValueError(f"not a start: wanted a Position, Start.OLDEST or Start.NOW, got {start!a}")
        if not isinstance(keys, (Keys, NoneType)):
            raise ValueError(f"no keys: wanted Keys.load(my secret file, the node's public file), got {keys!a}")
        self._publish, self._commands, self._node, self._keys = publish, commands, node, keys
        self._session = Session(node, start, can_ask=commands is not None, max_age_us=round(max_age_s * 1e6))
        self._begin()

    @abstractmethod
    def _begin(self) -> None:
        """What the one or the other needs before its first wait."""

    def _open_sub(self, context: zmq.Context[Any]) -> Any:
        return open_sub(context, self._publish, self._node, self._keys)

    def _open_dealer(self, context: zmq.Context[Any]) -> Any | None:
        """None: this client sends no commands."""
        return None if self._commands is None else open_dealer(context, self._commands, self._keys)

    def _take(self) -> Result | None:
        return self._session.take(monotonic_us(), utc_us())

    def _ask(self, name: str, fields: Mapping[str, Any]) -> str:
        """Puts a command among those that are due; its request id."""
        if self._commands is None:
            raise NoAnswer(f"{name}: this {type(self).__name__} was made without a commands endpoint")
        return self._session.request(name, fields, monotonic_us())

    def _answered(self, name: str, answer: Answer | None, timeout_s: float) -> Answer:
        """The answer to a command.

        Raises:
            CommandRefused: the node said no, and why.
            NoAnswer: there is none.
        """
        if answer is None:
            raise NoAnswer(f"{name}: no reply within {timeout_s:g} s")
        if answer.fields.get("ok") is not True:
            raise CommandRefused(str(answer.fields.get("code")), str(answer.fields.get("message")))
        return answer

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


def monotonic_us() -> int:
    """This machine's monotonic clock."""
    return time.monotonic_ns() // 1000


def utc_us() -> int:
    """This machine's UTC."""
    return time.time_ns() // 1000
