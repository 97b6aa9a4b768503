"""The sockets: one thread owns PUB and ROUTER, and everything that others want sent is handed to it.

PUB never waits for a subscriber: what one of them is too slow for is dropped from that one's queue alone (SNDHWM), and
it asks for a replay. For that reason neither XPUB_NODROP nor CONFLATE is used: with the first, one stalled subscriber
starves the healthy ones, with the second the topic frame is lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import zmq

from edge_app import clock
from edge_app.errors import BusError
from edge_app.results import wire
from edge_app.results.record import Record

log = logging.getLogger(__name__)

MAX_QUEUED_RESULTS = 4096
MAX_COMMANDS_A_TURN = 32
"""Then results go first again, however many commands wait."""
PUB_SNDHWM = 1000
ROUTER_SNDHWM = 32
"""Replies that wait for one client; a batch of a replay is up to a megabyte."""
LINGER_MS = 200
BIND_PATIENCE_US = 2_000_000


@dataclass(frozen=True, slots=True)
class Message:
    """Anything but a result: it is never dropped here."""

    kind: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply that another thread worked out."""

    routing_id: bytes
    frames: list[bytes]


Serve = Callable[[bytes, str | None, bytes], list[bytes] | None]
"""Answers a command: routing id, user id, frame -> the reply's frames, or None if the reply comes later."""


