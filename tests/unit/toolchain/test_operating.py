from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_app.config.judge import Judge
from edge_app.detections import Detections
from edge_app.errors import ConfigError
from edge_app.evaluate import PartVerdicts
from edge_app.judge import make_recipe
from edge_app.toolchain.metrics import Truth
from edge_app.toolchain.operating import (
    ESCAPED_SHARE,
    GOOD_FAILED_SHARE,
    GOOD_UNKNOWN_SHARE,
    Thresholds,
    choose_thresholds,
)

LABELS = ("a", "b", "c", "d", "e", "f")
BOX = (10.0, 10.0, 30.0, 30.0)


def part(*found: tuple[int, float]) -> Detections:
    """(label, score) of each detection, all of them in the same place."""
    best_first = sorted(found, key=lambda pair: -pair[1])
    return Detections(
        np.array([BOX] * len(found), np.float32).reshape(-1, 4),
        np.array([score for _, score in best_first], np.float32),
        np.array([label for label, _ in best_first], np.int32),
    )


def truth(label: int) -> Truth:
    return Truth(np.array([BOX], np.float32), np.array([label], np.int32))


def defects(scores: tuple[float, ...], labels: int = len(LABELS)) -> tuple[list[Detections], list[Truth]]:
    """For each label a defective part per score, found at it."""
    pairs = [(part((label, score)), truth(label)) for label in range(labels) for score in scores]
    return [found for found, _ in pairs], [real for _, real in pairs]


def verdicts(chosen: Thresholds, parts: list[Detections], labels: tuple[str, ...] = LABELS) -> PartVerdicts:
    return PartVerdicts.of(parts, make_recipe(Judge(), labels, chosen.score, chosen.marginal))


def test_the_share_of_failed_good_parts_holds_for_all_labels_together() -> None:
    found, real = defects((0.9, 0.8, 0.7, 0.6, 0.5))
    # One good part of a hundred fails by each label: within a bound for each, six times over the bound for all.
    good = [part((label, 0.55)) for label in range(6)] + [part() for _ in range(94)]
    chosen = choose_thresholds(found, real, good, LABELS)
    assert verdicts(chosen, good).failed == 1
    assert chosen.not_held == ("5 of 100 good parts are UNKNOWN; wanted at most 1 %: 1",)
    assert verdicts(chosen, found).passed == 0
    assert sorted(chosen.score.values())[:2] == [0.5, 0.551]


def test_the_score_that_costs_least_recall_is_raised() -> None:
    found, real = defects((0.9, 0.8, 0.7), labels=2)
    more, same = defects((0.5, 0.49, 0.48), labels=1)
    # Both labels fail one good part at 0.6; raising "a" past it would lose three defects, raising "b" none.
    good = [part((0, 0.6)), part((1, 0.6))] + [part() for _ in range(98)]
    chosen = choose_thresholds(found + more, real + same, good, ("a", "b"))
    assert chosen.score == {"a": 0.479, "b": 0.699}
    assert verdicts(chosen, good, ("a", "b")).failed == 1


def test_a_fail_is_kept_for_what_is_sure() -> None:
    found, real = defects((0.9,) * 80 + (0.8,) * 19 + (0.4,), labels=1)
    chosen = choose_thresholds(found, real, [part((0, 0.1))] * 10, ("a",))
    assert chosen.score == {"a": 0.8}, "not 0.4, where F1 is highest: one part of a hundred may be UNKNOWN"
    assert (verdicts(chosen, found, ("a",)).unknown, verdicts(chosen, found, ("a",)).passed) == (1, 0)


def test_parts_that_no_score_could_fail_hold_up_none_that_one_can() -> None:
    found, real = defects((0.9,) * 300 + (0.8, 0.79), labels=1)
    hopeless = [part((0, 0.1))] * 3
    chosen = choose_thresholds([*found, *hopeless], [*real, truth(1), truth(1), truth(1)], [], ("a",))
    assert chosen.score == {"a": 0.79}


