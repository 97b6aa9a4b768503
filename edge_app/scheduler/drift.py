"""Latency of each step against its own baseline: throttling that no thermal zone shows.

Drift goes by the medians of batches, and the baseline is the lowest median ever seen: throttling only makes a run
slower, so the fastest batch is the chip's own speed, and a few outliers (an interrupt, a page fault) move nothing.
The deadline is for every part, so a step is held against it by its slow runs, not by its median.
"""

from __future__ import annotations

from typing import NamedTuple

from edge_app.config.scheduler import Drift
from edge_app.scheduler.faults import Healths
from edge_app.scheduler.policy import Policy

FRESH_US = 300_000_000
"""A latency is believed for so long after its step was left; then the baseline is."""
FORGET = 8
"""A slow batch counts less with each quicker one after it, by one part in so many: one quick batch may be luck."""
MOST_STRIKES = 5


class Track(NamedTuple):
    """What is known of one step's latency, microseconds; 0 where nothing is."""

    baseline_us: int = 0
    """The lowest median of a batch ever seen."""
    tail_us: int = 0
    """What all but one run of the last batch stayed within, and of those before it as far as they are not forgotten:
    by it a step is held against the deadline."""
    best_tail_us: int = 0
    """The lowest that a batch stayed within."""
    seen_us: int = 0
    """When the last batch ended."""
    batch: tuple[int, ...] = ()
    slow_batches: int = 0
    drifted_until_us: int = 0
    strikes: int = 0
    """How often drift was found; each doubles the time that it counts."""

    def drifted(self, now_us: int) -> bool:
        """Whether the step counts as throttled."""
        return now_us < self.drifted_until_us


def observe(track: Track, infer_us: int, now_us: int, drift: Drift) -> Track:
    """One more run. The same Track but for its batch until a batch is full."""
    batch = (*track.batch, infer_us)
    if len(batch) < drift.batch:
        baseline_us, tail_us, best_tail_us, seen_us, _, *rest = track
        return Track(baseline_us, tail_us, best_tail_us, seen_us, batch, *rest)
    return _close_batch(track, batch, now_us, drift)


def _close_batch(track: Track, batch: tuple[int, ...], now_us: int, drift: Drift) -> Track:
    ordered = sorted(batch)
    current, tail = ordered[len(ordered) // 2], ordered[-2]
    baseline = min(track.baseline_us or current, current)
    slow = track.slow_batches + 1 if current > baseline * drift.ratio else 0
    until, strikes = track.drifted_until_us, track.strikes
    if slow >= drift.confirm:
        if now_us >= until:
            strikes = min(strikes + 1, MOST_STRIKES) if now_us < until + hold_us(drift, strikes) else 1
        until = now_us + hold_us(drift, strikes)
    held = max(tail, track.tail_us - (track.tail_us - tail) // FORGET)
    return Track(baseline, held, min(track.best_tail_us or tail, tail), now_us, (), slow, until, strikes)


def hold_us(drift: Drift, strikes: int) -> int:
    """How long drift counts after it was seen last."""
    return round(min(drift.hold_s * 2.0 ** max(strikes - 1, 0), drift.hold_max_s) * 1e6)


def median(values: tuple[int, ...]) -> int:
    """The upper median."""
    return sorted(values)[len(values) // 2]


def estimate_us(policy: Policy, tracks: tuple[Track, ...], healths: Healths, step: int, now_us: int) -> int:
    """What a run on a step is expected to take; 0 if nothing is known.

    In this order: its own latency if it is fresh, its own best, what was measured when the plan was loaded, and by the
    ladder's ratio that of another step of the same plan, seen or measured.
    """
    own, mine = tracks[step], policy.steps[step]
    if own.tail_us and now_us - own.seen_us <= FRESH_US:
        return own.tail_us
    if own.best_tail_us:
        return own.best_tail_us
    loaded = healths[mine.plan].loaded_us
    if mine.power_mode in loaded:
        return loaded[mine.power_mode]
    for index in policy.steps_of[mine.plan]:
        other = policy.steps[index]
        known = tracks[index].best_tail_us or loaded.get(other.power_mode, 0)
        if known:
            return round(known * mine.latency / other.latency)
    return 0
