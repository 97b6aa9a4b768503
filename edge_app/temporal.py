"""From scores frame by frame to one stable decision: pure, no clock, no threads.

`follow` takes what one frame showed and gives the state after it. Probabilities are averaged over time; a label is
named when its average reaches `name_at` and has stayed the best for `dwell_s`, kept while it has `keep_at`, and never
kept longer than `hold_s` without a new inference. Whatever is seen must last `dwell_s` before it is told, so no two
changes are closer together than that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from edge_app.config.mirror import Decision
from edge_app.verdict import Reason

Scores = npt.NDArray[np.float32]
SEEING = (Reason.OK, Reason.MARGINAL, Reason.NO_PART)
"""All other reasons say why nothing could be seen."""
SKIPPED = (Reason.OVERLOAD, Reason.OVERRUN)
"""Frames that were left out so that others can be looked at: these may be far between."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What one frame showed. Exactly one of three kinds.

    Attributes:
        scores: calibrated probabilities [C] of a new inference; OK.
        reason: OK with scores; OK without: nothing has changed since the last inference (gated); NO_PART: nobody is
            there; else why nothing could be seen.
        detail: for people: why nothing could be seen; with scores, what else is to be said of them.
    """

    reason: Reason
    scores: Scores | None = None
    detail: str = ""

    @property
    def is_blind(self) -> bool:
        """Whether nothing could be seen."""
        return self.reason not in SEEING


@dataclass(frozen=True, slots=True)
class Stable:
    """What is told. Only OK has a label.

    Attributes:
        reason: OK: the label is sure; MARGINAL: somebody is there, but no label is sure; NO_PART: nobody is there; else
            why nothing can be seen.
        label: index of the label.
        since_us: when it was first seen; it was told `dwell_s` later.
        detail: for people.
    """

    reason: Reason
    label: int | None
    since_us: int
    detail: str = ""

    @property
    def is_blind(self) -> bool:
        """Whether nothing can be seen."""
        return self.reason not in SEEING

    def same_as(self, other: Stable | None) -> bool:
        """Whether both tell the same thing."""
        return other is not None and (self.reason, self.label) == (other.reason, other.label)


@dataclass(frozen=True, slots=True)
class Following:
    """The state. Times are monotonic microseconds.

    Attributes:
        average: smoothed probabilities [C]; None: nobody was seen since nobody was there.
        scores: of the last inference, which still stand while the gate finds nothing changed.
        now_us: of the last frame.
        inferred_us: of the last inference.
        seen_us: of the last inference, or of the last frame that showed that nobody is there.
        told: the decision in force; None: none yet.
        coming: what was seen last, if it is another one.
        remark: what else the last inference said, for people.
    """

    average: Scores | None = None
    scores: Scores | None = None
    now_us: int | None = None
    inferred_us: int | None = None
    seen_us: int | None = None
    told: Stable | None = None
    coming: Stable | None = None
    remark: str = ""


def follow(rules: Decision, state: Following, shown: Shown, now_us: int) -> tuple[Following, Stable | None]:
    """One frame.

    Args:
        rules: the pipeline's section.
        state: after the frame before.
        shown: what this one showed.
        now_us: when it was captured; one from before the last frame, or the last change, counts as at the same time.

    Returns:
        The state, and the decision if it is another one than was told before.
    """
    now_us = _later(state, now_us)
    patience_s = rules.hold_s if shown.reason in SKIPPED else rules.dwell_s
    recent = state.seen_us is not None and now_us - state.seen_us < patience_s * 1e6
    if shown.is_blind and recent and not _is_overdue(rules, state, now_us):
        return replace(state, now_us=now_us), None  # a frame that is lost among others that are seen says nothing
    state = _averaged(rules, state, shown, now_us)
    return _tell(rules, state, _candidate(rules, state, shown, now_us), now_us)


def wait(rules: Decision, state: Following, now_us: int) -> tuple[Following, Stable | None]:
    """No frame came, only time has passed: a label, or that nobody is there, is dropped when it has had its time."""
    now_us = _later(state, now_us)
    if not _is_overdue(rules, state, now_us):
        return state, None
    silent_us = now_us - (now_us if state.now_us is None else state.now_us)
    lost = Stable(Reason.CAMERA_LOST, None, now_us, f"no frame came for {silent_us / 1e6:.1f} s")
    silent = silent_us >= rules.dwell_s * 1e6
    return _tell(rules, state, lost if silent else _not_confirmed(rules, now_us), now_us)


def _later(state: Following, now_us: int) -> int:
    """`now_us`, but not before the last frame, nor before what is told was first seen: time never goes back."""
    known = [now_us] if state.now_us is None else [now_us, state.now_us]
    return max(known) if state.told is None else max(*known, state.told.since_us)


def _averaged(rules: Decision, state: Following, shown: Shown, now_us: int) -> Following:
    if shown.reason is Reason.NO_PART:  # whoever comes next owes nothing to who was here
        return replace(state, average=None, scores=None, now_us=now_us, seen_us=now_us, remark="")
    if shown.is_blind:
        return replace(state, now_us=now_us)
    scores = state.scores if shown.scores is None else shown.scores
    if scores is None:
        return replace(state, now_us=now_us)
    if shown.scores is not None:
        state = replace(state, inferred_us=now_us, seen_us=now_us, remark=shown.detail)
    if state.average is None or state.now_us is None or rules.smooth_s == 0:
        average = scores
    else:
        share = np.float32(1 - math.exp((state.now_us - now_us) / (rules.smooth_s * 1e6)))
        average = (state.average + share * (scores - state.average)).astype(np.float32)
    return replace(state, average=average, scores=scores, now_us=now_us)


def _candidate(rules: Decision, state: Following, shown: Shown, now_us: int) -> Stable:
    """What this frame, with those before it, would tell."""
    if shown.reason is not Reason.OK:
        return Stable(shown.reason, None, now_us, shown.detail)
    if state.average is None or state.seen_us is None:
        return Stable(Reason.MARGINAL, None, now_us, "nothing was inferred yet")
    best = int(np.argmax(state.average))
    kept = state.told.label if state.told is not None else None
    if state.average[best] >= rules.name_at and (best == kept or _is_fresh(rules, state, now_us)):
        return Stable(Reason.OK, best, now_us)
    if kept is not None and state.average[kept] >= rules.keep_at:
        return Stable(Reason.OK, kept, now_us)
    return Stable(Reason.MARGINAL, None, now_us, f"no label reaches {100 * rules.name_at:g} %")


def _is_fresh(rules: Decision, state: Following, now_us: int) -> bool:
    """Whether a label named now has dwell_s at least before it would be overdue."""
    return state.seen_us is not None and now_us - state.seen_us <= (rules.hold_s - rules.dwell_s) * 1e6


def _is_overdue(rules: Decision, state: Following, now_us: int) -> bool:
    """Whether a label is in force, or that nobody is there, that nothing has confirmed for hold_s.

    Only an inference confirms a label; that nobody is there, seen for less than dwell_s, does not prolong it.
    """
    if state.told is None or state.told.reason not in (Reason.OK, Reason.NO_PART):
        return False
    confirmed_us = state.seen_us if state.told.label is None else state.inferred_us
    return confirmed_us is not None and now_us - confirmed_us >= rules.hold_s * 1e6


def _not_confirmed(rules: Decision, now_us: int) -> Stable:
    return Stable(Reason.MARGINAL, None, now_us, f"nothing was inferred for {rules.hold_s:g} s")


def _tell(rules: Decision, state: Following, candidate: Stable, now_us: int) -> tuple[Following, Stable | None]:
    if _is_overdue(rules, state, now_us):
        told = _not_confirmed(rules, now_us) if candidate.label is not None else candidate
        return replace(state, told=told, coming=None, average=None, scores=None), told
    if candidate.same_as(state.told):
        return replace(state, coming=None), None
    coming = state.coming if state.coming is not None and candidate.same_as(state.coming) else candidate
    holds = candidate.is_blind and state.told is not None and state.told.label is not None
    if holds or now_us - coming.since_us < rules.dwell_s * 1e6:
        return replace(state, coming=coming), None
    told = replace(coming, detail=candidate.detail)
    return replace(state, told=told, coming=None), told
