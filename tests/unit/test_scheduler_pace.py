"""The scheduler by example: drift, deadlines and rates."""

from __future__ import annotations

import itertools
import random

from boards import HTP, HYBRID, START_US, Driver, board_policy, rung, settled

from edge_app.config.scheduler import Drift, Scheduler
from edge_app.scheduler import (
    Inputs,
    Observation,
    admit,
    decide,
)
from edge_app.scheduler.drift import Track, observe
from edge_app.verdict import PowerMode, SchedReason


def run_for(driver: Driver, seconds: int, ms: float, *, every_s: float = 0.25, other_ms: float = 5.0) -> None:
    """Frames on whatever is decided, each taking so long on every plan."""
    for _ in range(int(seconds / every_s)):
        driver.state, _ = admit(driver.state, driver.now_us + round(every_s * 1e6))
        placement = driver.decision.placement
        seen = (Observation(placement.plan, placement.power_mode, round(ms * 1000), round(other_ms * 1000)),)
        zones = driver.cool(every_s) if driver.policy.limits else None
        driver.step(zones, after_s=every_s, observations=seen)


def test_throttling_that_no_zone_shows_counts_as_hot() -> None:
    driver = Driver(board_policy()).started()
    run_for(driver, 30, 112)
    assert rung(driver.decision) == (HTP, PowerMode.BURST, 1.0)
    run_for(driver, 10, 189)
    assert driver.decision.placement.reason is SchedReason.DRIFT
    assert driver.decision.placement.power_mode is not PowerMode.BURST
    assert "throttled" in driver.decision.degraded
    assert "THROTTLED" in {alarm.name for alarm in driver.decision.alarms}


def test_where_no_zones_are_watched_a_slower_run_says_nothing_of_heat() -> None:
    driver = Driver(board_policy(zones=None)).started()
    run_for(driver, 30, 112)
    run_for(driver, 10, 189)
    assert driver.decision.placement.reason is SchedReason.NORMAL


def test_more_crops_in_a_picture_are_no_throttling() -> None:
    driver = Driver(board_policy(alike=False)).started()
    run_for(driver, 30, 112)
    run_for(driver, 10, 189)
    assert driver.decision.placement.reason is not SchedReason.DRIFT
    assert driver.decision.placement.rate == 1.0
    assert "throttled" not in driver.decision.degraded


def test_outliers_are_no_drift() -> None:
    drift = Drift()
    track = Track()
    for k in range(900):
        track = observe(track, 900_000 if k % 5 == 0 else 112_000 + k % 7 * 1000, k * 1000, drift)
    assert (track.strikes, track.drifted_until_us) == (0, 0)


def test_drift_that_comes_back_counts_longer_each_time() -> None:
    drift = Drift(hold_s=10, hold_max_s=60)
    track, now, holds = Track(), 0, []
    for _ in range(9):
        track = observe(track, 100, now, drift)
    for _ in range(5):
        for _ in range(18):
            track = observe(track, 200, now, drift)
        holds.append((track.drifted_until_us - now) / 1e6)
        now = track.drifted_until_us + 1_000_000
    assert holds == [10, 20, 40, 60, 60]


def test_a_step_that_misses_the_deadline_is_left_and_a_faster_one_is_not_slowed() -> None:
    driver = Driver(board_policy(zones=None), deadline_us=120_000).started()
    run_for(driver, 20, 112)
    assert rung(driver.decision) == (HTP, PowerMode.BURST, 1.0)
    run_for(driver, 3, 130)  # 18 ms over: no drift yet, but too late for every part
    assert driver.decision.placement.plan is HYBRID, "it was warmed up at 100 ms"
    assert driver.decision.placement.reason in (SchedReason.CONFIGURED, SchedReason.DRIFT)


def test_power_modes_too_slow_for_the_deadline_are_passed_over() -> None:
    driver = Driver(board_policy(), deadline_us=115_000).started()  # 100 ms in burst; balanced would take 126
    decision = settled(driver, 88, 40, 40)
    assert rung(decision)[:2] == (HTP, PowerMode.HIGH_PERFORMANCE) or decision.placement.plan is not HTP
    assert decision.placement.power_mode not in (PowerMode.LOW_BALANCED, PowerMode.POWER_SAVER)


def test_triggers_faster_than_any_plan_lower_the_rate() -> None:
    driver = Driver(board_policy(zones=None), deadline_us=500_000).started()
    run_for(driver, 20, 100, every_s=0.06)
    assert driver.decision.placement.rate == 0.55
    assert "more than htp runs" in driver.decision.detail


def test_at_the_limit_of_a_plan_the_rate_does_not_flap() -> None:
    driver = Driver(board_policy(zones=None), deadline_us=500_000).started()
    drawn = random.Random(3)
    for ms in [96 + drawn.uniform(-2, 2) for _ in range(3000)] + [90 + drawn.uniform(-9, 9) for _ in range(3000)]:
        run_for(driver, 0.1, ms, every_s=0.1)
    rates = [decision.placement.rate for _, decision in driver.decisions[10:]]
    assert sum(before != after for before, after in itertools.pairwise(rates)) <= 4
    assert set(rates) == {1.0, 0.85}
    run_for(driver, 120, 60, every_s=0.1)
    assert driver.decision.placement.rate == 1.0


def test_noise_at_full_load_makes_steps_up_rarer_until_one_holds() -> None:
    """Each change of rate raises an alarm or clears it: 165 an hour were told, 69 are."""
    driver = Driver(board_policy(zones=None), deadline_us=500_000).started()
    drawn = random.Random(1)
    for _ in range(12_000):
        run_for(driver, 0.1, 90 * drawn.uniform(0.7, 1.3), every_s=0.1)
    rates = [decision.placement.rate for _, decision in driver.decisions[10:]]
    assert sum(before != after for before, after in itertools.pairwise(rates)) <= 30
    assert driver.state.held.retreats > 0
    run_for(driver, 300, 60, every_s=0.1)
    assert driver.decision.placement.rate == 1.0


def test_without_a_deadline_the_source_waits_and_nothing_is_refused() -> None:
    driver = Driver(board_policy(zones=None)).started()
    run_for(driver, 20, 100, every_s=0.06)
    assert driver.decision.placement.rate == 1.0


def test_admission_at_a_quarter_is_every_fourth_trigger() -> None:
    driver = Driver(board_policy(Scheduler(rates=(1.0, 0.25)))).started()
    quarter = next(r for r in driver.policy.rungs if r.rate == 0.25)
    state = driver.state._replace(held=driver.state.held._replace(rung=quarter))
    pattern = []
    for k in range(12):
        state, admitted = admit(state, START_US + k)
        pattern.append(admitted)
    assert sum(pattern[1:]) == 3
    assert [k for k, yes in enumerate(pattern) if yes][1:] == [
        k for k in range(pattern.index(True) + 1, 12) if (k - pattern[1:].index(True) - 1) % 4 == 0
    ]


def test_a_decision_is_repeated_as_it_stands_while_nothing_is_new() -> None:
    driver = Driver(board_policy()).started()
    zones = driver.cool()
    first = driver.step(zones)
    state, again = decide(driver.policy, driver.state, Inputs(driver.now_us + 20_000, zones))
    assert again is first
    assert state.held is driver.state.held
