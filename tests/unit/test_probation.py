"""What the first frames of a new model must be like, and what ends its time at once."""

from __future__ import annotations

import pytest

from edge_app.probation import Probation, Punctuality
from edge_app.sealing import Ticket
from edge_app.verdict import Judgement, ModelIdentity, Placement, PlanKind, PowerMode, Reason, SchedReason

NEW, OLD = ModelIdentity("toy", "ab" * 32), ModelIdentity("toy", "ab" * 32)
PLACEMENT = Placement(PlanKind.CPU, PowerMode.NONE, 1.0, SchedReason.NORMAL)


def ticket(model: ModelIdentity = NEW, *tried: PlanKind) -> Ticket:
    return Ticket(1, 1, None, 0, 0, None, PLACEMENT, model=model, tried=tried)


def after(reasons: list[Reason], frames: int = 4, most_late: int = 2) -> Probation:
    made = Probation(NEW, frames, most_late)
    for reason in reasons:
        made.saw(ticket(), Judgement(reason))
    return made


def test_enough_inspected_frames_and_it_stays() -> None:
    made = after([Reason.OK, Reason.DEFECT, Reason.LATE, Reason.OVERRUN, Reason.MARGINAL])
    assert (made.over.is_set(), made.inspected, made.late) == (False, 3, 2)
    made.saw(ticket(), Judgement(Reason.OK))
    assert (made.over.is_set(), made.failure) == (True, None)


@pytest.mark.parametrize("reason", [Reason.INVALID_OUTPUT, Reason.RUNTIME_FAULT, Reason.INTERNAL])
def test_one_fault_and_it_goes(reason: Reason) -> None:
    made = after([Reason.OK, reason])
    assert made.over.is_set()
    assert reason in str(made.failure)


def test_too_many_late_frames_and_it_goes() -> None:
    made = after([Reason.LATE, Reason.OVERLOAD, Reason.OK, Reason.OVERRUN])
    assert "3 of its first 4 frames were not in time" in str(made.failure)


def test_a_frame_that_another_plan_rescued_is_a_fault_of_the_model() -> None:
    made = Probation(NEW, 4, 2)
    made.saw(ticket(NEW, PlanKind.HTP), Judgement(Reason.OK))
    assert "plan htp failed" in str(made.failure)


def test_frames_that_it_did_not_see_and_those_of_the_old_model_count_for_nothing() -> None:
    made = after([Reason.BAD_IMAGE, Reason.NO_PART, Reason.CAMERA_LOST, Reason.NOT_RUNNING] * 3, frames=1, most_late=0)
    made.saw(ticket(OLD), Judgement(Reason.INVALID_OUTPUT))
    assert (made.over.is_set(), made.inspected, made.late) == (False, 0, 0)


def test_triggers_whose_picture_never_came_are_not_the_models_fault() -> None:
    """Software triggers of a camera that stalls are LATE: they sent a good model back."""
    made, before = Probation(NEW, 1, 0), Punctuality()
    waiting = Ticket(1, 0, None, 0, 0, None, PLACEMENT, model=NEW)
    for _ in range(30):
        made.saw(waiting, Judgement(Reason.LATE))
        before.saw(waiting, Judgement(Reason.LATE))
    assert (made.over.is_set(), made.late, before.share) == (False, 0, 0.0)


def test_a_line_that_was_late_before_may_be_late_as_often_after() -> None:
    """On a hot board at rate 0.7 three of ten parts are OVERLOAD, whatever model inspects the others."""
    pattern = [Reason.OVERLOAD, Reason.OK, Reason.OK, Reason.OVERLOAD, Reason.OK, Reason.OK, Reason.OVERLOAD] + [
        Reason.OK
    ] * 3
    before = Punctuality()
    for reason in pattern * 4:
        before.saw(ticket(), Judgement(reason))
    assert before.share == pytest.approx(0.3)
    made = Probation(NEW, 100, 2, before.share)
    for reason in pattern * 15:
        made.saw(ticket(), Judgement(reason))
    assert (made.over.is_set(), made.failure) == (True, None)
    slower = Probation(NEW, 100, 2, before.share)
    for reason in [Reason.LATE, Reason.OK] * 100:
        slower.saw(ticket(), Judgement(reason))
    assert "LATE; at most" in str(slower.failure)
    assert "30% were before" in str(slower.failure)


def test_a_line_that_has_hardly_begun_says_nothing_about_its_punctuality() -> None:
    begun = Punctuality()
    for _ in range(10):
        begun.saw(ticket(), Judgement(Reason.LATE))
    assert begun.share == 0.0
