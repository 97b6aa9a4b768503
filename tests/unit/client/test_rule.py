"""The controller's rule: one row for each way in which a PASS may not be acted on."""

from __future__ import annotations

from typing import Any

import pytest

from edge_app.client import Cause, ControllerRule, Delivery, Result

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
