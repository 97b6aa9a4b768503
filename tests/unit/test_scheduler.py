"""The scheduler by example: each rule of the ladder, of faults, cold starts, drift and deadlines."""

from __future__ import annotations

from itertools import pairwise

import pytest
from boards import ALL, CPU, HTP, HYBRID, START_US, ZONES, Driver, all_well, board_policy, snapshot
from pydantic import ValidationError

from edge_app.config.scheduler import Cold, Drift, Faults, Scheduler, ZoneRule, Zones
from edge_app.errors import ConfigError
from edge_app.scheduler import (
    Action,
    ActionKind,
    Event,
    EventKind,
    Inputs,
    Observation,
    admit,
    build_policy,
    decide,
    retry_plan,
)
from edge_app.scheduler.drift import Track, observe
from edge_app.scheduler.faults import Health, Phase, advance, apply_event, pause_us, waits_when_cold
from edge_app.verdict import PlanKind, PowerMode, SchedReason
from edge_app.zones import Zone, ZoneGroup

LOAD, CANARY = ActionKind.LOAD, ActionKind.CANARY


def settled(driver: Driver, *temps_c: float | None, minutes: float = 10):
    """The decision after a board has stood at these temperatures for a while."""
    for _ in range(int(minutes * 4)):
        driver.step(snapshot(driver.now_us + 15_000_000, *temps_c), after_s=15.0)
    assert driver.decision.placement is not None
    return driver.decision


def rung(decision) -> tuple[PlanKind, PowerMode, float]:
    return decision.placement.plan, decision.placement.power_mode, decision.placement.rate


# -- the ladder --------------------------------------------------------------------------------------------------------


def test_a_cool_board_runs_the_first_step() -> None:
    decision = settled(Driver(board_policy()).started(), 40, 40, 40)
    assert rung(decision) == (HTP, PowerMode.BURST, 1.0)
    assert decision.placement.reason is SchedReason.NORMAL
    assert decision.placement.zones_c == {"nspss0": 40.0, "cpu0": 40.0, "skin": 40.0}
    assert (decision.degraded, decision.alarms) == ((), ())


@pytest.mark.parametrize(
    ("nsp", "cpu", "skin", "expected", "reason"),
    [
        # the NPU warms up: its power mode first (trip 95: warm from 83, hot from 92)
        (84, 40, 40, (HTP, PowerMode.HIGH_PERFORMANCE, 1.0), SchedReason.WARM),
        (88, 40, 40, (HTP, PowerMode.LOW_BALANCED, 1.0), SchedReason.WARM),
        (91, 40, 40, (HTP, PowerMode.POWER_SAVER, 1.0), SchedReason.WARM),
        # then work moves to the CPU, as far as CPU and board have room
        (92.5, 40, 40, (HTP, PowerMode.LOW_POWER_SAVER, 1.0), SchedReason.HOT),
        (94.5, 40, 40, (CPU, PowerMode.NONE, 1.0), SchedReason.HOT),
        # and where they have none, the rate
        (94.5, 93.5, 40, (HYBRID, PowerMode.LOW_POWER_SAVER, 0.3), SchedReason.HOT),
        (94.5, 40, 82.5, (HYBRID, PowerMode.LOW_POWER_SAVER, 0.4), SchedReason.HOT),
        # the CPU or the board alone: less power, for all heat ends in the board
        (40, 92.5, 40, (HTP, PowerMode.BURST, 1.0), SchedReason.NORMAL),
        (40, 40, 84.5, (HTP, PowerMode.LOW_BALANCED, 0.1), SchedReason.HOT),
    ],
)
def test_steps_by_zone(nsp, cpu, skin, expected, reason) -> None:
    decision = settled(Driver(board_policy()).started(), nsp, cpu, skin)
    assert (rung(decision), decision.placement.reason) == (expected, reason)


