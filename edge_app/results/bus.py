"""The bus thread: it owns all sockets, and everything that others want sent is handed to it.

PUB never waits for a subscriber: what one of them is too slow for is dropped from that one's queue alone (SNDHWM), and
it asks for a replay. For that reason neither XPUB_NODROP nor CONFLATE is used: with the first, one stalled subscriber
starves the healthy ones, with the second the topic frame is lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import zmq

from edge_app import clock, threads
from edge_app.results import wire
from edge_app.results.auth import Gate
from edge_app.results.record import Record
from edge_app.results.sockets import Sockets

log = logging.getLogger(__name__)

NOBLOCK, MORE_FOLLOWS = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
"""Plain integers: joining two flags costs more than handing over a short message."""
MAX_QUEUED_RESULTS = 4096
MAX_SENT_A_TURN = 256
"""Then heartbeats and commands have their turn, however many results wait."""
MAX_COMMANDS_A_TURN = 32
"""Then results go first again, however many commands wait."""
FLOOD_US = 1_000_000
"""Commands that have waited without an end for so long are dropped, and every commanding connection with them."""


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

    By an eventfd, which costs the frame thread less than a pipe (a sleeping bus thread's wake-up: p50 17 us against 20,
    interleaved on a busy machine), written through ctypes' PyDLL, which keeps the GIL: os.eventfd_write lets go of it,
    and a frame thread then waits for its turn again (measured with one busy thread: p99 10 ms, against 0.08 ms).
    """

    def __init__(self) -> None:
        self.read_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._write = ctypes.PyDLL(None).eventfd_write
        self._write.restype = None
        # Made once: what ctypes converts at each call costs more than the call.
        self._one = (ctypes.c_int(self.read_fd), ctypes.c_uint64(1))
        self._pending = False

    def set(self) -> None:
        """Never blocks: a counter that is full is a woken thread."""
        if not self._pending:
            self._pending = True
            self._write(*self._one)

    def clear(self) -> None:
        """Called before the queue is looked at, so that what comes after is told again."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.read_fd)
        self._pending = False

    def __del__(self) -> None:
        os.close(self.read_fd)  # not before: whoever still had it would write into another file


class Bus:
    """One thread for PUB, ROUTER, handshakes and monitors.

    Args:
        sockets: not open yet.
        gate: served here; None without keys.
        node: `line/station`, for the topics.
        beat: makes a heartbeat's body; called on the bus thread.
        serve: answers a command; called on the bus thread.
        published: told of each result that was handed to PUB, in order; called on the bus thread.
        refused: told how many connections were refused; called on the bus thread.
    """

    def __init__(
        self,
        sockets: Sockets,
        gate: Gate | None,
        node: str,
        beat: Callable[[], bytes],
        serve: Serve,
        published: Callable[[Record], None],
        refused: Callable[[int], None],
    ) -> None:
        self.sockets = sockets
        self._gate = gate
        self._topics = {kind: wire.topic(kind, node) for kind in wire.KINDS}
        self._beat = beat
        self._serve = serve
        self._published = published
        self._refused = refused
        self._queue: deque[Record | Message | Answer] = deque()
        self._wakeup = Wakeup()
        self._beat_now = False
        self._reopen = {"publish": False, "commands": False}
        """Sockets to be made anew; one flag each, so that two wishes at once are both kept."""
        self._quiet_us = 0
        """When no command waited."""
        self._stopping = False
        self._last_word: Message | None = None
        self._thread = threads.daemon(self._run, "bus")
        self.error: BaseException | None = None
        """What ended the thread, if it did not end by itself: nothing is sent any more."""
        self.dropped = 0
        """Results that found the queue full; they are in the journal."""
        self.unsent_replies = 0
        """Replies whose client was gone or did not read."""
        self.last_turn_us = clock.monotonic_us()
        """When the thread last went round; the watchdog looks at it."""

    def start(self) -> None:
        """Starts the thread; the sockets are open."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

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

    def end_connections(self) -> None:
        """Ends every connection; who may come back does so by itself."""
        for key in self._reopen:
            self._reopen[key] = True
        self._wakeup.set()

    def stop(self, last_word: Message | None, timeout_s: float) -> None:
        """Sends what waits, a heartbeat and `last_word`, then closes. A thread that takes too long is left behind."""
        self._last_word = last_word
        self._stopping = True
        self._wakeup.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            log.error("the bus thread did not end within %.1f s", timeout_s)

    # -- the bus thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        poller = self.sockets.poller(self._wakeup.read_fd)
        next_beat_us = self._quiet_us = clock.monotonic_us()
        try:
            while not self._stopping:
                now_us = self.last_turn_us = clock.monotonic_us()
                events = poller.poll(0 if self._queue else max(0, next_beat_us - now_us) // 1000 + 1)
                self._wakeup.clear()
                keys = tuple(key for key, wanted in self._reopen.items() if wanted)
                if keys:
                    for key in keys:
                        self._reopen[key] = False  # before it is done: a wish that comes meanwhile is another one
                    self.sockets.reopen(keys)
                    poller = self.sockets.poller(self._wakeup.read_fd)
                beat_now, self._beat_now = self._beat_now, False
                self._send_queued()
                if beat_now or clock.monotonic_us() >= next_beat_us:
                    self._publish("heartbeat", self._beat())
                    next_beat_us = clock.monotonic_us() + wire.HEARTBEAT_PERIOD_US
                    self._refused(self.sockets.newly_refused())  # those that show by their silence alone
                if any(source != self._wakeup.read_fd for source, _ in events):
                    self._serve_peers()
                else:
                    self._quiet_us = clock.monotonic_us()
            while self._queue:
                self._send_queued()
            self._publish("heartbeat", self._beat())
            if self._last_word is not None:
                self._publish(self._last_word.kind, self._last_word.body)
        except BaseException as error:
            self.error = error
            log.critical("the bus thread ends on an error; controllers see the heartbeat stop", exc_info=True)
            raise
        finally:
            self.sockets.close()

    def _serve_peers(self) -> None:
        """Handshakes, monitors and commands."""
        if self._gate is not None:
            self._gate.serve()
        self._refused(self.sockets.newly_refused())
        self._serve_commands()

    def _send_queued(self) -> None:
        for _ in range(min(len(self._queue), MAX_SENT_A_TURN)):
            item = self._queue.popleft()
            if isinstance(item, Record):
                self._publish("result", item.body)
                self._published(item)
            elif isinstance(item, Message):
                self._publish(item.kind, item.body)
            else:
                self._reply(item.routing_id, item.frames)

    def _publish(self, kind: str, body: bytes) -> None:
        if self.sockets.pub is not None:
            self.sockets.pub.send(self._topics[kind], MORE_FOLLOWS)
            self.sockets.pub.send(body, NOBLOCK)

    def _serve_commands(self) -> None:
        router = self.sockets.router
        for _ in range(MAX_COMMANDS_A_TURN if router is not None else 0):
            assert router is not None
            try:
                frames = router.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                self._quiet_us = clock.monotonic_us()
                return
            routing_id = bytes(frames[0].buffer)
            body = bytes(frames[1].buffer) if len(frames) > 1 else b""
            reply = self._serve(routing_id, _user_id(frames[0]), body)
            if reply is not None:
                self._reply(routing_id, reply)
        if clock.monotonic_us() - self._quiet_us > FLOOD_US and not self._reopen["commands"]:
            log.warning("commands come faster than they can be answered: all that wait are dropped")
            self._reopen["commands"] = True
            self._quiet_us = clock.monotonic_us()

    def _reply(self, routing_id: bytes, frames: list[bytes]) -> None:
        router = self.sockets.router
        if router is None:
            return
        try:
            router.send_multipart([routing_id, *frames], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self.unsent_replies += 1


def _user_id(frame: Any) -> str | None:
    """The public key of the peer, as the gate named it; None without keys."""
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return None
