"""/metrics of a real line: what Prometheus reads is what the line counted, and the dashboard asks for nothing else."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cv2
import pytest
import toys
from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse

from edge_app import clock
from edge_app.app import App, build, make_monitor
from edge_app.config.load import load_pipeline
from edge_app.config.mirror import Decision
from edge_app.monitor.metrics import LineCollector, MetricsPage
from edge_app.monitor.view import View
from edge_app.verdict import Mode, Reason

DASHBOARD = Path(__file__).resolve().parents[3] / "systemd" / "grafana-dashboard.json"


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, toy_model: Path) -> Iterator[App]:
    """A line that has inspected 30 pictures, ten of them bad, with its monitor."""
    folder = tmp_path_factory.mktemp("line")
    (folder / "pictures").mkdir()
    for number in range(30):
        cells = [(2, 2)] if number % 3 == 1 else []
        cv2.imwrite(str(folder / "pictures" / f"{number:02}.png"), toys.detector_picture(cells, seed=number))
    for number, kind in enumerate(("cpu-0-0", "nsp0", "skin")):
        zone = folder / "sys" / "class" / "thermal" / f"thermal_zone{number}"
        zone.mkdir(parents=True)
        for name, text in (("type", f"{kind}-thermal"), ("temp", "41500"), ("trip_point_0_temp", "95000"),
                           ("trip_point_0_type", "passive")):  # fmt: skip
            (zone / name).write_text(text)
    (folder / "line.yaml").write_text(f"""\
camera: {{type: folder, path: pictures, loop: false}}
model: {{path: {toy_model}}}
runtime: {{provider: cpu, threads: 1}}
scheduler: {{thermal: always, sysfs_root: sys, stale_s: 1000}}
limits: {{pacing: offline}}
monitor: {{http: "127.0.0.1:0"}}
results:
  publish: "tcp://127.0.0.1:*"
  commands: null
  journal: {{path: results.db}}
  evidence: {{path: evidence, free_mib: 0}}
