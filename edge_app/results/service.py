"""Answers commands: what the results side knows itself, the application's handlers, and the cache of replies."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from edge_app import clock
from edge_app.results import wire
from edge_app.results.archive import Archive
from edge_app.results.auth import Client
from edge_app.results.bus import Answer
from edge_app.results.commands import (
    COMMANDS,
    Code,
    Deferred,
    Handler,
    RefusedError,
    Reply,
    Request,
    check_request,
    parse_request,
)
from edge_app.results.refusals import RateLimit

log = logging.getLogger(__name__)
TURNED_AWAY = (Code.BAD_REQUEST, Code.UNKNOWN_COMMAND, Code.FORBIDDEN, Code.BUSY)
"""What a well-meant client does not get; enough of them are an alarm."""
READING = ("replay", "epochs", "image")
"""What a client misses must not wait for a self-test, or for a model that is being stored."""
OutcomeT = TypeVar("OutcomeT")
CACHED_REPLIES = 256
CACHE_AGE_US = 600_000_000


class ReplyCache:
    """Replies to commands that change something, by client and request id: a retry gets the first answer's bytes.

    A reply that is still being made is held as PENDING. Shared by the bus and the threads that make replies.
    """

    PENDING: list[bytes] = []  # noqa: RUF012 - a mark, never changed

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._replies: OrderedDict[tuple[str, str], tuple[int, bytes, list[bytes]]] = OrderedDict()

    def get(self, request: Request, now_us: int) -> list[bytes] | None:
        """The earlier reply, or None.

        Raises:
            RefusedError: CONFLICT, if the id came with another command before.
        """
        with self._lock:
            known = self._replies.get((request.client, request.request_id))
        if known is None or now_us - known[0] > CACHE_AGE_US:
            return None
        if known[1] != _content(request):
            raise RefusedError(Code.CONFLICT, "this request_id was used for another command; make ids unique")
        return known[2]

    def put(self, request: Request, reply: list[bytes], now_us: int) -> None:
        """Keeps a reply; the oldest goes when there are too many."""
        key = (request.client, request.request_id)
        with self._lock:
            self._replies[key] = (now_us, _content(request), reply)
            self._replies.move_to_end(key)
            while len(self._replies) > CACHED_REPLIES:
                self._replies.popitem(last=False)

    def forget(self, request: Request) -> None:
        """The command came to nothing: it may be tried again."""
        with self._lock:
            self._replies.pop((request.client, request.request_id), None)


def _content(request: Request) -> bytes:
    """What a request asks for, whatever the order of its fields; short, since it is kept."""
    return hashlib.sha256(json.dumps([request.command, request.args], sort_keys=True).encode()).digest()


class Service:
    """One call a command: checks it, finds the handler, makes the reply.

    Args:
        handlers: by command; what is not there is answered UNAVAILABLE.
        client: who a user id is; raises RefusedError if it may not command at all.
        mode: the node's mode, told with every error.
        archive: where READING is done.
        works: where all else is done that takes its time.
        send: hands such a reply to the bus.
        turned_away: told of each command that was not one, or not allowed, or one too many.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        client: Callable[[str | None], Client],
        mode: Callable[[], str],
        archive: Archive,
        works: Archive,
        send: Callable[[Answer], None],
        turned_away: Callable[[], None],
    ) -> None:
        if unknown := set(handlers) - set(COMMANDS):
            raise ValueError(f"handlers for commands that are not in the table: {sorted(unknown)}")
        self._handlers = dict(handlers)
        self._client = client
        self._mode = mode
        self._archive, self._works = archive, works
        self._send = send
        self._turned_away = turned_away
        self._cache = ReplyCache()
        self._rate = RateLimit()

    def serve(self, routing_id: bytes, user: str | None, frame: bytes) -> list[bytes] | None:
        """The reply's frames, or None if they come later. Never raises for what a client sent."""
        request_id: str | None = None
        try:
            data = parse_request(frame)
            request_id = data["request_id"]
            if not self._rate.admits(user or routing_id):
                raise RefusedError(Code.BUSY, "too many commands; ask again later")
            return self._answer(data, routing_id, self._client(user))
        except RefusedError as refusal:
            if refusal.code in TURNED_AWAY:
                self._turned_away()
            return [self._error(request_id, refusal)]

    def _answer(self, data: Mapping[str, Any], routing_id: bytes, client: Client) -> list[bytes] | None:
        request = check_request(data, client.name, client.role)
        changes = COMMANDS[request.command].changes
        if changes:
            cached = self._cache.get(request, clock.monotonic_us())
            if cached is not None:
                return cached or None  # pending: the one answer comes when it is ready
        outcome = self._guarded(request, self._handler(request))
        if isinstance(outcome, Deferred):
            self._defer(request, routing_id, outcome, changes=changes)
            return None
        reply = self._guarded(request, partial(reply_frames, request, outcome))
        if changes:
            self._cache.put(request, reply, clock.monotonic_us())
        return reply

    def _handler(self, request: Request) -> Callable[[], Reply | Deferred]:
        handler = self._handlers.get(request.command)
        if handler is None:
            raise RefusedError(Code.UNAVAILABLE, f"{request.command} is not served by this node")
        return lambda: handler(request)

    def _guarded(self, request: Request, work: Callable[[], OutcomeT]) -> OutcomeT:
        """Whatever goes wrong in a handler is an answer; the details are in the log alone."""
        try:
            return work()
        except RefusedError:
            raise
        except Exception as error:
            log.exception("command %s failed", request.command)
            raise RefusedError(Code.INTERNAL, f"{type(error).__name__}; see the node's log") from error

    def _defer(self, request: Request, routing_id: bytes, deferred: Deferred, *, changes: bool) -> None:
        def job() -> None:
            try:
                frames = self._guarded(request, lambda: reply_frames(request, deferred.work()))
                if changes:
                    self._cache.put(request, frames, clock.monotonic_us())
            except RefusedError as refusal:
                self._cache.forget(request)
                frames = [self._error(request.request_id, refusal)]
            self._send(Answer(routing_id, frames))

        if changes:
            self._cache.put(request, ReplyCache.PENDING, clock.monotonic_us())
        if not (self._archive if request.command in READING else self._works).submit(job):
            self._cache.forget(request)
            raise RefusedError(Code.BUSY, "too many commands wait; ask again later")

    def _error(self, request_id: str | None, refusal: RefusedError) -> bytes:
        return wire.encode(
            {
                "v": wire.VERSION,
                "ok": False,
                "request_id": request_id,
                "code": refusal.code,
                "message": refusal.message,
                "mode": self._mode(),
                **refusal.more,
            }
        )


def reply_frames(request: Request, reply: Reply) -> list[bytes]:
    """A reply as frames: JSON, and the picture if there is one."""
    head = {"v": wire.VERSION, "ok": True, "request_id": request.request_id, "command": request.command}
    body = wire.encode({**head, **reply.fields})
    if reply.raw is not None:
        body = body[:-1] + b"," + reply.raw + b"}"
    return [body] if reply.blob is None else [body, reply.blob]
