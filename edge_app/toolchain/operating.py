"""Operating scores and grey bands, chosen for all labels together on a labelled list (never test).

A part fails by any of its labels, so shares that each label keeps for itself add up. The bounds here are on parts:

1. Each score begins where the label's F1 at IoU 0.5 is highest, and is raised as far as at most UNSURE_SHARE of the
   defective parts do not FAIL, and FIRM_SHARE of the label's true detections still do so alone. What lies between a
   score and its grey band's edge is UNKNOWN and no escape, so FAIL can be kept for what is sure: flaws of good parts
   that look like defects, and that no list has all of, rarely score as high as defects do.
2. While more than GOOD_FAILED_SHARE of the good parts FAIL, one label's score is raised past one or more of them: of
   all such steps the one that loses the fewest true detections per good part freed.
3. Each grey band begins where RECALL_KEPT of the label's true detections lie above its lower edge.
4. While more than ESCAPED_SHARE of the defective parts PASS, one lower edge is lowered to a detection of one of them:
   the step that makes the fewest good parts UNKNOWN per defective part caught.
5. While more than GOOD_UNKNOWN_SHARE of the good parts are UNKNOWN, one lower edge is raised: the step that lets the
   fewest defective parts pass, then loses the fewest true detections, per good part freed; never one that lets more
   than ESCAPED_SHARE pass, since an escape is dearer than a second look.

Greedy: each step is the cheapest at its time, the whole is not proven to be. What no step could hold is told.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_app.detections import Detections, iou
from edge_app.errors import ConfigError
from edge_app.toolchain.metrics import IOU_50, Truth

GOOD_FAILED_SHARE = 0.01
"""A third of what a line may reject falsely: parts that nothing was chosen on are harder."""
GOOD_UNKNOWN_SHARE = 0.01
UNSURE_SHARE = 0.01
"""Of the defective parts, those that do not FAIL: UNKNOWN if their grey bands hold them."""
FIRM_SHARE = 0.9
"""Of a label's true detections, those that FAIL a part by themselves: a defect is rarely alone, but it may be."""
ESCAPED_SHARE = 0.005
RECALL_KEPT = 0.995
LOWEST_MARGINAL = 0.05
"""A grey band that reaches further down holds noise."""
STEP = 1000
"""Scores are written with three digits."""

Scores = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Thresholds:
    """Operating scores and lower edges of the grey band, by label, and the bounds that they do not hold on the list."""

    score: dict[str, float]
    marginal: dict[str, float]
    not_held: tuple[str, ...] = ()


@dataclass(frozen=True)
class Peaks:
    """All that verdicts depend on: each part's highest score by label, and the scores of the true detections."""

    good: Scores
    """[G, C] of the defect-free parts; 0 where a label was not found."""
    bad: Scores
    """[B, C] of the defective ones."""
    hits: tuple[Scores, ...]
    """By label, those that hit a box."""

    def failed(self, score: Scores) -> int:
        """Good parts that FAIL."""
        return int((self.good >= score).any(axis=1).sum())

    def unknown(self, score: Scores, marginal: Scores) -> int:
        """Good parts that are UNKNOWN."""
        return int((self.good >= marginal).any(axis=1).sum()) - self.failed(score)

    def unsure(self, score: Scores) -> int:
        """Defective parts that do not FAIL."""
        return int((self.bad < score).all(axis=1).sum())

    def escaped(self, marginal: Scores) -> int:
        """Defective parts that PASS."""
        return int((self.bad < marginal).all(axis=1).sum())

    def hits_between(self, label: int, low: float, high: float) -> int:
        """True detections of a label from `low` to below `high`."""
        found = self.hits[label]
        return int(((found >= np.float32(low)) & (found < np.float32(high))).sum())


@dataclass(frozen=True, slots=True)
class _Step:
    """One label's limit moved: what it gains and costs."""

    limits: Scores
    freed: int
    """Parts."""
    nearer: int
    """Labels that hold a part: a part that two labels hold is freed by no single step, but one can go towards it."""
    costs: tuple[float, ...]
    """The dearest kind first."""