""")
    app = build(load_pipeline(folder / "line.yaml"), "line")
    app.start()
    assert app.wait(60)
    yield app
    app.close()


@pytest.fixture
def view(ended: App) -> View:
    assert ended.monitor is not None
    assert ended.monitor.view is not None
    end = time.monotonic() + 30
    while ended.monitor.view.histograms()["total"][0][-1][1] < 30:  # the server's thread looks twice a second
        assert time.monotonic() < end, "results were not taken in"
        time.sleep(0.05)
    return ended.monitor.view


def scrape(view: View, accept: str = "") -> tuple[dict[tuple[str, frozenset[tuple[str, str]]], float], str]:
    """Value by name and labels, and the content type."""
    (route,) = MetricsPage(view).routes()
    request = make_mocked_request("GET", "/metrics", headers={"Accept": accept})
    answer = asyncio.run(route.handler(request))  # type: ignore[attr-defined]
    reader = parse_open_metrics if "openmetrics" in accept else parse
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in reader(answer.body.decode())
        for sample in family.samples
    }, answer.headers["Content-Type"]


def value(samples: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def test_what_the_line_counted(view: View) -> None:
    samples, content_type = scrape(view)
    assert content_type.startswith("text/plain")
    assert value(samples, "edge_app_triggers_total") == 30
    assert value(samples, "edge_app_results_total", verdict="PASS", reason="OK") == 20
    assert value(samples, "edge_app_results_total", verdict="FAIL", reason="DEFECT") == 10
    by_reason = {dict(labels)["reason"] for name, labels in samples if name == "edge_app_results_total"}
    assert by_reason == {reason.value for reason in Reason}  # each from the start
    assert value(samples, "edge_app_in_flight") == value(samples, "edge_app_lost_triggers") == 0
    assert value(samples, "edge_app_mode", mode="RUNNING") == 1
    assert sum(value(samples, "edge_app_mode", mode=mode.value) for mode in Mode) == 1
    assert value(samples, "edge_app_plan", plan="cpu") == 1
    assert value(samples, "edge_app_admission_rate") == 1
    assert value(samples, "edge_app_temperature_celsius", zone="cpu-0-0", group="cpu") == 41.5
    assert value(samples, "edge_app_trip_celsius", zone="cpu-0-0", group="cpu") == 95
    assert value(samples, "edge_app_journal_working") == 1
    assert value(samples, "edge_app_wire_dropped_total") == 0
    assert value(samples, "edge_app_monitor_missed_total") == 0
    assert value(samples, "process_resident_memory_bytes") > 1e6


def test_zones_that_nobody_reads_any_more_are_not_shown_as_live(
    view: View, ended: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = ended.placed.sampler
    assert sampler is not None
    sampler.stop()  # or its next reading replaces the one that is looked at here
    seen = clock.monotonic_us()
    for age_us, temp_c, state in ((1_000_000_000, 41.5, "ok"), (1_000_000_001, None, "stale")):
        monkeypatch.setattr(sampler, "latest", replace(sampler.latest, t_us=seen - age_us))
        monkeypatch.setattr(clock, "monotonic_us", lambda: seen)
        zones = {zone["name"]: zone for zone in view.now()["zones"]}
        assert (zones["cpu-0-0"]["temp_c"], zones["cpu-0-0"]["state"]) == (temp_c, state)
        samples, _ = scrape(view)
        believed = value(samples, "edge_app_zone_believed", zone="cpu-0-0", group="cpu", state=state)
        assert believed == float(temp_c is not None)
        temps = [dict(labels) for name, labels in samples if name == "edge_app_temperature_celsius"]
        assert ({"zone": "cpu-0-0", "group": "cpu"} in temps) is (temp_c is not None)


def test_histograms_hold_every_frame(view: View) -> None:
    samples, _ = scrape(view)
    for stage in ("wait", "guard", "preprocess", "infer", "decode"):
        assert value(samples, "edge_app_stage_seconds_count", stage=stage) == 30
        assert value(samples, "edge_app_stage_seconds_bucket", stage=stage, le="+Inf") == 30
    assert value(samples, "edge_app_latency_seconds_count") == 30
    infer = value(samples, "edge_app_stage_seconds_sum", stage="infer")
    assert 0 < infer < value(samples, "edge_app_latency_seconds_sum")


def test_open_metrics_too(view: View) -> None:
    samples, content_type = scrape(view, "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert value(samples, "edge_app_triggers_total") == 30
    registry = CollectorRegistry()
    registry.register(LineCollector(view))
    assert open_metrics(registry).endswith(b"# EOF\n")


def test_the_dashboard_asks_for_what_there_is(view: View) -> None:
    samples, _ = scrape(view)
    names = {name for name, _ in samples} | {"edge_app_deadline_seconds", "edge_app_degraded", "edge_app_alarm"}
    dashboard = json.loads(DASHBOARD.read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(panels) >= 12
    for expression in asked:
        used = set(re.findall(r"\b(?:edge_app|process)_[a-z_]+", expression))
        assert used, expression
        assert used <= names, expression
    assert {"edge_app_results_total", "edge_app_stage_seconds_bucket", "edge_app_temperature_celsius",
            "edge_app_alarm", "edge_app_wire_dropped_total"} <= {
        name for expression in asked for name in re.findall(r"\bedge_app_[a-z_]+", expression)
    }  # fmt: skip
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_people_are_not_shown_by_default(ended: App) -> None:
    parts = ended.pipeline
    people = parts.model_copy(update={"decision": Decision()})
    asked = people.model_copy(update={"monitor": people.monitor.model_copy(update={"pictures": True})})
    for pipeline, shown in ((parts, True), (people, False), (asked, True)):
        monitor = make_monitor(pipeline, ended.outlet)
        assert monitor is not None
        assert (monitor.feed._pictures is not None) is shown
