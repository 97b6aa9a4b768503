"""The HTTP server beside the line: one thread with its own event loop, read-only, bounded.

A page is anything with `routes()`; add one to the list that the application passes. Handlers run on the server's loop
and must not wait for the line: they read what the line keeps anyway.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from importlib import resources
from typing import Any, Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from edge_app import threads
from edge_app.errors import BusError, EdgeAppError
from edge_app.monitor.access import Access, parse_address

log = logging.getLogger(__name__)
http_log = logging.getLogger(f"{__name__}.http")
http_log.addFilter(lambda record: not isinstance((record.exc_info or (None, None))[1], HttpProcessingError))
"""What is no HTTP is answered with 400: a port scan must not fill the log with tracebacks."""

START_S = 10.0
CLOSE_S = 1.0
WRITE_S = 10.0
"""A browser that takes nothing for so long is cut off."""
MOST_STREAMS = 32
MOST_CONNECTIONS = 96
"""Of all kinds. Whoever connects and says nothing must not use up the process's file descriptors."""
KEEPALIVE_S = 15.0
SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
QUIET_S = 60.0
"""That no connection can be taken is told once in so long."""
MOST_REQUEST_BYTES = 4096
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Page(Protocol):
    """One page, with all that belongs to it."""

    def routes(self) -> Iterable[web.AbstractRouteDef]:
        """What it answers to: GET alone."""


class Server:
    """Serves pages. `start`, then `close`.

    Args:
        address: `ADDRESS:PORT`.
        token: needed for an address that other machines reach.
        tick: called on the server's thread every `tick_s`, whether anybody looks or not.
        died: told what ended the server, should that ever happen before `close`.

    Raises:
        ConfigError: the address is bad, or may not be listened at without a token.
    """

    def __init__(
        self,
        address: str,
        token: str | None,
        tick: Callable[[], None] = lambda: None,
        tick_s: float = 0.5,
        died: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._host, self._port = parse_address(address)
        self._access = Access(self._host, token)
        self._tick, self._tick_s, self._died = tick, tick_s, died
        self._pages: Sequence[Page] = ()
        self._admitted: set[object] = set()
        """Connections on which somebody has asked who may look."""
        self._quiet_until_s = 0.0
        self._thread = threads.daemon(self._run, "monitor")
        self._started = threading.Event()
        self._error: EdgeAppError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self.url = ""
        """Where it listens, once started."""

    def start(self, pages: Sequence[Page]) -> None:
        """Serves these pages. Raises BusError: the port is in use, or the address is not this machine's."""
        self._pages = pages
        self._thread.start()
        if not self._started.wait(START_S):
            raise BusError("the monitor's server did not start", where="monitor.http", got=f"nothing in {START_S:g} s")
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Ends all connections and the thread."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread.is_alive():
            self._thread.join(2 * CLOSE_S)

    @property
    def alive(self) -> bool:
        """Whether the server runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            bug = not isinstance(error, OSError)  # which may be that no file handle is left
            log.error("the monitor's server ends on an error; the line goes on: %r", error, exc_info=bug)
            if self._started.is_set():
                self._died(repr(error))
            else:
                self._error = BusError("the monitor's server did not start", where="monitor.http", got=repr(error))
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(self._tell)
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            logger=http_log,
            shutdown_timeout=CLOSE_S,
            keepalive_timeout=KEEPALIVE_S,
            handler_cancellation=True,  # a stream that has nothing to send would not notice that its browser is gone
        )
        await runner.setup()
        try:
            try:
                site = web.TCPSite(runner, self._host, self._port)
                await site.start()
            except OSError as error:
                self._error = BusError(
                    "the page can't be served there",
                    where="monitor.http",
                    wanted="an address of this machine and a free port",
                    got=f"{self._host}:{self._port}: {error.strerror or error}",
                    remedy="set another port in monitor.http, or end what listens there",
                )
                return
            port = runner.addresses[0][1]
            self.url = f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{port}/"
            self._started.set()
            await self._until_stopped(runner)
        finally:
            await runner.cleanup()

    def _tell(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """asyncio tells of each connection that it has no file handle for, a thousand times a second."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in SCARCE:
            loop.default_exception_handler(context)
        elif loop.time() >= self._quiet_until_s:
            self._quiet_until_s = loop.time() + QUIET_S
            log.error("the pages take no connection: %s", error)

    async def _until_stopped(self, runner: web.AppRunner) -> None:
        assert self._stop is not None
        while not self._stop.is_set():
            self._bound_connections(runner)
            try:
                self._tick()
            except Exception:
                log.exception("the monitor could not look at the line")
            try:
                await asyncio.wait_for(self._stop.wait(), self._tick_s)
            except TimeoutError:
                continue

    def _bound_connections(self, runner: web.AppRunner) -> None:
        """Ends the oldest connections beyond MOST_CONNECTIONS; those of strangers before those who may look."""
        assert runner.server is not None  # it is set up
        connected = runner.server.connections  # the oldest first
        self._admitted.intersection_update(connected)
        too_many = max(0, len(connected) - MOST_CONNECTIONS)
        for connection in sorted(connected, key=self._admitted.__contains__)[:too_many]:
            connection.force_close()

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._guard], client_max_size=MOST_REQUEST_BYTES)
        application.on_response_prepare.append(_add_headers)
        application[STREAMS] = asyncio.Semaphore(MOST_STREAMS)
        application[STOPPING] = self._stopping
        for page in self._pages:
            application.add_routes(page.routes())
        return application

    def _stopping(self) -> bool:
        return self._stop is None or self._stop.is_set()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self._access.check(request)
        self._admitted.add(request.protocol)
        answer: web.StreamResponse = await handler(request)
        return answer


STREAMS = web.AppKey("streams", asyncio.Semaphore)
STOPPING: web.AppKey[Callable[[], bool]] = web.AppKey("stopping")


async def _add_headers(_request: web.Request, answer: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        answer.headers.setdefault(name, value)
    answer.headers.setdefault("Cache-Control", "no-store")


async def stream(
    request: web.Request, content_type: str, parts: Callable[[], AsyncIterator[bytes]], **headers: str
) -> web.StreamResponse:
    """Sends parts (server-sent events, MJPEG) until the browser goes, reads no more, or the node stops.

    Args:
        request: answered by this.
        content_type: of the whole.
        parts: makes the iterator; it paces itself.
        headers: in place of HEADERS, with _ for -.
    """
    streams = request.app[STREAMS]
    if streams.locked():
        raise web.HTTPServiceUnavailable(text=f"{MOST_STREAMS} pages are open already; close one.\n")
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = web.StreamResponse(headers={"Content-Type": content_type, **more})
    async with streams:
        await answer.prepare(request)
        try:
            async for part in parts():
                if request.app[STOPPING]():
                    break
                await asyncio.wait_for(answer.write(part), WRITE_S)
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()
    return answer


def event(document: dict[str, Any]) -> bytes:
    """A server-sent event with JSON data."""
    return b"data: " + json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n\n"


def packaged(name: str, content_type: str) -> Callable[[web.Request], Any]:
    """A handler for a file of this package."""
    body = resources.files(__package__).joinpath(name).read_bytes()

    async def handler(_request: web.Request) -> web.Response:
        headers = {"Cache-Control": "no-cache"}
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=headers)

    return handler