def test_a_plan_goes_before_the_rate_with_an_external_trigger_and_after_it_without() -> None:
    by_trigger = {}
    for trigger in ("external", "free"):
        driver = Driver(board_policy(Scheduler(trigger=trigger))).started()
        by_trigger[trigger] = rung(settled(driver, 94.5, 40, 40))
    assert by_trigger["external"] == (CPU, PowerMode.NONE, 1.0)
    assert by_trigger["free"][0] is HTP
    assert by_trigger["free"][2] < 1.0


def test_more_heat_waits_longer_than_less_and_needs_room() -> None:
    driver = Driver(board_policy()).started()
    driver.step(snapshot(driver.now_us + 1_000_000, 88, 40, 40))
    assert rung(driver.decision)[1] is PowerMode.LOW_BALANCED
    for _ in range(28):
        driver.step(snapshot(driver.now_us + 1_000_000, 70, 40, 40))
    assert rung(driver.decision)[1] is PowerMode.LOW_BALANCED
    assert driver.decision.placement.reason is SchedReason.RECOVERING
    for _ in range(3):
        driver.step(snapshot(driver.now_us + 1_000_000, 70, 40, 40))
    assert rung(driver.decision)[1] is PowerMode.BURST
    # one degree below the limit of burst is no room: hysteresis
    driver.step(snapshot(driver.now_us + 1_000_000, 84, 40, 40), after_s=10.0)
    assert rung(settled(driver, 82.5, 40, 40))[1] is not PowerMode.BURST
    assert rung(settled(driver, 79.5, 40, 40))[1] is PowerMode.BURST


def test_a_rising_zone_counts_as_hot_as_it_will_be() -> None:
    policy = board_policy()
    rising, steady = Driver(policy).started(), Driver(policy).started()
    rising.step(snapshot(rising.now_us + 1_000_000, 80, 40, 40, rates=(1.0, 0.0, 0.0)))
    steady.step(snapshot(steady.now_us + 1_000_000, 80, 40, 40))
    assert rung(steady.decision)[1] is PowerMode.BURST
    assert rung(rising.decision)[1] is PowerMode.LOW_BALANCED  # as at 88


def test_lost_zones_count_as_hot_and_are_told() -> None:
    driver = Driver(board_policy()).started()
    decision = settled(driver, None, 40, 40)
    assert decision.placement.reason is SchedReason.SENSOR_LOST
    assert decision.placement.plan is not HTP or decision.placement.power_mode is PowerMode.LOW_POWER_SAVER
    assert decision.placement.zones_c["nspss0"] is None
    assert decision.degraded[-1] == "sensor_lost"
    assert "nspss0 is unreadable" in decision.alarms[0].text
    assert rung(settled(driver, 40, 40, 40)) == (HTP, PowerMode.BURST, 1.0)


def test_two_lost_zones_are_one_alarm_that_tells_of_both() -> None:
    decision = settled(Driver(board_policy()).started(), None, None, 40)
    (alarm,) = [alarm for alarm in decision.alarms if alarm.name == "SENSOR_LOST"]
    assert "nspss0 is unreadable" in alarm.text
    assert "cpu0 is unreadable" in alarm.text


def test_a_sampler_that_died_is_a_lost_sensor() -> None:
    driver = Driver(board_policy()).started()
    last = driver.cool()
    driver.step(last)
    decision = driver.step(last, after_s=10.0)
    assert decision.placement.reason is SchedReason.SENSOR_LOST
    assert "stale" in decision.detail


def test_a_required_group_without_zones_counts_as_hot_an_optional_one_is_not_watched() -> None:
    without_nsp = Driver(board_policy(zones=ZONES[1:])).started()
    assert without_nsp.decision.placement.reason is SchedReason.SENSOR_LOST
    assert "there is no nsp zone" in without_nsp.decision.detail
    without_skin = Driver(board_policy(zones=ZONES[:2])).started()
    assert without_skin.decision.placement.reason is SchedReason.NORMAL
    unwatched = Driver(board_policy(zones=None)).started()
    assert unwatched.decision.placement.reason is SchedReason.NORMAL