def choose_thresholds(
    found: Sequence[Detections], truth: Sequence[Truth], good: Sequence[Detections], labels: Sequence[str]
) -> Thresholds:
    """Chooses as the module says.

    Args:
        found: in every labelled picture, down to a very low score.
        truth: of the same pictures.
        good: in all defect-free parts, those among the labelled pictures included; may be empty.
        labels: of the model.

    Raises:
        ConfigError: a label was found in no picture.
    """
    matched = [matched_scores(found, truth, label) for label in range(len(labels))]
    for name, (_, hit) in zip(labels, matched, strict=True):
        if not hit.any():
            raise ConfigError(
                f"no {name} was found in any picture: its score can't be chosen",
                wanted="a list with labelled pictures of every class",
                remedy="use more pictures",
            )
    defective = [one for one, real in zip(found, truth, strict=True) if len(real)]
    peaks = Peaks(
        _peaks(good, len(labels)), _peaks(defective, len(labels)), tuple(scores[hit] for scores, hit in matched)
    )
    best = [scores[np.argmax(f1_curve(hit, _boxes(truth, label)))] for label, (scores, hit) in enumerate(matched)]
    low = [np.quantile(hits, 1 - RECALL_KEPT) for hits in peaks.hits]
    score = _without_false_rejects(peaks, _as_high_as_defects(peaks, _rounded(best)))
    marginal = _without_escapes(peaks, np.minimum(_rounded(low), score))
    marginal = _with_few_unknown(peaks, score, marginal)
    return Thresholds(_named(labels, score), _named(labels, marginal), tuple(_not_held(peaks, score, marginal)))


def _as_high_as_defects(peaks: Peaks, best: Scores) -> Scores:
    """Lowers scores from where FIRM_SHARE of the detections are firm until few enough defective parts do not FAIL."""
    score = np.maximum(best, _rounded([np.quantile(hits, 1 - FIRM_SHARE) for hits in peaks.hits]))
    most_unsure = max(int(UNSURE_SHARE * len(peaks.bad)), peaks.unsure(best))

    def steps(unsure: Flags) -> Iterator[_Step]:
        for row in np.flatnonzero(unsure):
            for label in np.flatnonzero(peaks.bad[row] >= best):
                moved = _with(score, int(label), max(_rounded([peaks.bad[row, label]])[0], best[label]))
                caught = peaks.unsure(score) - peaks.unsure(moved)
                yield _Step(moved, caught, 0, (float(score[label] - moved[label]),))

    while peaks.unsure(score) > most_unsure:
        step = _cheapest(steps(_any(peaks.bad >= best) & ~_any(peaks.bad >= score)))
        if step is None:
            break
        score = step.limits
    return score


def _without_false_rejects(peaks: Peaks, score: Scores) -> Scores:
    """Raises scores until few enough good parts FAIL."""

    def steps(failing: Flags) -> Iterator[_Step]:
        for label, peak in _holding(failing, peaks.good):
            moved = _with(score, label, _above(peak))
            lost = peaks.hits_between(label, score[label], moved[label])
            yield _step(moved, failing, peaks.good >= moved, (lost,))

    while peaks.failed(score) > int(GOOD_FAILED_SHARE * len(peaks.good)):
        step = _cheapest(steps(peaks.good >= score))
        if step is None:
            break
        score = step.limits
    return score


def _without_escapes(peaks: Peaks, marginal: Scores) -> Scores:
    """Lowers lower edges until few enough defective parts PASS."""

    def steps(silent: Flags) -> Iterator[_Step]:
        for row in np.flatnonzero(silent):
            for label in np.flatnonzero(peaks.bad[row] >= LOWEST_MARGINAL):
                moved = _with(marginal, int(label), _rounded([peaks.bad[row, label]])[0])
                caught = int(silent.sum()) - peaks.escaped(moved)
                yield _Step(moved, caught, 0, (_reached(peaks.good, moved) - _reached(peaks.good, marginal),))

    while peaks.escaped(marginal) > int(ESCAPED_SHARE * len(peaks.bad)):
        step = _cheapest(steps(~_any(peaks.bad >= marginal)))
        if step is None:
            break
        marginal = step.limits
    return marginal


def _with_few_unknown(peaks: Peaks, score: Scores, marginal: Scores) -> Scores:
    """Raises lower edges until few enough good parts are UNKNOWN, as far as escapes allow."""
    failed = _any(peaks.good >= score)
    most_escaped = max(int(ESCAPED_SHARE * len(peaks.bad)), peaks.escaped(marginal))

    def steps(held: Flags) -> Iterator[_Step]:
        for label, peak in _holding(held, peaks.good):
            moved = _with(marginal, label, min(_above(peak), score[label]))
            escaped = peaks.escaped(moved)
            if escaped <= most_escaped:
                costs = (escaped - peaks.escaped(marginal), peaks.hits_between(label, marginal[label], moved[label]))
                yield _step(moved, held, (peaks.good >= moved) & ~failed[:, None], costs)

    while peaks.unknown(score, marginal) > int(GOOD_UNKNOWN_SHARE * len(peaks.good)):
        step = _cheapest(steps((peaks.good >= marginal) & ~failed[:, None]))
        if step is None:
            break
        marginal = step.limits
    return marginal


