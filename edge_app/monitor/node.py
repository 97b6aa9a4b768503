"""The monitor of one node: feed, view and server, put together."""

from __future__ import annotations

import logging
from collections.abc import Callable

from edge_app.config.monitor import Monitor as MonitorSection
from edge_app.deciding import DecisionSealer
from edge_app.errors import BusError
from edge_app.governor import Governor
from edge_app.line import Line
from edge_app.monitor.access import read_token
from edge_app.monitor.feed import Feed
from edge_app.monitor.live import LiveFrames
from edge_app.monitor.metrics import MetricsPage
from edge_app.monitor.mirror import Mirror, MirrorPage
from edge_app.monitor.operator import OperatorPage
from edge_app.monitor.pictures import Pictures
from edge_app.monitor.server import Page, Server
from edge_app.monitor.view import LOOK_S, View, Watched, WatchedZone
from edge_app.placed import Placed
from edge_app.results import Outlet

log = logging.getLogger(__name__)
ALARM = "MONITOR_FAILED"


class Monitor:
    """Made before the line, which sends its results through `feed`; started with it.

    Args:
        section: `monitor:` of the pipeline, with an address.
        outlet: of the node.
        pictures: whether pictures of what did not pass may be shown.

    Raises:
        ConfigError: address or token can't be used, or other machines could look without one.
    """

    def __init__(self, section: MonitorSection, outlet: Outlet, *, pictures: bool) -> None:
        self._outlet = outlet
        self._pictures = Pictures() if pictures else None
        self._live = LiveFrames() if section.live else None
        self.feed = Feed(outlet, self._pictures, self._live)
        token = None if section.token_file is None else read_token(section.token_file)
        self.view: View | None = None
        """Once started."""
        self.server = Server(section.http or "", token, self._look, LOOK_S, self._died)

    def start(
        self,
        line: Line,
        placed: Callable[[], Placed],
        deadline_ms: float | None,
        camera_trouble: Callable[[], str | None],
    ) -> None:
        """Serves from here on. A page that can't be served is an alarm; the line goes on without it.

        `placed` is the model that is in force, now and later.
        """
        deadline_us = None if deadline_ms is None else round(deadline_ms * 1000)
        self.view = View(
            self.feed, self._pictures, watch(line, self._outlet, placed, deadline_us, camera_trouble)
        )
        if self._pictures is not None:
            self._pictures.start()
        try:
            mirror = self._mirror(line, placed(), camera_trouble)
            self.server.start([OperatorPage(self.view), MetricsPage(self.view), *mirror])
        except BusError as error:
            log.error("%s", error)
            self._outlet.alarm(ALARM, True, error.brief, error.remedy or "restart the node")
            return
        log.info("operator page: %s, metrics: %smetrics", self.server.url, self.server.url)
        if self._live is not None:
            log.info("mirror: %smirror", self.server.url)

    def _mirror(self, line: Line, placed: Placed, camera_trouble: Callable[[], str | None]) -> list[Page]:
        """The mirror's screen, where it is wanted."""
        if self._live is None or not isinstance(line.sealer, DecisionSealer):
            return []
        recipes, simulated = placed.recipes, self._outlet.identity.simulated
        mirror = Mirror(line, line.sealer, recipes.labels, recipes.gate, camera_trouble, simulated)
        return [MirrorPage(mirror, self._live)]

    def close(self) -> None:
        """Ends server and pictures; frames that were borrowed are handed on before."""
        self.server.close()
        if self._pictures is not None:
            self._pictures.close()

    def _died(self, text: str) -> None:
        self._outlet.alarm(ALARM, True, f"the page is gone: {text}", "report it, with the log; restart when convenient")

    def _look(self) -> None:
        if self._live is not None:
            self._live.forget()
        if self.view is not None:
            self.view.look()


def watch(
    line: Line,
    outlet: Outlet,
    placed: Callable[[], Placed],
    deadline_us: int | None,
    camera_trouble: Callable[[], str | None],
) -> Watched:
    """What the view looks at: with zones and the scheduler's words, where there are any."""
    governor, sampler = placed().placer, placed().sampler
    if not isinstance(governor, Governor):
        return Watched(line, outlet, deadline_us, camera_trouble=camera_trouble)
    return Watched(
        line,
        outlet,
        deadline_us,
        lambda: watched_zones(placed()),
        readings=(lambda: None) if sampler is None else (lambda: sampler.latest),
        stale_us=governor.stale_us,
        sched_detail=lambda: sched_detail(placed()),
        camera_trouble=camera_trouble,
    )


def watched_zones(placed: Placed) -> tuple[WatchedZone, ...]:
    """Zones with their limits: those that the scheduler knows by now."""
    if placed.sampler is None or not isinstance(placed.placer, Governor):
        return ()
    zones, limits = placed.sampler.zones, placed.placer.limits
    known = [(zone, limits[zone.name]) for zone in zones if zone.name in limits]
    return tuple(WatchedZone(zone, limit.warm_c, limit.hot_c, limit.trip_c) for zone, limit in known)


def sched_detail(placed: Placed) -> str:
    """The scheduler's words for where frames are placed."""
    return placed.placer.decision.detail if isinstance(placed.placer, Governor) else ""
