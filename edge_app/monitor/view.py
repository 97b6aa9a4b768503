"""The line as it stands now, as plain data for pages and metrics. Reads counters that the line keeps anyway."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edge_app import clock
from edge_app.line import Line
from edge_app.monitor.feed import Feed
from edge_app.monitor.history import RECENT, History
from edge_app.monitor.pictures import Pictures
from edge_app.results import Outlet
from edge_app.results.alarms import alarm_fields
from edge_app.sealing import Counts
from edge_app.summary import nearest_rank
from edge_app.verdict import Sealed
from edge_app.zones import Zone, ZoneSnapshot, ZoneState

LOOK_S = 0.5
DISAGREE_US = 10_000_000
"""Triggers without a result count as lost once there were more of them than frames in the line for so long."""


@dataclass(frozen=True, slots=True)
class WatchedZone:
    """A thermal zone, and the limits that the scheduler takes for it."""

    zone: Zone
    warm_c: float
    hot_c: float
    trip_c: float


@dataclass(frozen=True)
class Watched:
    """What the view looks at. Everything here can be asked at any time without waiting."""

    line: Line
    outlet: Outlet
    deadline_us: int | None
    zones: Callable[[], tuple[WatchedZone, ...]] = tuple
    readings: Callable[[], ZoneSnapshot | None] = lambda: None
    stale_us: int = 5_000_000
    """Older readings can't be believed: `scheduler.stale_s`."""
    sched_detail: Callable[[], str] = lambda: ""
    """Why the scheduler decided as it did, in words."""
    camera_trouble: Callable[[], str | None] = lambda: None


