"""The figures of a mirror's evaluation, on runs whose figures are known."""

from __future__ import annotations

from edge_app.camera.mirror_scenes import Moment
from edge_app.config.mirror import Energy
from edge_app.evaluate_decisions import Run, measures
from edge_app.motion import Look
from edge_app.verdict import Reason

HAT, SKIRT = Moment(0, "hat", False), Moment(1, "skirt", False)
COMING, EMPTY = Moment(0, None, False), Moment(-1, None, True)
NOBODY = (Reason.NO_PART, None)


def told(label: str) -> tuple[Reason, str | None]:
    return Reason.OK, label


def of(frames: list[tuple[Moment, str | None, tuple[Reason, str | None] | None]]) -> dict[str, object]:
    """Ten frames a second: moment, guess, decision in force."""
    moments, guesses, decisions = (list(column) for column in zip(*frames, strict=True))
    looks = {Look.MOVING: sum(g is not None for g in guesses), Look.STILL: sum(g is None for g in guesses)}
    run = Run(10.0, moments, guesses, decisions, looks, infer_us=100_000, results=[])
    return measures(run, Energy(idle_w=1.0, active_w=3.0))


def test_a_visit_without_a_fault() -> None:
    found = of(
        [(EMPTY, None, NOBODY)] * 20 + [(COMING, "skirt", NOBODY)] * 2
        + [(HAT, "hat", NOBODY)] * 5 + [(HAT, None, told("hat"))] * 13
    )  # fmt: skip
    assert found["accuracy_by_frame"] == 1.0, "frames on which a garment is not whole have no true label"
    assert (found["visits"], found["accuracy_by_decision"]) == (1, 1.0)
    assert (found["named_share"], found["right_share_of_named"]) == (0.7222, 1.0)
    assert (found["seconds_to_label_p50"], found["seconds_to_label_p90"]) == (0.7, 0.7), "from its first pixel on"
    assert found["empty_told_empty"] == 1.0
    assert (found["label_flips_per_minute"], found["flips_per_minute_without_decision"]) == (0.0, 0.0)
    assert (found["frames"], found["inferences"], found["inferences_saved"]) == (40, 7, 0.825)
    assert (found["duty_cycle"], found["power_w_estimate"]) == (0.025, 1.05)
    assert found["gate"] == {"moving": 7, "still": 33}


def test_flips_are_changes_of_label_before_one_garment() -> None:
    guesses = ["hat", "skirt", "hat", "hat"] * 3
    found = of([(HAT, guess, told("hat")) for guess in guesses])
    assert found["accuracy_by_frame"] == 0.75
    assert found["flips_per_minute_without_decision"] == 6 / (12 / 600)
    assert found["label_flips_per_minute"] == 0.0


def test_the_label_of_whoever_was_there_before_is_no_flip() -> None:
    skirt = [(SKIRT, "skirt", told("hat"))] * 3 + [(SKIRT, "skirt", told("skirt"))] * 3
    found = of([(HAT, "hat", told("hat"))] * 6 + skirt)
    assert found["label_flips_per_minute"] == 0.0
    assert found["accuracy_by_decision"] == 1.0
    assert found["right_share_of_named"] == 0.75
    assert found["seconds_to_label_p90"] == 0.27


def test_wrong_and_missing_decisions_count_against_it() -> None:
    found = of([(HAT, "skirt", told("skirt"))] * 6 + [(SKIRT, "skirt", (Reason.MARGINAL, None))] * 6)
    assert (found["visits"], found["accuracy_by_decision"]) == (2, 0.0)
    assert found["seconds_to_label_p50"] is None
    assert found["accuracy_by_frame"] == 0.5


def test_nothing_shown_gives_no_figures() -> None:
    found = of([(EMPTY, None, None)] * 30)
    assert found["accuracy_by_frame"] is found["accuracy_by_decision"] is found["named_share"] is None
    assert found["empty_told_empty"] == 0.0