def _holding(held: Flags, scores: Scores) -> Iterator[tuple[int, float]]:
    """(label, score) of each detection that holds a part; those too high to be gone past are left out."""
    for label in range(held.shape[1]):
        for peak in np.unique(scores[held[:, label], label]):
            if _above(peak) <= 1:
                yield label, float(peak)


def _step(moved: Scores, before: Flags, after: Flags, costs: tuple[float, ...]) -> _Step:
    freed = int(before.any(axis=1).sum() - after.any(axis=1).sum())
    return _Step(moved, freed, int(before.sum() - after.sum()), costs)


def _cheapest(steps: Iterator[_Step]) -> _Step | None:
    """The step that costs least per part freed; where none frees any, per label that holds one."""
    offered = list(steps)
    for gain in ("freed", "nearer"):
        useful = [(step, getattr(step, gain)) for step in offered if getattr(step, gain) > 0]
        if useful:
            return min(useful, key=lambda pair: (*(cost / pair[1] for cost in pair[0].costs), -pair[1]))[0]
    return None


def _not_held(peaks: Peaks, score: Scores, marginal: Scores) -> Iterator[str]:
    for what, parts, share, of in (
        ("good parts FAIL", peaks.failed(score), GOOD_FAILED_SHARE, len(peaks.good)),
        ("good parts are UNKNOWN", peaks.unknown(score, marginal), GOOD_UNKNOWN_SHARE, len(peaks.good)),
        ("defective parts PASS", peaks.escaped(marginal), ESCAPED_SHARE, len(peaks.bad)),
    ):
        if parts > int(share * of):
            yield f"{parts} of {of} {what}; wanted at most {100 * share:g} %: {int(share * of)}"


def _reached(parts: Scores, limits: Scores) -> int:
    return int(_any(parts >= limits).sum())


def _any(held: Flags) -> Flags:
    """[N]: the parts that any label holds."""
    return np.asarray(held.any(axis=1), np.bool_)


def _peaks(parts: Sequence[Detections], labels: int) -> Scores:
    """[N, C]: each part's highest score by label, 0 where there is none."""
    peaks = np.zeros((len(parts), labels), np.float32)
    for row, one in enumerate(parts):
        np.maximum.at(peaks[row], one.labels, one.scores)
    return peaks


def _with(limits: Scores, label: int, value: float) -> Scores:
    moved = limits.copy()
    moved[label] = value
    return moved


def _rounded(scores: Sequence[float | np.floating[Any]] | Scores) -> Scores:
    """Three digits, never above what was given: what is at a score stays at or above it."""
    values = np.floor(np.asarray(scores, np.float64) * STEP) / STEP
    return np.maximum(values, 1 / STEP).astype(np.float32)


def _above(peak: float) -> float:
    """The lowest score of three digits that a detection of this score does not reach."""
    value = math.floor(float(peak) * STEP) / STEP
    while np.float32(value) <= np.float32(peak):
        value = round(value + 1 / STEP, 3)
    return value


def _named(labels: Sequence[str], limits: Scores) -> dict[str, float]:
    return {label: round(float(limit), 3) for label, limit in zip(labels, limits, strict=True)}


def matched_scores(found: Sequence[Detections], truth: Sequence[Truth], label: int) -> tuple[Scores, Flags]:
    """Scores [N] of a label's detections, highest first, and whether each hits a box that no better one had hit."""
    scores: list[float] = []
    hits: list[bool] = []
    for one, real in zip(found, truth, strict=True):
        own = one.labels == label
        scores += one.scores[own].tolist()
        hits += list(_hits(one.boxes_px[own], real.boxes_px[real.labels == label]))
    order = np.argsort(-np.array(scores, np.float32), kind="stable")
    return np.array(scores, np.float32)[order], np.array(hits, bool)[order]


def _hits(boxes: Scores, real: Scores) -> Iterator[bool]:
    free = np.ones(len(real), bool)
    for box in boxes:
        overlaps = np.where(free, iou(box, real), 0.0)
        hit = bool(overlaps.size and overlaps.max() >= IOU_50)
        if hit:
            free[int(overlaps.argmax())] = False
        yield hit


def f1_curve(hit: Flags, boxes: int) -> npt.NDArray[np.float64]:
    """F1 [N] if the score of the n-th best detection were the threshold."""
    true = np.cumsum(hit)
    return np.asarray(2 * true / (np.arange(1, len(hit) + 1) + max(boxes, 1)), np.float64)


def _boxes(truth: Sequence[Truth], label: int) -> int:
    return sum(int((one.labels == label).sum()) for one in truth)
