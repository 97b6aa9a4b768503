"""From detections to a verdict: pure, by the recipe.

PASS needs a complete, valid inference on a picture in which a defect could have been seen; the frame guard
(edge_app.guard) decides the latter and comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edge_app.config.judge import Judge
from edge_app.detections import Classes, Detections
from edge_app.errors import ConfigError, RuntimeFault
from edge_app.verdict import Defect, Judgement, Reason

DEFAULT_SCORE = 0.5


class Rule(NamedTuple):
    """What the recipe says of one label."""

    label: str
    score: float
    lowest: float
    """Score below which a detection is not looked at."""
    min_size_px: float
    max_count: int


@dataclass(frozen=True)
class Recipe:
    """The judge's rules, one entry per label of the model, in the model's order."""

    labels: tuple[str, ...]
    score: npt.NDArray[np.float32]
    """[C] FAIL at or above."""
    marginal: npt.NDArray[np.float32]
    """[C] UNKNOWN at or above, below `score`."""
    min_size_px: npt.NDArray[np.float32]
    max_count: npt.NDArray[np.int64]
    inspect: tuple[npt.NDArray[np.float64], ...] = ()
    """Polygons [K, 2]; none: everywhere."""
    ignore: tuple[npt.NDArray[np.float64], ...] = ()

    @property
    def thresholds(self) -> npt.NDArray[np.float32]:
        """[C] the lowest score that matters; what the decoder may leave out is below."""
        return np.minimum(self.score, self.marginal)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The same by label, as numbers of Python: a frame has few detections, and NumPy costs more than they do."""
        columns = self.score, self.thresholds, self.min_size_px, self.max_count
        return tuple(map(Rule, self.labels, *(column.tolist() for column in columns)))


def make_recipe(
    judge: Judge,
    labels: tuple[str, ...],
    score: Mapping[str, float] | None = None,
    marginal: Mapping[str, float] | None = None,
    where: str | None = None,
) -> Recipe:
    """Resolves the recipe of a pipeline against a model.

    Args:
        judge: the pipeline's section.
        labels: of the model.
        score: the manifest's operating scores, where the recipe names none.
        marginal: the manifest's lower edge of the grey band, likewise.
        where: the recipe's file, for errors, if it is not the pipeline's own.

    Raises:
        ConfigError: a rule for a label that the model has not, or a grey band above its score.
    """
    if unknown := sorted(set(judge.classes) - set(labels)):
        raise ConfigError(
            "the model has no such label",
            where=_in_file(where, f"judge.classes.{unknown[0]}"),
            wanted=f"labels out of {', '.join(labels)}",
            got=", ".join(unknown),
            remedy="rename the rule, or remove it",
        )
    rules = [judge.classes.get(label, judge.default) for label in labels]
    high = [
        _first(rule.score, judge.default.score, (score or {}).get(label), DEFAULT_SCORE)
        for label, rule in zip(labels, rules, strict=True)
    ]
    low = [
        _first(rule.marginal, judge.default.marginal, (marginal or {}).get(label), top)
        for label, rule, top in zip(labels, rules, high, strict=True)
    ]
    for label, lower, upper, rule in zip(labels, low, high, rules, strict=True):
        if lower > upper and (rule.marginal is not None or judge.default.marginal is not None):
            raise ConfigError(
                f"the grey band of {label} starts above its score",
                where=_in_file(where, f"judge.classes.{label}" if label in judge.classes else "judge.default"),
                wanted=f"marginal <= {upper:g}",
                got=f"{lower:g}",
                remedy=f"lower judge.classes.{label}.marginal",
            )
    return Recipe(
        labels=labels,
        score=np.array(high, np.float32),
        # A recipe may lower a score below the manifest's grey band: the band then closes.
        marginal=np.minimum(np.array(low, np.float32), np.array(high, np.float32)),
        min_size_px=np.array([rule.min_size_px for rule in rules], np.float32),
        max_count=np.array([rule.max_count for rule in rules], np.int64),
        inspect=tuple(np.array(r.polygon_px, np.float64) for r in judge.regions if r.kind == "inspect"),
        ignore=tuple(np.array(r.polygon_px, np.float64) for r in judge.regions if r.kind == "ignore"),
    )


def _in_file(file: str | None, key: str) -> str:
    return key if file is None else f"{file}: {key}"


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)


def judge_classes(found: Detections | Classes, labels: tuple[str, ...]) -> Judgement:
    """One frame's probabilities, for a decision over many frames. UNKNOWN by itself: one frame decides nothing.

    NO_PART if a detector ahead of the classifier found nobody, INVALID_OUTPUT if it may not have told all that it
    found; no probabilities if it found what can't be classified.

    Raises:
        RuntimeFault: detections, or scores of other classes.
    """
    if isinstance(found, Detections) and found.truncated:
        return Judgement(Reason.INVALID_OUTPUT, "more candidates than the detector may give")
    if isinstance(found, Detections) and len(found) == 0 and found.unsure:
        return Judgement(Reason.MARGINAL, "the largest crop can't be put into the classifier")
    if isinstance(found, Detections) and len(found) == 0:
        return Judgement(Reason.NO_PART, "nobody was detected")
    if not isinstance(found, Classes) or len(found.scores) != len(labels):
        raise RuntimeFault("a decision over labels got something else than their scores", got=type(found).__name__)
    scores = tuple(zip(labels, map(float, found.scores), strict=True))
    several = f"{found.crops} are there: the largest is named" if found.crops > 1 else ""
    return Judgement(Reason.MARGINAL, several, classes=scores)


