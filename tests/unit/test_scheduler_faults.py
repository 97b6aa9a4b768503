"""The scheduler by example: faults, the same frame again, and starts in the cold."""

from __future__ import annotations

from itertools import pairwise

import pytest
from boards import ALL, CPU, HTP, HYBRID, Driver, all_well, board_policy, rung, settled, snapshot

from edge_app.config.scheduler import Cold, Faults, Scheduler
from edge_app.scheduler import (
    Action,
    ActionKind,
    Event,
    EventKind,
    admit,
    retry_plan,
)
from edge_app.scheduler.faults import Health, Phase, advance, apply_event, pause_us, waits_when_cold
from edge_app.verdict import PlanKind, PowerMode, SchedReason

LOAD, CANARY = ActionKind.LOAD, ActionKind.CANARY


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_fault_moves_the_next_frame_at_once_and_the_plan_comes_back_proven() -> None:
    asked: list[Action] = []

    def answer(action: Action) -> Event | None:
        asked.append(action)
        return all_well(action)

    driver = Driver(board_policy(), answer).started()
    asked.clear()
    decision = driver.step(driver.cool(), Event(EventKind.ERROR, HTP, "ENGINE_ERROR error code: 1007"))
    assert (decision.placement.plan, decision.placement.reason) == (HYBRID, SchedReason.FAULT)
    assert decision.degraded == ("hybrid_fallback", "htp_fault")
    (alarm,) = decision.alarms
    assert (alarm.name, "1007" in alarm.text, "built again" in alarm.remedy) == ("NPU_FAULT", True, True)
    for _ in range(40):
        driver.step(driver.cool())
    assert asked == [Action(LOAD, HTP), Action(CANARY, HTP)]
    assert rung(driver.decision) == (HTP, PowerMode.BURST, 1.0)
    assert driver.decision.alarms == ()


def test_a_canary_that_differs_is_a_fault() -> None:
    def answer(action: Action) -> Event | None:
        if action == Action(CANARY, HTP):
            return Event(EventKind.CANARY_FAILED, HTP, "label short: not found again")
        return all_well(action)

    driver = Driver(board_policy(), answer).started()
    assert driver.decision.placement.plan is HYBRID
    assert driver.decision.placement.reason in (SchedReason.FAULT, SchedReason.RECOVERING)


