"""A zone that can't be believed is watched through the board's: by how far it stood above it while both were known."""

from __future__ import annotations

import pytest
from boards import START_US, ZONES, Driver, board_policy, snapshot

from edge_app.scheduler import admit
from edge_app.scheduler.heat import Cause, levels
from edge_app.scheduler.lost import BOARD, NOTHING_LEARNT, guarded, learn
from edge_app.verdict import SchedReason

POLICY = board_policy()
NSP, CPU = 0, 1
NO_DRIFT = (False, False, False)


def learnt_at(nsp_c: float, board_c: float, watts: float, seconds: int = 60):
    rises = NOTHING_LEARNT
    for second in range(seconds):
        zones = snapshot(START_US + second * 1_000_000, nsp_c, 50.0, board_c)
        rises = learn(POLICY, rises, zones, (watts, 0.5, 2.9), 1.0)
    return rises


def board_share(rises, *temps_c: float | None) -> float:
    zones = snapshot(START_US, *temps_c)
    return guarded(POLICY, rises, levels(POLICY, zones, START_US, NO_DRIFT), zones)[BOARD].share


def test_kelvin_per_watt_is_learnt_from_what_stands_above_the_board() -> None:
    rises = learnt_at(70.0, 46.0, 2.4)
    assert rises[NSP].k_per_w == pytest.approx(10.0)
    assert learnt_at(58.0, 46.0, 1.2)[NSP].k_per_w == pytest.approx(10.0)
    assert learnt_at(40.0, 46.0, 1.2)[NSP].k_per_w == 0.0, "cooler than the board: it is not warmed at all"


def test_what_is_old_is_forgotten() -> None:
    rises = learnt_at(70.0, 46.0, 2.4, seconds=600)
    for second in range(3000):
        zones = snapshot(START_US + second * 1_000_000, 94.0, 50.0, 46.0)
        rises = learn(POLICY, rises, zones, (2.4, 0.5, 2.9), 1.0)
    assert rises[NSP].k_per_w == pytest.approx(20.0, abs=0.2)


def test_little_heat_and_unknown_zones_teach_nothing() -> None:
    rises = learnt_at(70.0, 46.0, 2.4)
    after = learn(POLICY, rises, snapshot(START_US, 60.0, 60.0, 46.0), (0.3, 2.8, 3.1), 1.0)
    assert after[NSP] == rises[NSP], "with the cpu plan it is the neighbour that warms the NPU's zone"
    assert after[CPU] != rises[CPU]
    assert learn(POLICY, rises, snapshot(START_US, None, 60.0, 46.0), (2.4, 0.5, 2.9), 1.0)[NSP] == rises[NSP]
    assert learn(POLICY, rises, snapshot(START_US, 60.0, 60.0, None), (2.4, 0.5, 2.9), 1.0) == rises


def test_a_lost_zone_lowers_what_the_board_may_take_and_a_known_one_does_not() -> None:
    rises = learnt_at(70.0, 46.0, 2.4)  # 10 K/W: with a fifth of 2.4 W it stands 4.8 K above the board
    assert board_share(rises, 70.0, 50.0, 78.0) == board_share(NOTHING_LEARNT, 70.0, 50.0, 78.0)
    assert board_share(rises, None, 50.0, 78.0) == board_share(NOTHING_LEARNT, None, 50.0, 78.0), "83 C is not warm"
    hot_skin = board_policy().limits["skin"].share(80.0)
    assert board_share(NOTHING_LEARNT, None, 50.0, 80.0) == pytest.approx(hot_skin)
    steep = learnt_at(94.0, 22.0, 2.4)  # 30 K/W: 14.4 K above the board
    assert board_share(steep, None, 50.0, 74.0) == pytest.approx(POLICY.limits["nspss0"].share(88.4))
    assert board_share(steep, None, 50.0, 74.0) < board_share(NOTHING_LEARNT, None, 50.0, 74.0)


def test_without_a_zone_of_the_board_there_is_nothing_to_watch_it_by() -> None:
    policy = board_policy(zones=ZONES[:2])
    zones = snapshot(START_US, None, 50.0, 84.0)
    now = levels(policy, zones, START_US, NO_DRIFT)
    assert guarded(policy, learnt_at(94.0, 46.0, 2.4), now, zones) == now
    assert now[NSP].cause is Cause.UNKNOWN


def run_at(driver: Driver, seconds: int, *temps_c: float | None, parts: bool = True) -> None:
    for _ in range(seconds):
        if parts:
            driver.state, _ = admit(driver.state, driver.now_us + 1_000_000)
        driver.step(snapshot(driver.now_us + 1_000_000, *temps_c))


def test_a_board_that_gets_hot_while_its_npu_can_not_be_seen_inspects_less() -> None:
    driver = Driver(board_policy()).started()
    run_at(driver, 120, 82.0, 50.0, 42.0)  # about 17 K/W
    assert driver.state.held.rises[NSP].k_per_w == pytest.approx(40 / 2.4, abs=0.2)
    run_at(driver, 120, None, 50.0, 42.0)
    assert driver.decision.placement.rate == 1.0
    run_at(driver, 120, None, 50.0, 84.0)
    assert driver.decision.placement.rate < 1.0
    assert driver.decision.placement.reason is SchedReason.SENSOR_LOST
    run_at(driver, 120, 60.0, 50.0, 42.0)
    assert driver.decision.placement.reason is SchedReason.NORMAL


def test_an_idle_line_teaches_nothing() -> None:
    driver = Driver(board_policy()).started()
    run_at(driver, 60, 82.0, 50.0, 42.0)
    before = driver.state.held.rises
    driver.step(snapshot(driver.now_us + 5_000_000, 60.0, 50.0, 42.0), after_s=5.0)
    run_at(driver, 60, 44.0, 43.0, 42.0, parts=False)
    assert driver.state.held.rises == before
