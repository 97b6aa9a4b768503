"""`/metrics` for Prometheus. Everything is read when it is scraped, from counters that are kept anyway."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from edge_app.monitor.view import View
from edge_app.verdict import Mode, PlanKind, PowerMode, Reason

JOURNAL = {
    "journal_bytes": "Size of the journal's file.",
    "evidence_bytes": "Size of all pictures kept.",
    "free_bytes": "Free space on the journal's disk.",
}
DROPS = {
    "journal_lost": ("journal", "Results that the journal could not keep."),
    "evidence_dropped": ("evidence", "Pictures that were not kept."),
}
WIRE = {
    "dropped": "Results that found the bus's queue full; they are in the journal.",
    "connections_refused": "Connections that were turned away.",
    "commands_refused": "Commands that were turned away.",
    "unsent_replies": "Replies whose client was gone or did not read.",
}


class LineCollector(Collector):
    """Metrics of one line; names begin with `edge_app_`, times are seconds."""

    def __init__(self, view: View) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        """One scrape."""
        state = self._view.now()
        vitals = self._view.watched.outlet.vitals()
        yield InfoMetricFamily("edge_app", "Which node, and what it runs.", {
            "node": state["node"], "epoch": state["epoch"], "software": state["software"],
            "recipe": state["recipe"]["name"], "recipe_rev": state["recipe"]["rev"],
            "model": state["model"]["name"], "soc": state["model"]["soc"] or "",
            "simulated": str(state["simulated"]).lower(),
        })  # fmt: skip
        yield from _results(state["counts"])
        yield from self._times(state)
        yield from _placement(state)
        yield from _zones(state["zones"])
        yield from _wire(vitals, state["link"])
        yield from _journal(vitals)
        yield from _condition(state)

    def _times(self, state: Mapping[str, Any]) -> Iterator[Metric]:
        histograms = dict(self._view.histograms())
        latency = HistogramMetricFamily("edge_app_latency_seconds", "From capture to result, of triggers taken up.")
        latency.add_metric([], *histograms.pop("total"))
        yield latency
        stages = HistogramMetricFamily("edge_app_stage_seconds", "Time of a frame in one stage.", labels=["stage"])
        for stage, histogram in histograms.items():
            stages.add_metric([stage], *histogram)
        yield stages
        deadline_us = state["latency"]["deadline_us"]
        if deadline_us is not None:
            yield GaugeMetricFamily("edge_app_deadline_seconds", "Later is UNKNOWN/LATE.", deadline_us / 1e6)


def _results(counts: Mapping[str, Any]) -> Iterator[Metric]:
    yield CounterMetricFamily("edge_app_triggers", "Triggers that came in.", counts["triggers"])
    results = CounterMetricFamily("edge_app_results", "Sealed results.", labels=["verdict", "reason"])
    known = {Reason.OK: counts["pass"], Reason.DEFECT: counts["fail"]}
    for reason in Reason:  # all of them, from the start: a rate needs the zero before the first one
        count = known.get(reason, counts["unknown_by_reason"].get(reason.value, 0))
        results.add_metric([reason.verdict.value, reason.value], count)
    yield results
    yield GaugeMetricFamily("edge_app_in_flight", "Triggers without a result yet.", counts["in_flight"])
    yield GaugeMetricFamily("edge_app_lost_triggers", "Triggers that have had no result for 10 s.", counts["lost"])


def _placement(state: Mapping[str, Any]) -> Iterator[Metric]:
    sched = state["sched"]
    yield _one_of("edge_app_mode", "What the node is doing.", "mode", [mode.value for mode in Mode], state["mode"])
    plans = [plan.value for plan in PlanKind]
    yield _one_of("edge_app_plan", "Where the last frame was placed.", "plan", plans, sched["plan"])
    modes = [mode.value for mode in PowerMode]
    yield _one_of("edge_app_power_mode", "HTP power mode.", "power_mode", modes, sched["power_mode"])
    reason = GaugeMetricFamily("edge_app_sched_reason", "Why placed so: 1 for the reason in force.", labels=["reason"])
    reason.add_metric([sched["reason"]], 1)
    yield reason
    yield GaugeMetricFamily("edge_app_admission_rate", "Share of triggers inspected.", sched["rate"])


def _zones(zones: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    names = ["zone", "group"]
    temps = GaugeMetricFamily("edge_app_temperature_celsius", "Absent where it can't be believed.", labels=names)
    trips = GaugeMetricFamily("edge_app_trip_celsius", "Trip point that the scheduler takes.", labels=names)
    believed = GaugeMetricFamily("edge_app_zone_believed", "0: the zone counts as hot.", labels=[*names, "state"])
    for zone in zones:
        labels = [zone["name"], str(zone["group"])]
        if zone["temp_c"] is not None:
            temps.add_metric(labels, zone["temp_c"])
        trips.add_metric(labels, zone["trip_c"])
        believed.add_metric([*labels, str(zone["state"])], float(zone["temp_c"] is not None))
    yield from (temps, trips, believed)


def _wire(vitals: Mapping[str, Any], link: Mapping[str, int]) -> Iterator[Metric]:
    for name, text in WIRE.items():
        yield CounterMetricFamily(f"edge_app_wire_{name}", text, vitals["wire"][name])
    peers = GaugeMetricFamily("edge_app_wire_peers", "Connected to each socket.", labels=["socket"])
    for socket, count in link.items():
        peers.add_metric([socket], count)
    yield peers
    yield GaugeMetricFamily("edge_app_last_seq", "Of the result handed to the wire last.", vitals["last_seq"])


def _journal(vitals: Mapping[str, Any]) -> Iterator[Metric]:
    if vitals["disk"]["journal_bytes"] is not None:  # there is one: without it nothing is behind or broken
        yield GaugeMetricFamily("edge_app_journal_working", "1: results are kept.", float(vitals["journal"]))
        yield GaugeMetricFamily("edge_app_durable_seq", "Results up to it are on the disk.", vitals["durable_seq"])
    for name, text in JOURNAL.items():
        if vitals["disk"][name] is not None:
            yield GaugeMetricFamily(f"edge_app_{name}", text, vitals["disk"][name])
    for name, (what, text) in DROPS.items():
        yield CounterMetricFamily(f"edge_app_{what}_lost", text, vitals["disk"][name])


def _condition(state: Mapping[str, Any]) -> Iterator[Metric]:
    alarms = GaugeMetricFamily("edge_app_alarm", "1: the alarm stands.", labels=["alarm", "acked"])
    for alarm in state["alarms"]:
        alarms.add_metric([alarm["alarm"], str(alarm["acked"]).lower()], 1)
    yield alarms
    degraded = GaugeMetricFamily("edge_app_degraded", "1: this is not as configured.", labels=["what"])
    for what in state["degraded"]:
        degraded.add_metric([what], 1)
    yield degraded
    yield CounterMetricFamily("edge_app_monitor_missed", "Results no histogram here has.", state["monitor"]["missed"])
    yield GaugeMetricFamily("edge_app_uptime_seconds", "Since the start.", state["uptime_us"] / 1e6)


def _one_of(name: str, text: str, label: str, all_values: Iterable[str], present: str) -> Metric:
    """1 for the present value and 0 for all others, so that a chart shows how long each one stood."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for value in all_values:
        family.add_metric([value], float(value == present))
    return family


class MetricsPage:
    """`/metrics`: this line, and the process (memory, processor time, open files)."""

    def __init__(self, view: View) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(LineCollector(view))
        ProcessCollector(registry=self._registry)

    def routes(self) -> Iterable[web.AbstractRouteDef]:
        """See server.Page."""
        return [web.get("/metrics", self._scrape)]

    async def _scrape(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})