def test_pauses_double_up_to_the_longest_and_starts_are_bounded() -> None:
    faults = Faults(backoff_s=1, backoff_max_s=8, retries=5)
    assert [pause_us(faults, n) // 1_000_000 for n in range(1, 7)] == [1, 2, 4, 8, 8, 8]
    attempts: list[float] = []

    def never_starts(action: Action) -> Event | None:
        if action.plan is HTP:
            attempts.append(driver.now_us / 1e6)
            return Event(EventKind.LOAD_FAILED, HTP, "Failed to create device. Error: 14001")
        return all_well(action)

    driver = Driver(board_policy(Scheduler(faults=faults)), never_starts)
    for _ in range(1000):
        driver.step(driver.cool(0.1), after_s=0.1)
    assert len(attempts) == 6
    gaps = [b - a for a, b in pairwise(attempts)]
    assert gaps == pytest.approx([1.1, 2.1, 4.1, 8.1, 8.1], abs=1.1)
    assert driver.decision.placement.reason is SchedReason.NO_NPU
    assert "6 faults in a row" in driver.decision.detail
    assert next(alarm.name for alarm in driver.decision.alarms) == "NPU_LOST"


def test_the_cpu_plan_is_never_given_up() -> None:
    policy = board_policy(Scheduler(faults=Faults(retries=0)), plans=[CPU])
    healths = {CPU: Health(Phase.READY)}
    for k in range(5):
        healths = apply_event(policy, {CPU: Health(Phase.READY, failures=k)}, Event(EventKind.ERROR, CPU), k)
        assert healths[CPU].phase is Phase.OPEN
    healths, actions = advance(policy, healths, 10**12, cold=False)
    assert actions == (Action(LOAD, CPU),)


def test_after_a_long_time_without_faults_the_count_starts_anew() -> None:
    policy = board_policy(Scheduler(faults=Faults(forgive_s=300)))
    young = apply_event(policy, {HTP: Health(Phase.READY, 4, since_us=0)}, Event(EventKind.ERROR, HTP), 299_000_000)
    old = apply_event(policy, {HTP: Health(Phase.READY, 4, since_us=0)}, Event(EventKind.ERROR, HTP), 300_000_000)
    assert (young[HTP].failures, old[HTP].failures) == (5, 1)


def test_a_hung_run_keeps_the_whole_npu_out() -> None:
    driver = Driver(board_policy()).started()
    driver.step(driver.cool(), Event(EventKind.TIMEOUT, HTP, "a run did not return within 3000 ms"))
    for _ in range(100):
        driver.step(driver.cool(60), after_s=60)
    assert driver.decision.placement.plan is CPU
    assert driver.decision.placement.reason is SchedReason.NO_NPU
    assert {plan: health.phase for plan, health in driver.state.health.items()} == {
        HTP: Phase.BARRED,
        HYBRID: Phase.BARRED,
        CPU: Phase.READY,
    }


def test_events_that_come_late_change_nothing() -> None:
    driver = Driver(board_policy()).started()
    driver.step(driver.cool(), Event(EventKind.TIMEOUT, HTP))
    before = driver.state.health
    driver.step(driver.cool(), Event(EventKind.CANARY_PASSED, HTP), Event(EventKind.LOADED, HYBRID))
    assert driver.state.health == before


# -- the same frame again ----------------------------------------------------------------------------------------------


def test_a_frame_is_run_again_on_the_next_plan_that_is_fast_enough() -> None:
    driver = Driver(board_policy()).started()  # every plan takes 100 ms

    def again(tried: tuple[PlanKind, ...], left_us: int | None):
        return retry_plan(driver.policy, driver.state, tried, left_us, driver.now_us)

    placement = again((HTP,), 150_000)
    assert (placement.plan, placement.power_mode, placement.reason) == (HYBRID, PowerMode.BURST, SchedReason.FAULT)
    assert again((HTP, HYBRID), None).plan is CPU
    assert again(ALL, None) == "there is no other plan"
    assert "takes 100.0 ms, 90.0 ms are left" in again((HTP,), 90_000)
    assert again((HTP,), -5) == "hybrid takes 100.0 ms, 0.0 ms are left; cpu takes 100.0 ms, 0.0 ms are left"


def test_a_frame_is_not_run_again_on_a_plan_that_is_out_or_disagrees() -> None:
    driver = Driver(board_policy(agrees=[(HTP, HYBRID)])).started()
    driver.step(driver.cool(), Event(EventKind.ERROR, HYBRID, "x"))
    why = retry_plan(driver.policy, driver.state, (HTP,), None, driver.now_us)
    assert why == "hybrid is open; cpu was not found to agree with htp when the model was built"


# -- cold --------------------------------------------------------------------------------------------------------------


def at_start(config: Scheduler, plans=ALL, air_c: float = -20.0) -> tuple[Driver, list[Action]]:
    driver = Driver(board_policy(config, plans), lambda action: None)
    driver.step(snapshot(driver.now_us + 1_000_000, air_c, air_c, air_c))
    return driver, list(driver.decision.actions)


def test_a_cold_chip_starts_on_hybrid_and_the_npu_takes_over_after_its_canary() -> None:
    driver = Driver(board_policy())
    asked: list[Action] = []

    def answer(action: Action) -> Event:
        asked.append(action)
        return all_well(action)

    driver.answer = answer
    for _ in range(4):
        driver.step(snapshot(driver.now_us + 1_000_000, -20, -20, -20))
    driver.state, _ = admit(driver.state, driver.now_us)
    assert driver.decision.placement.plan is HYBRID
    assert driver.decision.placement.reason is SchedReason.COLD
    assert {action.plan for action in asked} == {HYBRID, CPU}
    driver.step(snapshot(driver.now_us + 60_000_000, 4, 4, 4), after_s=60)
    assert driver.decision.placement.reason is SchedReason.COLD, "until it is warm enough"
    for _ in range(40):
        driver.step(snapshot(driver.now_us + 1_000_000, 6, 6, 6))
    assert asked[-2:] == [Action(LOAD, HTP), Action(CANARY, HTP)]
    assert driver.decision.placement.plan is HTP


def test_what_starts_in_the_cold() -> None:
    on_cpu = Scheduler(cold=Cold(start_on=CPU))
    assert {a.plan for a in at_start(Scheduler())[1]} == {HYBRID, CPU}
    assert {a.plan for a in at_start(on_cpu)[1]} == {CPU}
    assert {a.plan for a in at_start(Scheduler(), [HTP, CPU])[1]} == {CPU}
    assert {a.plan for a in at_start(Scheduler(), [HTP])[1]} == {HTP}, "there is nothing else"
    assert {a.plan for a in at_start(Scheduler(), air_c=0.0)[1]} == set(ALL)
    assert waits_when_cold(board_policy(on_cpu)) == {HTP, HYBRID}


def test_a_plan_that_runs_is_not_stopped_by_the_cold() -> None:
    driver = Driver(board_policy()).started()
    assert rung(settled(driver, -10, -10, -10)) == (HTP, PowerMode.BURST, 1.0)


def test_before_the_first_trigger_nothing_has_to_dwell() -> None:
    driver = Driver(board_policy())
    for _ in range(4):
        driver.step(driver.cool(0.01), after_s=0.01)
    assert driver.decision.placement.plan is HTP
