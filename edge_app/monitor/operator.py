"""The operator page: one screen that is grey unless something is abnormal, fed twice a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from aiohttp import web

from edge_app.clock import monotonic_us
from edge_app.monitor.server import event, packaged, stream
from edge_app.monitor.view import View

PERIOD_S = 0.5


class OperatorPage:
    """`/`, its style and script, `/events`, and `/picture/EPOCH/SEQ.jpg`."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._event = b""
        self._made_us = 0

    def routes(self) -> Iterable[web.AbstractRouteDef]:
        """See server.Page."""
        return [
            web.get("/", packaged("operator.html", "text/html")),
            web.get("/operator.css", packaged("operator.css", "text/css")),
            web.get("/operator.js", packaged("operator.js", "text/javascript")),
            web.get("/events", self._events),
            web.get("/picture/{epoch}/{seq:[1-9][0-9]{0,15}}.jpg", self._picture),
        ]

    async def _events(self, request: web.Request) -> web.StreamResponse:
        return await stream(request, "text/event-stream", self._states)

    async def _states(self) -> AsyncIterator[bytes]:
        while True:
            yield self._latest()
            await asyncio.sleep(PERIOD_S)

    def _latest(self) -> bytes:
        """Made once a period, however many look."""
        now_us = monotonic_us()
        if now_us - self._made_us > 0.9e6 * PERIOD_S:
            self._event, self._made_us = event(self._view.now()), now_us
        return self._event

    async def _picture(self, request: web.Request) -> web.Response:
        pictures, epoch = self._view.pictures, self._view.watched.outlet.identity.epoch
        picture = None
        if pictures is not None and request.match_info["epoch"] == epoch:
            picture = pictures.get(int(request.match_info["seq"]))
        if picture is None:
            raise web.HTTPNotFound(text="There is no picture of this result any more.\n")
        return web.Response(
            body=picture.jpeg, content_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600, immutable"}
        )