def test_every_part_fails_where_one_would_be_more_than_the_share() -> None:
    found, real = defects((0.9,) * 80 + (0.8,) * 18 + (0.4,), labels=1)
    assert choose_thresholds(found, real, [], ("a",)).score == {"a": 0.4}


def test_a_part_that_two_labels_fail_is_freed_by_two_steps() -> None:
    found, real = defects((0.9, 0.5), labels=2)
    good = [part((0, 0.6), (1, 0.7))] + [part() for _ in range(20)]
    chosen = choose_thresholds(found, real, good, ("a", "b"))
    assert chosen.score == {"a": 0.601, "b": 0.701}
    assert verdicts(chosen, good, ("a", "b")).failed == 0


def test_a_defect_that_would_pass_pulls_the_grey_band_down_where_it_costs_no_good_part() -> None:
    found, real = defects((0.9,) * 300, labels=2)
    missed = part((0, 0.2), (1, 0.3))
    found, real = [*found, missed, missed, missed, missed], [*real, truth(0), truth(0), truth(0), truth(0)]
    good = [part((1, 0.35))] * 40 + [part()] * 60
    chosen = choose_thresholds(found, real, good, ("a", "b"))
    assert chosen.marginal["a"] == pytest.approx(0.2, abs=0.001)
    assert chosen.marginal["b"] > 0.35
    assert (verdicts(chosen, found, ("a", "b")).passed, verdicts(chosen, good, ("a", "b")).unknown) == (0, 0)


def test_an_escape_is_dearer_than_a_second_look() -> None:
    found, real = defects((0.9, 0.9, 0.9, 0.2), labels=1)
    good = [part((0, 0.25))] * 50 + [part()] * 50
    chosen = choose_thresholds(found, real, good, ("a",))
    assert verdicts(chosen, found, ("a",)).passed == 0
    assert verdicts(chosen, good, ("a",)).unknown + verdicts(chosen, good, ("a",)).failed == 50
    assert "UNKNOWN" in " ".join(chosen.not_held)


def test_defects_that_nothing_points_to_are_told() -> None:
    found, real = defects((0.9, 0.8), labels=1)
    chosen = choose_thresholds([*found, part()], [*real, truth(0)], [], ("a",))
    assert chosen.not_held == ("1 of 3 defective parts PASS; wanted at most 0.5 %: 0",)


def test_a_label_that_is_never_found_is_an_error() -> None:
    found, real = defects((0.9,), labels=1)
    with pytest.raises(ConfigError, match="no b was found"):
        choose_thresholds(found, real, [], ("a", "b"))


scores = st.integers(1, 999).map(lambda n: n / 1000)
lists = st.lists(st.tuples(st.integers(0, 2), scores), max_size=4)


@settings(max_examples=30, deadline=None)
@given(st.lists(lists, min_size=3, max_size=12), st.lists(lists, max_size=30))
def test_what_is_said_to_hold_holds_as_the_judge_sees_it(bad: list, good: list) -> None:
    found = [part((label, 0.9), *extra) for label, extra in zip([0, 1, 2] * 4, bad, strict=False)]
    real = [truth(label) for label, _ in zip([0, 1, 2] * 4, bad, strict=False)]
    fine = [part(*extra) for extra in good]
    chosen = choose_thresholds(found, real, fine, LABELS[:3])
    bad_parts, good_parts = verdicts(chosen, found, LABELS[:3]), verdicts(chosen, fine, LABELS[:3])
    said = " ".join(chosen.not_held)
    assert (good_parts.failed > int(GOOD_FAILED_SHARE * len(fine))) == ("FAIL" in said)
    assert (good_parts.unknown > int(GOOD_UNKNOWN_SHARE * len(fine))) == ("UNKNOWN" in said)
    assert (bad_parts.passed > int(ESCAPED_SHARE * len(found))) == ("PASS" in said)
    assert all(chosen.marginal[label] <= chosen.score[label] for label in LABELS[:3])
    assert "FAIL" not in said