def judge(detections: Detections | Classes, recipe: Recipe) -> Judgement:
    """Judges the detections of one valid inference.

    Returns:
        FAIL/DEFECT if a class has more detections at or above its score than its max_count; else UNKNOWN/MARGINAL
        if one lies in the grey band or has no sure label; else PASS/OK.

    Raises:
        RuntimeFault: a classifier's scores.
    """
    if not isinstance(detections, Detections):
        raise RuntimeFault("a classifier came into a pipeline that judges defects")
    rules, counted = recipe.rules, _counted(detections, recipe)
    listed = tuple(_defect(rules[label].label, score, box_px) for label, score, box_px in counted)
    firm, grey = Counter[int](), ""
    for label, score, _ in counted:
        if score >= rules[label].score:
            firm[label] += 1
        elif not grey:
            grey = f"{rules[label].label} at {score:.2f}, in the grey band"
    over = [label for label in sorted(firm) if firm[label] > rules[label].max_count]
    if over:
        return Judgement(Reason.DEFECT, ", ".join(f"{firm[label]} {rules[label].label}" for label in over), listed)
    if detections.truncated:
        return Judgement(Reason.INVALID_OUTPUT, "more candidates than model.max_detections", listed)
    if detections.unsure:
        return Judgement(Reason.MARGINAL, f"{detections.unsure} crops without a sure label", listed)
    return Judgement(Reason.MARGINAL, grey, listed) if grey else Judgement(Reason.OK, "", listed)


def judge_crops(found: Detections | Classes, recipe: Recipe, fewest: int) -> Judgement:
    """Judges the named crops of one valid two-stage inference: as `judge`, and NO_PART if there are too few.

    A crop always is something: one whose label does not reach its score is not overlooked, but UNKNOWN.

    Raises:
        RuntimeFault: a classifier's scores.
    """
    if not isinstance(found, Detections):
        raise RuntimeFault("a classifier came into a pipeline that judges crops")
    crops = len(found) + found.unsure
    low = int((found.scores < recipe.thresholds[found.labels]).sum())
    judgement = judge(replace(found, unsure=found.unsure + low), recipe)
    if crops < fewest and judgement.reason in (Reason.OK, Reason.MARGINAL):
        return replace(judgement, reason=Reason.NO_PART, detail=f"{crops} crops, wanted at least {fewest}")
    return judgement


_Counted = tuple[int, float, list[float]]
"""Label, score, box."""


def _counted(detections: Detections, recipe: Recipe) -> list[_Counted]:
    """Which detections the recipe looks at: scored, large enough, in an inspected region, not ignored.

    One whose box has no area (turned inside out, or wholly off the frame) has neither a size nor a place that could
    excuse it: its score alone decides.
    """
    rules = recipe.rules
    found = zip(detections.labels.tolist(), detections.scores.tolist(), detections.boxes_px.tolist(), strict=True)
    counted = [
        (label, score, box) for label, score, box in found
        if score >= rules[label].lowest
        and (max(box[2] - box[0], box[3] - box[1]) >= rules[label].min_size_px or not _has_area(box))
    ]  # fmt: skip
    if counted and (recipe.inspect or recipe.ignore):
        looked_at = _looked_at(np.array([box for _, _, box in counted]), recipe)
        return [one for one, wanted in zip(counted, looked_at.tolist(), strict=True) if wanted or not _has_area(one[2])]
    return counted


def _has_area(box: list[float]) -> bool:
    return box[0] < box[2] and box[1] < box[3]


def _looked_at(boxes_px: npt.NDArray[np.float64], recipe: Recipe) -> npt.NDArray[np.bool_]:
    """[N] whether the middle of each box [N, 4] lies in an inspected region, and in none that is ignored."""
    middles = (boxes_px[:, :2] + boxes_px[:, 2:]) / 2
    ignored = [inside(middles, polygon) for polygon in recipe.ignore]
    inspected = [inside(middles, polygon) for polygon in recipe.inspect] or [np.ones(len(middles), np.bool_)]
    return np.asarray(np.any(inspected, axis=0) & ~np.any([np.zeros(len(middles), np.bool_), *ignored], axis=0))


def inside(points: npt.NDArray[np.floating], polygon: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """[N] whether points [N, 2] lie in a polygon [K, 2]: a ray to the right crosses an odd number of edges."""
    x, y = points[:, 0:1], points[:, 1:2]
    x0, y0 = polygon[:, 0], polygon[:, 1]
    x1, y1 = np.roll(x0, -1), np.roll(y0, -1)
    straddles = (y0 > y) != (y1 > y)
    height = np.where(y1 == y0, 1.0, y1 - y0)
    crosses = straddles & (x < (x1 - x0) * (y - y0) / height + x0)
    return np.asarray(crosses.sum(axis=1) % 2 == 1, np.bool_)


def _defect(label: str, score: float, box_px: list[float]) -> Defect:
    x0, y0, x1, y1 = box_px
    return Defect(label, round(score, 4), (round(x0, 1), round(y0, 1), round(x1, 1), round(y1, 1)))
