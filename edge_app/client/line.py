"""A node's results and commands for a plant program, in one thread: `for result in Line(): ...`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import zmq

from edge_app.client.followed import Followed, monotonic_us
from edge_app.client.messages import Result
from edge_app.client.session import Answer

MAX_TURN = 256
"""Messages taken from a socket before the program gets a result again."""
CONNECTING_US = 20_000


class Line(Followed):
    """One inspection node. Each result is handed over once, in order; what was missed is asked for again.

    For one thread at a time: two at once are a RuntimeError. Made after any fork. Messages are taken in while `next`
    (or a command) waits; call it often: a program that does not is told the truth late (results come STALE), but loses
    nothing.
    """

    def _begin(self) -> None:
        self._in_use, self._closed = threading.Lock(), False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._open()

    def next(self, timeout_s: float | None = None) -> Result | None:
        """The next result; None if none came within the time (None: wait for ever)."""
        end_us = None if timeout_s is None else monotonic_us() + round(timeout_s * 1e6)
        with self._alone():
            self._turn(0)  # heartbeats are seen, however many results wait
            while (result := self._take()) is None and (end_us is None or monotonic_us() < end_us):
                self._turn(end_us)
            return result

    def __iter__(self) -> Iterator[Result]:
        """Results, for ever."""
        while True:
            result = self.next()
            if result is not None:
                yield result

    def command(self, name: str, /, timeout_s: float = 3.0, **fields: Any) -> Mapping[str, Any]:
        """Sends a command and waits for its reply. It is repeated until then: the node carries it out once.

        Raises:
            CommandRefused: the node said no, and why.
            NoAnswer: no reply in time.
        """
        return self._wait_for(name, timeout_s, fields).fields

    def image(self, image_id: str, timeout_s: float = 5.0) -> bytes:
        """A picture as JPEG, by the `image` id of a result. Raises as `command` does."""
        return self._wait_for("image", timeout_s, {"id": image_id}).blob or b""

    def announce(self, trigger_id: int, part_id: str) -> None:
        """Says which part a trigger will be, before its result is sealed. Raises as `command` does."""
        self.command("announce", trigger_id=trigger_id, part_id=part_id)

    def close(self) -> None:
        """Lets go of the sockets."""
        if self._closed:
            return
        with self._alone():
            self._closed = True
            self._context.destroy(linger=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _open(self) -> None:
        self._sub, self._dealer = self._open_sub(self._context), self._open_dealer(self._context)
        self._poller = zmq.Poller()
        for sock in (self._sub, self._dealer):
            if sock is not None:
                self._poller.register(sock, zmq.POLLIN)

    def _reopen(self) -> None:
        self._sub.close()
        if self._dealer is not None:
            self._dealer.close()
        self._open()

    def _wait_for(self, name: str, timeout_s: float, fields: Mapping[str, Any]) -> Answer:
        end_us = monotonic_us() + round(timeout_s * 1e6)
        with self._alone():
            request_id = self._ask(name, fields)
            try:
                while (answer := self._session.answer(request_id)) is None and monotonic_us() < end_us:
                    self._turn(end_us)
            finally:
                self._session.forget(request_id)
            return self._answered(name, answer, timeout_s)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """ZeroMQ's sockets are for one thread at a time: two would lose results, or abort the program."""
        if not self._in_use.acquire(blocking=False):
            raise RuntimeError("this Line is in use by another thread: make one for each thread")
        try:
            if self._closed:
                raise RuntimeError("this Line is closed: make another one")
            yield
        finally:
            self._in_use.release()

    def _turn(self, end_us: int | None) -> None:
        """Sends what is due, waits until `end_us` at most (0: not at all), takes in what has come."""
        now_us = monotonic_us()
        if self._session.wants_new_sockets(now_us):
            self._reopen()
        connected = self._send_due(now_us)
        until_us = self._session.next_due_us(now_us) if connected else now_us + CONNECTING_US
        wait_us = min(until_us, end_us if end_us is not None else until_us) - now_us
        self._poller.poll(max(0, -(-wait_us // 1000)))
        self._take_in()
        self._send_due(monotonic_us())

    def _send_due(self, now_us: int) -> bool:
        """False: there is no connection to send it on."""
        if self._dealer is None:
            return True
        connected = bool(self._dealer.poll(0, zmq.POLLOUT))
        for frame in self._session.due(now_us, connected=connected):
            try:
                self._dealer.send(frame, zmq.NOBLOCK)
            except zmq.Again:
                return False  # lost since the poll; what has no answer is sent again
        return connected

    def _take_in(self) -> None:
        for sock, take in ((self._sub, self._session.published), (self._dealer, self._session.replied)):
            for _ in range(MAX_TURN):
                if sock is None or (sock is self._sub and self._full):
                    break
                try:
                    take(sock.recv_multipart(zmq.NOBLOCK), monotonic_us())
                except zmq.Again:
                    break
