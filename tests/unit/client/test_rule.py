"""The controller's rule: one row for each way in which a PASS may not be acted on."""

from __future__ import annotations

from typing import Any

import pytest

from edge_app.client import Cause, ControllerRule, Decision, Delivery, Result

GOOD: dict[str, Any] = {
    "node": "l1/st1", "epoch": "e", "seq": 1, "trigger_id": 7, "part_id": "A", "verdict": "PASS", "reason": "OK",
    "t_done_us": 100, "deadline_us": 200, "recipe_rev": "r1", "simulated": False, "delivery": Delivery.LIVE,
    "age_us": 5, "lost_before": 0,
}


def rule(**changes: Any) -> ControllerRule:
    made = ControllerRule("r1", 1000, **changes)
    made.triggered(7, 0)
    return made


@pytest.mark.parametrize(
    ("change", "fault", "cause"),
    [
        ({}, None, Cause.GOOD),
        ({"deadline_us": None}, None, Cause.GOOD),
        ({"verdict": "FAIL", "reason": "DEFECT"}, None, Cause.FAIL),
        ({"verdict": "UNKNOWN", "reason": "LATE"}, None, Cause.UNKNOWN),
        ({"delivery": Delivery.REPLAYED}, None, Cause.NOT_LIVE),
        ({"delivery": Delivery.STALE}, None, Cause.NOT_LIVE),
        ({"t_done_us": 201}, None, Cause.LATE),
        ({"simulated": True}, None, Cause.SIMULATED),
        ({"recipe_rev": "r2"}, None, Cause.WRONG_RECIPE),
        ({}, "no heartbeat for 3.2 s", Cause.FAULT),
    ],
)
def test_only_a_certain_pass_is_accepted(change: dict[str, Any], fault: str | None, cause: Cause) -> None:
    decision = rule().decide(Result(**{**GOOD, **change}), fault)
    assert decision is not None
    assert (decision.trigger_id, decision.accept, decision.cause) == (7, cause is Cause.GOOD, cause)


def test_a_trial_may_accept_simulated_results() -> None:
    decision = rule(allow_simulated=True).decide(Result(**{**GOOD, "simulated": True}), None)
    assert decision is not None
    assert decision.accept


def test_a_result_of_another_run_is_of_another_part() -> None:
    """A camera's triggers are counted anew after a restart: the seventh of the new run is not the part that waits."""
    made = ControllerRule("r1", 1000)
    made.triggered(7, 0, "e")
    made.triggered(8, 0, "e")
    decision = made.decide(Result(**{**GOOD, "epoch": "f"}), None)
    assert decision is not None
    assert (decision.accept, decision.cause) == (False, Cause.OTHER_RUN)
    other = made.decide(Result(**{**GOOD, "trigger_id": 8}), None)
    assert other is not None
    assert other.accept


def test_a_trigger_is_decided_once() -> None:
    made = rule()
    assert made.decide(Result(**GOOD), None) is not None
    assert made.decide(Result(**GOOD), None) is None
    assert made.decide(Result(**{**GOOD, "trigger_id": 8}), None) is None


def test_a_trigger_without_a_result_is_rejected_when_its_time_is_up() -> None:
    made = rule()
    assert made.overdue(999) == []
    (decision,) = made.overdue(1000)
    assert (decision.trigger_id, decision.accept, decision.cause) == (7, False, Cause.NO_RESULT)
    assert made.pending == 0
    assert made.decide(Result(**GOOD), None) is None


def test_two_parts_with_one_id_are_both_rejected_whatever_result_comes() -> None:
    """The second took the place of the first: one decision for two parts, by a result of either."""
    rule = ControllerRule(None, 1_000_000)
    rule.triggered(7, 0, "e1")
    rule.triggered(7, 1000, "e1")
    assert rule.pending == 2
    assert rule.decide(Result(**{**GOOD, "epoch": "e1"}), None) is None
    assert rule.overdue(500_000) == []
    assert rule.overdue(1_001_000) == [Decision(7, False, Cause.DUPLICATE)] * 2
    assert rule.pending == 0


def test_an_id_that_comes_again_in_another_run_rejects_the_part_before_and_not_its_own() -> None:
    rule = ControllerRule(None, 1_000_000)
    rule.triggered(1, 0, "e1")
    rule.triggered(1, 1000, "e2")
    assert rule.overdue(2000) == [Decision(1, False, Cause.OTHER_RUN)]
    decision = rule.decide(Result(**{**GOOD, "trigger_id": 1, "epoch": "e2"}), None)
    assert decision is not None
    assert decision.accept