class Wakeup:
    """Wakes the bus thread from any other.

    The byte is written through ctypes' PyDLL, which keeps the GIL: os.write lets go of it, and a frame thread then
    waits for its turn again (measured with one busy thread: p99 10 ms, against 0.08 ms).
    """

    def __init__(self) -> None:
        self.read_fd, self._write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        os.set_blocking(self._write_fd, False)
        self._write = ctypes.PyDLL(None).write
        self._write.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
        self._pending = False

    def set(self) -> None:
        """Never blocks: a full pipe is a woken thread."""
        if not self._pending:
            self._pending = True
            self._write(self._write_fd, b"\0", 1)

    def clear(self) -> None:
        """Called before the queue is looked at, so that what comes after is told again."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.read_fd, 4096)
        self._pending = False

    def close(self) -> None:
        """Both ends."""
        os.close(self.read_fd)
        os.close(self._write_fd)


class Bus:
    """PUB and ROUTER on one thread.

    Args:
        publish, commands: endpoints, or None for none.
        node: `line/station`, for the topics.
        beat: makes a heartbeat's body; called on the bus thread.
        serve: answers a command; called on the bus thread.
        published: told of each result that was handed to PUB, in order; called on the bus thread.
    """

    def __init__(
        self,
        publish: str | None,
        commands: str | None,
        node: str,
        beat: Callable[[], bytes],
        serve: Serve,
        published: Callable[[Record], None],
    ) -> None:
        self._wanted = {"publish": publish, "commands": commands}
        self._topics = {kind: wire.topic(kind, node) for kind in wire.KINDS}
        self._beat = beat
        self._serve = serve
        self._published = published
        self._queue: deque[Record | Message | Answer] = deque()
        self._wakeup = Wakeup()
        self._beat_now = False
        self._stopping = False
        self._last_word: Message | None = None
        self._sockets: dict[str, zmq.Socket[bytes]] = {}
        self._thread = threading.Thread(target=self._run, name="bus", daemon=True)
        self.endpoints: dict[str, str | None] = {"publish": None, "commands": None}
        self.dropped = 0
        """Results that found the queue full; they are in the journal."""
        self.unsent_replies = 0
        """Replies whose client was gone or did not read."""
        self.last_turn_us = clock.monotonic_us()
        """When the thread last went round; the watchdog looks at it."""

    def open(self) -> None:
        """Binds.

        Raises:
            BusError: a port is in use, or the address is not this machine's.
        """
        self._context = zmq.Context()  # one a process, made after any fork
        self._context.set(zmq.BLOCKY, 0)
        try:
            for key, kind in (("publish", zmq.PUB), ("commands", zmq.ROUTER)):
                if self._wanted[key] is not None:
                    self._sockets[key] = self._bind(key, kind)
        except BusError:
            self._close_sockets()
            raise

    def start(self) -> None:
        """Starts the thread; after `open`."""
        self._thread.start()

    def abandon(self) -> None:
        """Closes what was opened and never started."""
        self._close_sockets()

    def _bind(self, key: str, kind: int) -> zmq.Socket[bytes]:
        endpoint = str(self._wanted[key])
        sock: zmq.Socket[bytes] = self._context.socket(kind)
        self._set_options(sock, kind)
        try:
            sock.bind(endpoint)
        except zmq.ZMQError as error:
            sock.close(linger=0)
            in_use = error.errno == errno.EADDRINUSE
            raise BusError(
                "the port is in use" if in_use else "can't listen there",
                where=f"results.{key}",
                wanted="an address of this machine and a free port",
                got=f"{endpoint}: {error.strerror}",
                remedy="is another node running? stop it, or set another port" if in_use else "check the address",
            ) from error
        self.endpoints[key] = sock.get_string(zmq.LAST_ENDPOINT)
        return sock

    def _set_options(self, sock: zmq.Socket[bytes], kind: int) -> None:
        sock.set(zmq.LINGER, LINGER_MS)
        sock.set(zmq.HEARTBEAT_IVL, 500)
        sock.set(zmq.HEARTBEAT_TIMEOUT, 1500)
        sock.set(zmq.HEARTBEAT_TTL, 2000)
        sock.set(zmq.HANDSHAKE_IVL, 3000)
        sock.set(zmq.TCP_KEEPALIVE, 1)
        sock.set(zmq.MAXMSGSIZE, wire.MAX_COMMAND_BYTES)
        if kind == zmq.ROUTER:
            sock.set(zmq.ROUTER_MANDATORY, 1)
            sock.set(zmq.SNDHWM, ROUTER_SNDHWM)
        else:
            sock.set(zmq.SNDHWM, PUB_SNDHWM)

    def publish(self, record: Record) -> bool:
        """Hands a result over; never blocks. False: the queue was full, and the result was counted as dropped."""
        if len(self._queue) >= MAX_QUEUED_RESULTS:
            self.dropped += 1
            return False
        self._queue.append(record)
        self._wakeup.set()
        return True

    def send(self, item: Message | Answer, *, then_beat: bool = False) -> None:
        """Hands anything else over; never blocks. With `then_beat` a heartbeat follows at once."""
        self._queue.append(item)
        if then_beat:
            self._beat_now = True
        self._wakeup.set()

    def stop(self, last_word: Message, timeout_s: float) -> None:
        """Sends what waits, a heartbeat and `last_word`, then closes. A thread that takes too long is left behind."""
        self._last_word = last_word
        self._stopping = True
        self._wakeup.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            log.error("the bus thread did not end within %.1f s", timeout_s)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._wakeup.read_fd, zmq.POLLIN)
        router = self._sockets.get("commands")
        if router is not None:
            poller.register(router, zmq.POLLIN)
        next_beat_us = clock.monotonic_us()
        try:
            while not self._stopping:
                now_us = self.last_turn_us = clock.monotonic_us()
                poller.poll(max(0, next_beat_us - now_us) // 1000 + 1)
                self._wakeup.clear()
                beat_now, self._beat_now = self._beat_now, False
                self._send_queued()
                if beat_now or clock.monotonic_us() >= next_beat_us:
                    self._publish("heartbeat", self._beat())
                    next_beat_us = clock.monotonic_us() + wire.HEARTBEAT_PERIOD_US
                if router is not None:
                    self._serve_commands(router)
            self._send_queued()
            self._publish("heartbeat", self._beat())
            if self._last_word is not None:
                self._publish(self._last_word.kind, self._last_word.body)
        except BaseException:
            log.critical("the bus thread ends on an error; controllers see the heartbeat stop", exc_info=True)
            raise
        finally:
            self._close_sockets()

    def _close_sockets(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        self._context.term()  # waits for LINGER at most

    def _send_queued(self) -> None:
        while self._queue:
            item = self._queue.popleft()
            if isinstance(item, Record):
                self._publish("result", item.body)
                self._published(item)
            elif isinstance(item, Message):
                self._publish(item.kind, item.body)
            else:
                self._reply(item.routing_id, item.frames)

    def _publish(self, kind: str, body: bytes) -> None:
        pub = self._sockets.get("publish")
        if pub is not None:
            pub.send_multipart([self._topics[kind], body], zmq.NOBLOCK)

    def _serve_commands(self, router: zmq.Socket[bytes]) -> None:
        for _ in range(MAX_COMMANDS_A_TURN):
            try:
                frames = router.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            routing_id = bytes(frames[0].buffer)
            body = bytes(frames[1].buffer) if len(frames) > 1 else b""
            reply = self._serve(routing_id, _user_id(frames[0]), body)
            if reply is not None:
                self._reply(routing_id, reply)

    def _reply(self, routing_id: bytes, frames: list[bytes]) -> None:
        router = self._sockets.get("commands")
        if router is None:
            return
        try:
            router.send_multipart([routing_id, *frames], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self.unsent_replies += 1


def _user_id(frame: Any) -> str | None:
    """The name that the authenticator gave the peer's key; None without keys."""
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return None
