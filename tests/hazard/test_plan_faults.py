"""Plans that fail while parts come: on the simulated HTP, with the real scheduler, and faults on purpose.

Every part must be sealed once, with its own verdict, whatever happens to the plans.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest
from toy_plans import Parts, ToyLine
from wire_samples import until

from edge_app.config.runtime import Limits
from edge_app.config.scheduler import Faults, Scheduler
from edge_app.engine import Engine
from edge_app.errors import RuntimeFault
from edge_app.runtime.faulty import FaultScript, Trouble
from edge_app.scheduler import Event, EventKind
from edge_app.verdict import PlanKind, Reason, SchedReason

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

HTP, HYBRID, CPU = PlanKind.HTP, PlanKind.HYBRID, PlanKind.CPU
QUICK = Scheduler(faults=Faults(backoff_s=0.05, backoff_max_s=0.2, retries=1000))


def plans_of(results) -> list[PlanKind]:
    return [sealed.placement.plan for sealed in results]


def test_no_part_is_lost_or_doubled_over_random_switches_and_faults(toy_plans) -> None:
    from switching import measure

    figures = measure(toy_plans, frames=160, switches=16, faults=10, seed=4)
    assert figures["lost_or_doubled"] == 0
    assert figures["changes_of_plan"] >= 16
    assert figures["faults_met"] >= 8
    assert figures["runs_failed"] >= 5
    assert figures["frames_moved"] >= 5


def test_a_crashed_session_is_built_again_and_proven_before_it_comes_back(toy_plans) -> None:
    script = FaultScript({6: Trouble.CRASH})
    line: ToyLine

    def before(number: int) -> None:
        if number == 20:
            line.wait_until_all_are_ready()
            line.governor.prefer(HTP)

    line = ToyLine(toy_plans, Parts(30, before), {HTP: script}, QUICK)
    assert script.loads == 1
    results = line.run(120)
    line.assert_every_part_has_its_own_verdict(results)
    assert script.loads == 2
    plans = plans_of(results)
    assert plans[0] is HTP
    assert HYBRID in plans
    assert plans[-1] is HTP
    run_again = next(sealed for sealed in results if "hybrid_fallback" in sealed.degraded)
    assert run_again.placement.reason is SchedReason.FAULT
    assert any("SSR" in alarm.text for decision in line.decisions for alarm in decision.alarms)


def test_a_run_that_never_returns_takes_one_slot_and_the_npu_but_no_part(toy_plans) -> None:
    script = FaultScript({4: Trouble.HANG})  # run 1: warm-up, run 2: canary
    line = ToyLine(toy_plans, Parts(40), {HTP: script}, QUICK, timeout_ms=400)
    try:
        results = line.run(120)
    finally:
        script.release()
    line.assert_every_part_has_its_own_verdict(results)
    assert plans_of(results)[0] is HTP
    assert set(plans_of(results)[1:]) == {CPU}, "those that waited behind it too"
    assert script.runs == 4, "nothing was put onto the NPU after it"
    assert line.governor.decision.placement.reason is SchedReason.NO_NPU
    assert sum(slot.retired for slot in line.line._slots) == 1


def test_a_run_that_returns_late_is_not_waited_for_and_changes_nothing(toy_plans) -> None:
    script = FaultScript({5: Trouble.LATE}, late_s=0.9)
    line = ToyLine(toy_plans, Parts(60), {HTP: script}, QUICK, timeout_ms=300)
    results = line.run(120)
    line.assert_every_part_has_its_own_verdict(results)
    assert set(plans_of(results)[3:]) == {CPU}


def test_a_run_that_writes_nothing_gives_no_part_the_verdict_of_another(toy_plans) -> None:
    script = FaultScript(dict.fromkeys(range(4, 30, 3), Trouble.STALE))

    def before(_number: int) -> None:
        line.wait_until_all_are_ready()
        line.governor.prefer(HTP)

    line = ToyLine(toy_plans, Parts(40, before), {HTP: script}, QUICK, limits=Limits(pacing="offline", slots=1))
    results = line.run(120)
    line.assert_every_part_has_its_own_verdict(results)
    assert len(script.met) >= 5
    assert {HTP, HYBRID} <= set(plans_of(results))


def test_a_plan_that_can_not_be_loaded_at_first_comes_in_later(toy_plans) -> None:
    script = FaultScript(failing_loads=2)
    line: ToyLine

    def before(number: int) -> None:
        if number == 30:
            line.wait_until_all_are_ready()
            line.governor.prefer(HTP)

    line = ToyLine(toy_plans, Parts(40, before), {HTP: script}, QUICK)
    results = line.run(120)
    line.assert_every_part_has_its_own_verdict(results)
    assert script.loads == 3
    assert plans_of(results)[0] is HYBRID
    assert results[0].placement.reason in (SchedReason.FAULT, SchedReason.RECOVERING)
    assert plans_of(results)[-1] is HTP


def test_a_plan_with_another_answer_than_the_stored_one_is_not_used(toy_plans) -> None:
    line = ToyLine(toy_plans, Parts(20), {}, QUICK)
    line.governor.tell(Event(EventKind.ERROR, HTP, "to have it built again"))
    prove = line.mechanic._prove
    line.mechanic._prove = lambda engine: "label bright: not found again" if engine.plan is HTP else prove(engine)
    results = line.run(120)
    line.assert_every_part_has_its_own_verdict(results)
    assert HTP not in plans_of(results)


@pytest.mark.parametrize("plan", [HTP, CPU])
@pytest.mark.parametrize("raises", [False, True])
def test_a_plan_that_fails_a_self_test_gets_no_part_until_it_is_proven(toy_plans, plan, raises) -> None:
    script, failed = FaultScript(), list[PlanKind]()
    line: ToyLine

    def other_answer(engine: Engine) -> str | None:
        if engine.plan is not plan:
            return prove(engine)
        failed.append(plan)
        return "label bright: not found again"

    def before(number: int) -> None:
        if number == 10 and raises:
            script.arm(Trouble.ERROR)
            with pytest.raises(RuntimeFault):
                line.mechanic.self_test()
        elif number == 10:
            line.mechanic._prove = other_answer
            assert (line.mechanic.self_test() or "").startswith("label bright: not found again")
        elif number == 15 and not raises:
            until(lambda: len(failed) >= 3)  # the self-test, and twice built again in vain
        elif number == 25:
            line.mechanic._prove = prove
            line.wait_until_all_are_ready()

    line = ToyLine(toy_plans, Parts(40, before), {plan: script}, QUICK, limits=Limits(pacing="offline", slots=1))
    prove = line.mechanic._prove
    line.governor.prefer(plan)
    results = line.run(120)
    line.assert_every_part_has_its_own_verdict(results)
    plans = plans_of(results)
    assert set(plans[1:10]) == {plan}
    assert plans[10] is not plan
    assert raises or plan not in plans[10:25]
    assert script.loads > 1
    assert plans[-1] is plan


def test_an_npu_that_goes_blind_without_an_error_is_found_by_its_self_test(toy_plans) -> None:
    script = FaultScript()
    found: list[Event] = []
    line: ToyLine

    def before(number: int) -> None:
        if number == 10:
            script.arm(Trouble.BLIND)
        elif number == 20:  # good and bad parts have passed
            until(lambda: bool(found))

    def tell(event: Event) -> None:
        if event.kind is EventKind.CANARY_FAILED:
            found.append(event)
        told(event)

    line = ToyLine(toy_plans, Parts(40, before), {HTP: script}, QUICK, self_test_s=0.1)
    told, line.governor.tell = line.governor.tell, tell
    results = line.run(120)
    reasons = [sealed.reason for sealed in results]
    assert set(plans_of(results)[:10]) == {HTP}
    assert set(reasons[11:18]) == {Reason.OK}, "nothing tells it from good parts"
    assert Reason.DEFECT in line.parts.verdicts[11:18]
    assert (reasons[:7], reasons[24:]) == (line.parts.verdicts[:7], line.parts.verdicts[24:])
    assert "since the self-test before, may be wrong" in found[0].text


def test_a_self_test_that_breaks_off_by_a_bug_counts_as_failed(toy_plans) -> None:
    script, broke_off = FaultScript(), list[PlanKind]()
    line: ToyLine

    def bug(engine: Engine) -> str | None:
        if engine.plan is HTP:
            broke_off.append(HTP)
            raise ValueError("nobody expected this")
        return prove(engine)

    def before(number: int) -> None:
        if number == 10:
            line.mechanic._prove = bug
            until(lambda: bool(broke_off))

    line = ToyLine(toy_plans, Parts(30, before), {HTP: script}, QUICK, self_test_s=0.1)
    prove = line.mechanic._prove
    results = line.run(120)
    line.assert_every_part_has_its_own_verdict(results)
    assert HTP in plans_of(results)[:10]
    assert HTP not in plans_of(results)[15:]


def test_a_self_test_waits_for_a_gap_between_parts_but_not_for_ever(toy_plans) -> None:
    line = ToyLine(toy_plans, Parts(1), self_test_s=0.2)
    mechanic, tests = line.mechanic, list[float]()
    mechanic._prove = lambda _engine: tests.append(time.monotonic())
    mechanic.idle = lambda: False
    began = time.monotonic()
    mechanic.self_test()
    mechanic.start()
    until(lambda: len(tests) == 2)
    mechanic.stop()
    assert tests[1] - began >= 0.4
    line.line.close()


def test_plans_that_did_not_agree_are_not_switched_to(toy_plans) -> None:
    script = FaultScript({5: Trouble.CRASH})
    line = ToyLine(toy_plans, Parts(12), {HTP: script}, Scheduler(), agrees=[(HYBRID, CPU)])
    results = line.run(120)
    reasons = [sealed.reason for sealed in results]
    assert reasons[:2] == line.parts.verdicts[:2]
    assert set(reasons[3:]) == {Reason.RUNTIME_FAULT}
    assert "was not found to agree with htp" in line.governor.decision.detail


def test_with_every_slot_held_the_process_ends_with_exit_5(toy_plans) -> None:
    scripts = {plan: FaultScript(dict.fromkeys(range(3, 9), Trouble.HANG)) for plan in (HTP, HYBRID)}
    scripts[CPU] = FaultScript(dict.fromkeys(range(2, 9), Trouble.HANG))
    two = Limits(pacing="offline", slots=2)
    line = ToyLine(toy_plans, Parts(200, lambda _n: time.sleep(0.05)), scripts, QUICK, limits=two, timeout_ms=150)
    with pytest.raises(RuntimeFault, match="every slot is held") as error:
        line.run(120)
    for script in scripts.values():
        script.release()
    assert error.value.exit_code == 5
    counts = line.line.sealer.counts()
    assert counts.triggers == counts.sealed
    assert threading.active_count() < 60