def test_at_the_trip_point_there_is_an_alarm() -> None:
    decision = settled(Driver(board_policy()).started(), 96, 96, 86)
    assert {"OVERHEAT", "RATE_REDUCED"} <= {alarm.name for alarm in decision.alarms}
    assert rung(decision)[2] == 0.1


def test_limits_of_the_pipeline_go_before_those_of_the_zone() -> None:
    rule = ZoneRule(types=("nsp*",), required=True, warm_c=50, hot_c=60, trip_c=70)
    driver = Driver(board_policy(Scheduler(zones=Zones(nsp=rule)))).started()
    assert rung(settled(driver, 55, 40, 40))[1] is not PowerMode.BURST


# -- agreement, operator -----------------------------------------------------------------------------------------------


def test_a_switch_between_plans_that_did_not_agree_is_refused_with_the_reason() -> None:
    driver = Driver(board_policy(agrees=[(HTP, HYBRID)])).started()
    assert settled(driver, 94.9, 40, 40).placement.plan is not CPU
    driver.step(driver.cool(), Event(EventKind.ERROR, HTP, "dead"), Event(EventKind.ERROR, HYBRID, "dead"))
    assert driver.decision.placement is None
    assert "cpu was not found to agree with" in driver.decision.detail
    assert [alarm.name for alarm in driver.decision.alarms if alarm.name == "NO_PLAN"] == ["NO_PLAN"]


def test_the_operator_chooses_among_plans_that_are_ready() -> None:
    driver = Driver(board_policy()).started()
    decision = driver.step(driver.cool(), operator=CPU)
    assert (decision.placement.plan, decision.placement.reason) == (CPU, SchedReason.OPERATOR)
    decision = driver.step(driver.cool(), Event(EventKind.ERROR, CPU, "x"), operator=CPU)
    assert (decision.placement.plan, decision.placement.reason) == (HTP, SchedReason.NORMAL)


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


# -- drift, deadline, rate ---------------------------------------------------------------------------------------------


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


# -- configuration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"rates": [1.0, 1.0]}, "falling values"),
        ({"rates": [0.5, 0.25]}, "falling values"),
        ({"dwell": {"down_s": 5, "up_s": 2}}, "up_s >= down_s"),
        ({"cold": {"below_c": 5, "until_c": 0}}, "until_c >= below_c"),
        ({"ladder": [{"plan": "cpu", "power_mode": "burst", "watts": {"nsp": 0, "cpu": 3}}]}, "only cpu has `none`"),
        ({"ladder": [{"plan": "cpu", "power_mode": "none", "watts": {"nsp": 0, "cpu": 3}}] * 2}, "stand twice"),
        ({"zones": {"nsp": {"types": ["nsp*"], "required": True, "warm_c": 90, "hot_c": 80}}}, "warm_c < hot_c"),
        ({"hysteresis": 3}, "Extra inputs"),
    ],
)
def test_a_section_that_makes_no_sense_is_refused(section, message) -> None:
    import json

    with pytest.raises(ValidationError, match=message):
        Scheduler.model_validate_json(json.dumps(section))


def test_a_ladder_without_any_of_the_models_plans_is_refused() -> None:
    ladder = tuple(step for step in Scheduler().ladder if step.plan is HTP)
    with pytest.raises(ConfigError, match="no step for any plan"):
        build_policy(Scheduler(ladder=ladder), [CPU], (), None)


def test_limits_that_cross_the_zones_own_trip_point_are_refused() -> None:
    rule = ZoneRule(types=("nsp*",), required=True, hot_c=99)
    zone = Zone("nspss0", "nsp", ZoneGroup.NSP, ZONES[0].trips)
    with pytest.raises(ConfigError, match="out of order") as error:
        build_policy(Scheduler(zones=Zones(nsp=rule)), [CPU], (), [zone])
    assert "scheduler.zones.nsp, zone nspss0" in error.value.text()
