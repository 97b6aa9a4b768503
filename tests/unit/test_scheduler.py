"""The scheduler by example: the ladder by zones, agreement between plans, what is configured."""

from __future__ import annotations

import pytest
from boards import CPU, HTP, HYBRID, ZONES, Driver, board_policy, rung, settled, snapshot
from pydantic import ValidationError

from edge_app.config.scheduler import Scheduler, Trial, ZoneRule, Zones
from edge_app.errors import ConfigError
from edge_app.scheduler import (
    Event,
    EventKind,
    build_policy,
)
from edge_app.verdict import PowerMode, SchedReason
from edge_app.zones import Zone, ZoneGroup

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
        (94, 40, 40, (CPU, PowerMode.NONE, 1.0), SchedReason.HOT),
        # and where they have none, the rate
        (94.5, 93.5, 40, (HYBRID, PowerMode.LOW_POWER_SAVER, 0.3), SchedReason.HOT),
        (94.5, 40, 82.5, (HYBRID, PowerMode.LOW_POWER_SAVER, 0.4), SchedReason.HOT),
        # the CPU or the board alone: less power, for all heat ends in the board
        (40, 92.5, 40, (HTP, PowerMode.BURST, 1.0), SchedReason.NORMAL),
        (40, 40, 84.5, (HTP, PowerMode.LOW_BALANCED, 0.1), SchedReason.HOT),
    ],
)
def test_steps_by_zone(nsp, cpu, skin, expected, reason) -> None:
    by_the_ladder = Scheduler(trial=Trial(below=0))
    decision = settled(Driver(board_policy(by_the_ladder)).started(), nsp, cpu, skin)
    assert (rung(decision), decision.placement.reason) == (expected, reason)


def test_a_plan_goes_before_the_rate_with_an_external_trigger_and_after_it_without() -> None:
    by_trigger = {}
    for trigger in ("external", "free"):
        driver = Driver(board_policy(Scheduler(trigger=trigger))).started()
        by_trigger[trigger] = rung(settled(driver, 94, 40, 40))
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
    assert decision.detail.endswith("; plan cpu was asked for, but is open")


def test_what_holds_the_plan_of_the_operator_back_is_told_before_that_it_was_asked_for() -> None:
    driver = Driver(board_policy()).started()
    for _ in range(40):
        decision = driver.step(snapshot(driver.now_us + 15_000_000, 94.9, 94.9, 40), after_s=15.0, operator=CPU)
    assert decision.placement.plan is CPU
    assert decision.placement.rate < 1
    assert decision.placement.reason is SchedReason.HOT


def test_a_plan_that_was_not_found_to_agree_is_not_used_and_told_so() -> None:
    driver = Driver(board_policy(agrees=[(HTP, HYBRID)])).started()
    decision = driver.step(driver.cool(), operator=CPU)
    assert decision.placement.plan is HTP
    assert decision.detail.endswith("was asked for, but was not found to agree with htp when the model was built")
    decision = Driver(board_policy(plans=(HTP, CPU))).started().step(driver.cool(), operator=HYBRID)
    assert decision.detail.endswith("; plan hybrid was asked for, but this model has none")


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