class View:
    """Keeps the history, and gives the line as it stands. `look` belongs to one thread, all else to any.

    Args:
        feed: where results come by.
        pictures: None: none are shown.
        watched: the running line.
    """

    def __init__(self, feed: Feed, pictures: Pictures | None, watched: Watched) -> None:
        self._feed, self.pictures, self._watched = feed, pictures, watched
        self._lock = threading.Lock()
        self._history = History()
        self._open: deque[tuple[int, int]] = deque()
        """When, and how many triggers had no result and were in no slot."""
        self._started_us = clock.monotonic_us()

    def look(self) -> None:
        """Takes in what has happened since the last call."""
        results, now_us = self._feed.drain(), clock.monotonic_us()
        counts = self._watched.line.sealer.counts()
        open_triggers = counts.triggers - counts.sealed - self._watched.line.queue_depth
        with self._lock:
            self._history.add(results, now_us)
            self._open.append((now_us, open_triggers))
            while self._open[0][0] < now_us - DISAGREE_US:
                self._open.popleft()

    def now(self) -> dict[str, Any]:
        """The operator page's document; see the keys below."""
        watched = self._watched
        counts = watched.line.sealer.counts()
        identity = watched.outlet.identity
        with self._lock:
            now_us = clock.monotonic_us()
            trend, pareto = self._history.trend(now_us), self._history.pareto(now_us)
            rejected, missed = self._history.rejected(), self._history.missed
        return {
            "t_us": clock.utc_us(),
            "node": identity.node,
            "epoch": identity.epoch,
            "software": identity.software,
            "simulated": identity.simulated,
            "recipe": {"name": identity.recipe.name, "rev": identity.recipe.rev},
            "model": {"name": identity.model.version or identity.model.name, "soc": identity.model.soc},
            "mode": watched.line.mode,
            "uptime_us": now_us - self._started_us,
            "clock": {"source": identity.clock.source, "err_us": identity.clock.err_us},
            "link": watched.outlet.connections,
            "camera_trouble": watched.camera_trouble(),
            "counts": self._counts(counts),
            "trend": trend,
            "pareto": [{"verdict": verdict, "cause": cause, "count": count} for verdict, cause, count in pareto],
            "latency": self._latency(),
            "sched": self._sched(),
            "zones": self._zones(),
            "degraded": sorted({*watched.line.degraded, *watched.outlet.degraded}),
            "alarms": [alarm_fields(alarm) for alarm in watched.outlet.standing_alarms()],
            "last": self._last(rejected),
            "recent": [self._rejected(sealed) for sealed in rejected[:RECENT]],
            "monitor": {"missed": missed, "pictures_failed": self.pictures.failed if self.pictures else 0},
        }

    def _counts(self, counts: Counts) -> dict[str, Any]:
        with self._lock:
            lost = max(0, min((lost for _, lost in self._open), default=0))
        return {
            "triggers": counts.triggers,
            "pass": counts.passed,
            "fail": counts.failed,
            "unknown": counts.unknown,
            "unknown_by_reason": counts.unknown_by_reason,
            "in_flight": counts.triggers - counts.sealed,
            "lost": lost,
        }

    def _latency(self) -> dict[str, Any]:
        taken = sorted(self._watched.line.sealer.latencies_us())
        return {
            "deadline_us": self._watched.deadline_us,
            "p50_us": nearest_rank(taken, 0.50) if taken else None,
            "p99_us": nearest_rank(taken, 0.99) if taken else None,
            "worst_us": taken[-1] if taken else None,
            "over": len(taken),
        }

    def _sched(self) -> dict[str, Any]:
        placement = self._watched.line.placement
        return {
            "plan": placement.plan,
            "power_mode": placement.power_mode,
            "rate": placement.rate,
            "reason": placement.reason,
            "detail": self._watched.sched_detail(),
        }

    def _zones(self) -> list[dict[str, Any]]:
        snapshot = self._watched.readings()
        stale = snapshot is not None and clock.monotonic_us() - snapshot.t_us > self._watched.stale_us
        readings = {} if snapshot is None else {reading.name: reading for reading in snapshot.readings}
        zones = []
        for watched in self._watched.zones():
            reading = readings.get(watched.zone.name)
            zones.append({
                "name": watched.zone.name,
                "group": watched.zone.group,
                "temp_c": None if reading is None or stale else reading.known_c,
                "state": ZoneState.UNREADABLE if reading is None else ZoneState.STALE if stale else reading.state,
                "warm_c": watched.warm_c,
                "hot_c": watched.hot_c,
                "trip_c": watched.trip_c,
            })  # fmt: skip
        return zones

    def _last(self, rejected: list[Sealed]) -> dict[str, Any] | None:
        """The newest result of which there is a picture; without pictures, the newest result."""
        for sealed in rejected:
            if self.pictures is not None and self.pictures.get(sealed.seq) is not None:
                return self._rejected(sealed)
        return self._rejected(rejected[0]) if rejected else None

    def _rejected(self, sealed: Sealed) -> dict[str, Any]:
        picture = self.pictures.get(sealed.seq) if self.pictures is not None else None
        return {
            "seq": sealed.seq,
            "trigger_id": sealed.trigger_id,
            "part_id": sealed.part_id,
            "verdict": sealed.verdict,
            "reason": sealed.reason,
            "detail": sealed.detail,
            "t_done_us": sealed.t_done_us,
            "boxes": [
                {"label": defect.label, "score": round(float(defect.score), 3), "box_px": [*map(float, defect.box_px)]}
                for defect in sealed.defects
            ],
            "picture": None if picture is None else {"width": picture.width, "height": picture.height},
        }

    # -- for metrics ------------------------------------------------------------------------------------------------

    @property
    def watched(self) -> Watched:
        """The running line."""
        return self._watched

    def histograms(self) -> Mapping[str, tuple[list[tuple[str, float]], float]]:
        """By stage, and `total`: cumulative counts by upper bound in seconds, and the sum in seconds."""
        with self._lock:
            found = {"total": self._history.latency, **self._history.stages}
            return {name: (one.cumulative(), one.sum_us / 1e6) for name, one in found.items()}
