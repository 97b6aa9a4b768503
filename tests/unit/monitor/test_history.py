"""The last hour by minute and cause, and histograms: every result is counted once, in its minute."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from edge_app.monitor.history import BOUNDS_S, LATEST, MINUTE_US, MINUTES, Histogram, History, cause
from edge_app.verdict import Defect, Placement, PlanKind, PowerMode, Reason, SchedReason, Sealed, Verdict

PLACEMENT = Placement(PlanKind.CPU, PowerMode.NONE, 1.0, SchedReason.NORMAL)
BOX = (0.0, 0.0, 1.0, 1.0)


def sealed(seq: int, reason: Reason = Reason.OK, defects: tuple[Defect, ...] = (), took_us: int = 2000) -> Sealed:
    stages = {"infer": took_us // 2, "unheard_of": 1}
    return Sealed(
        seq, seq, None, seq, reason, "", 0, took_us, None, stages, PLACEMENT, (), defects
    )  # fmt: skip


def test_a_defect_counts_by_the_strongest_label() -> None:
    defects = (Defect("short", 0.6, BOX), Defect("open", 0.9, BOX))
    assert cause(sealed(1, Reason.DEFECT, defects)) == "open"
    assert cause(sealed(1, Reason.DEFECT)) == "DEFECT"
    assert cause(sealed(1, Reason.MARGINAL, defects)) == "MARGINAL"  # what made it UNKNOWN is the grey band


@given(st.lists(st.tuples(st.sampled_from(Reason), st.integers(0, 90 * MINUTE_US)), max_size=60))
def test_the_trend_is_the_last_hour_and_nothing_else(events: list[tuple[Reason, int]]) -> None:
    history, events = History(), sorted(events, key=lambda event: event[1])
    for number, (reason, at_us) in enumerate(events, 1):
        history.add([sealed(number, reason)], at_us)
    now_us = 90 * MINUTE_US
    trend = history.trend(now_us)
    assert len(trend) == MINUTES
    inside = [reason for reason, at_us in events if at_us // MINUTE_US > 90 - MINUTES]
    wanted = Counter(reason.verdict for reason in inside)
    assert tuple(map(sum, zip(*trend, strict=True))) == tuple(
        wanted[verdict] for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN)
    )
    rows = history.pareto(now_us)
    assert {(verdict, name): count for verdict, name, count in rows} == Counter(
        (reason.verdict, reason.value) for reason in inside if reason is not Reason.OK
    )
    assert [count for _, _, count in rows] == sorted((count for _, _, count in rows), reverse=True)
    assert history.missed == 0


def test_the_present_minute_stands_last() -> None:
    history = History()
    history.add([sealed(1)], 5 * MINUTE_US)
    history.add([sealed(2, Reason.DEFECT)], 6 * MINUTE_US)
    assert history.trend(6 * MINUTE_US)[-2:] == [(1, 0, 0), (0, 1, 0)]
    assert history.trend(8 * MINUTE_US)[-4:] == [(1, 0, 0), (0, 1, 0), (0, 0, 0), (0, 0, 0)]


def test_results_that_went_by_unseen_are_counted() -> None:
    history = History()
    history.add([sealed(1), sealed(2)], 0)
    history.add([sealed(6)], 0)
    assert history.missed == 3


def test_the_latest_that_did_not_pass_newest_first() -> None:
    history = History()
    history.add([sealed(n, Reason.OK if n % 2 else Reason.LATE) for n in range(1, 101)], 0)
    assert [one.seq for one in history.rejected()] == list(range(100, 100 - 2 * LATEST, -2))


@given(st.lists(st.integers(0, 10_000_000), max_size=50))
def test_histograms_count_as_prometheus_does(values_us: list[int]) -> None:
    histogram = Histogram()
    for value_us in values_us:
        histogram.add(value_us)
    buckets = histogram.cumulative()
    assert [float(bound) for bound, _ in buckets] == [*BOUNDS_S, float("inf")]
    assert [count for _, count in buckets] == [
        sum(value_us / 1e6 <= float(bound) for value_us in values_us) for bound, _ in buckets
    ]
    assert histogram.sum_us == sum(values_us)


def test_a_trigger_that_was_refused_is_no_quick_verdict() -> None:
    history = History()
    refused = replace(sealed(1, Reason.OVERLOAD, took_us=100), stage_us={})
    late = replace(sealed(2, Reason.LATE, took_us=50_000), stage_us={})
    history.add([refused, late, sealed(3, took_us=8000)], 0)
    assert history.latency.sum_us == 58_000
    assert sum(history.latency.counts) == 2


def test_stages_have_histograms_of_their_own() -> None:
    history = History()
    history.add([sealed(1, took_us=3000), sealed(2, took_us=8000)], 0)
    assert history.latency.sum_us == 11_000
    assert history.stages["infer"].sum_us == 5500
    assert set(history.stages) == {"wait", "guard", "preprocess", "infer", "decode"}
