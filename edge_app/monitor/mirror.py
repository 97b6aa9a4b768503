"""The mirror's own screen: the live picture, the label, how sure it is, and what the gate is doing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from edge_app.clock import monotonic_us
from edge_app.deciding import DecisionSealer
from edge_app.line import Line
from edge_app.monitor.live import LiveFrames
from edge_app.monitor.server import event, packaged, stream
from edge_app.motion import MotionGate
from edge_app.verdict import Reason

PERIOD_S = 0.2
FRAME_S = 0.1
GONE_S = 5.0
"""Without a picture for so long, a stream of pictures ends: it must not stand there as if it were live."""
MOST_SHOWN = 3
BOUNDARY = "frame"
WORDS = {
    Reason.OK: "",
    Reason.MARGINAL: "not sure",
    Reason.NO_PART: "nobody is there",
    Reason.BAD_IMAGE: "too dark to see",
    Reason.CAMERA_LOST: "the camera is gone",
    Reason.STALE_FRAME: "the camera has stopped",
    Reason.INCOMPLETE_FRAME: "the camera sends broken pictures",
    Reason.RUNTIME_FAULT: "the processor has failed",
    Reason.INVALID_OUTPUT: "the model gives nothing usable",
    Reason.LATE: "too slow to follow",
    Reason.OVERRUN: "too slow to follow",
    Reason.OVERLOAD: "too busy to follow",
    Reason.NOT_RUNNING: "stopped",
}
"""What the screen says in place of a label."""
NO_PICTURE = (Reason.CAMERA_LOST, Reason.STALE_FRAME)
"""Whatever picture came last is not what stands before the mirror."""


@dataclass(frozen=True)
class Mirror:
    """What the page looks at. Everything here can be asked at any time without waiting."""

    line: Line
    sealer: DecisionSealer
    labels: tuple[str, ...]
    gate: MotionGate | None
    camera_trouble: Callable[[], str | None]
    simulated: bool


class MirrorPage:
    """`/mirror`, its style and script, `/mirror/events`, and `/mirror.mjpg` for embedding."""

    def __init__(self, mirror: Mirror, live: LiveFrames) -> None:
        self._mirror, self._live = mirror, live

    def routes(self) -> Iterable[web.AbstractRouteDef]:
        """See server.Page."""
        return [
            web.get("/mirror", packaged("mirror.html", "text/html")),
            web.get("/mirror.css", packaged("mirror.css", "text/css")),
            web.get("/mirror.js", packaged("mirror.js", "text/javascript")),
            web.get("/mirror/events", self._events),
            web.get("/mirror.mjpg", self._video),
        ]

    async def _events(self, request: web.Request) -> web.StreamResponse:
        return await stream(request, "text/event-stream", self._states)

    async def _states(self) -> AsyncIterator[bytes]:
        while True:
            yield event(state_of(self._mirror, monotonic_us()))
            await asyncio.sleep(PERIOD_S)

    async def _video(self, request: web.Request) -> web.StreamResponse:
        kind = f"multipart/x-mixed-replace; boundary={BOUNDARY}"
        # A page of another server of this machine may embed it, no other site's. Which it is the browser says, and no
        # page can; the policy `same-site` keeps Chromium from showing it to 127.0.0.1 on another port, too.
        near = request.headers.get("Sec-Fetch-Site") in ("same-site", "same-origin")
        policy = "cross-origin" if near else "same-origin"
        return await stream(request, kind, self._frames, Cross_Origin_Resource_Policy=policy)

    async def _frames(self) -> AsyncIterator[bytes]:
        """Each new frame once. A browser shows a part when the next one begins, so each ends with its boundary.

        Raises:
            ConnectionError: no picture comes any more. Cut off, and not ended, a stream is an error to browsers.
        """
        yield f"--{BOUNDARY}\r\n".encode()
        last, seen_us = 0, monotonic_us()
        while True:
            latest = await asyncio.to_thread(self._live.latest)
            now_us = monotonic_us()
            if latest is not None:
                seen_us = now_us
            elif now_us - seen_us > GONE_S * 1e6:
                raise ConnectionError("no picture comes from the camera")
            if latest is not None and latest[0] != last:
                last, jpeg = latest
                head = f"Content-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n\r\n"
                yield head.encode() + jpeg + f"\r\n--{BOUNDARY}\r\n".encode()
            await asyncio.sleep(FRAME_S)


def state_of(mirror: Mirror, now_us: int) -> dict[str, Any]:
    """What the screen shows, as plain data."""
    following, effort = mirror.sealer.following, mirror.sealer.effort
    told, average = following.told, following.average
    best: list[tuple[str, float]] = []
    if average is not None and mirror.sealer.is_current(now_us):
        order = average.argsort()[::-1][:MOST_SHOWN]
        best = [(mirror.labels[int(k)], round(float(average[k]), 3)) for k in order]
    named = None if told is None or told.label is None else mirror.labels[told.label]
    trouble = mirror.camera_trouble()
    words = "looking" if told is None else WORDS.get(told.reason, told.detail)
    if trouble and named is None and (told is None or told.reason not in NO_PICTURE):
        words = WORDS[Reason.CAMERA_LOST]  # where no label stood, there was no other decision to make
    return {
        "mode": mirror.line.mode.value,
        "reason": None if told is None else told.reason.value,
        "label": named,
        "confidence": dict(best).get(named, 0.0) if named is not None else None,
        "words": words,
        "detail": trouble or ("" if told is None or told.reason is Reason.NO_PART else told.detail),
        "remark": following.remark,
        "stable_s": None if told is None else round((now_us - told.since_us) / 1e6, 1),
        "classes": [{"label": label, "score": score} for label, score in best],
        "gate": None if mirror.gate is None or mirror.gate.last is None else mirror.gate.last.value,
        "no_picture": told is not None and told.reason in NO_PICTURE,
        "frame_age_s": None if following.now_us is None else round((now_us - following.now_us) / 1e6, 1),
        "plan": mirror.line.placement.plan.value,
        "power_mode": mirror.line.placement.power_mode.value,
        "frames": effort.frames,
        "inferences": effort.inferences,
        "simulated": mirror.simulated,
    }
