"""How good decisions are: a drawn mirror runs through the whole line, and every frame's truth is known.

Time is the drawing's: frames carry the moments at which they would have come, so the result does not depend on how fast
this machine is; only the duty cycle does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import dropwhile, pairwise

import numpy as np

from edge_app.camera.mirror import MirrorSource
from edge_app.camera.mirror_scenes import Moment
from edge_app.config.mirror import Energy
from edge_app.config.pipeline import Pipeline
from edge_app.config.runtime import Limits
from edge_app.deciding import DecisionSealer, estimated_w, shown_by
from edge_app.errors import EdgeAppError
from edge_app.frame import Frame
from edge_app.line import Line
from edge_app.motion import Look
from edge_app.placed import Placed
from edge_app.sealing import Ticket
from edge_app.verdict import Judgement, Mode, Placement, Reason, Sealed

OFFLINE = Limits(pacing="offline", slots=1)
"""One frame at a time: the order of what is seen is then the order in which it came."""


@dataclass
class Kept:
    """An outlet that keeps decisions, and nothing of the frames."""

    results: list[Sealed] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)

    def result(self, sealed: Sealed) -> None:
        """See sealing.Outlet."""
        self.results.append(sealed)

    def state(self, mode: Mode, was: Mode, placement: Placement, reason: str) -> None:
        """See sealing.Outlet."""

    def alarm(self, name: str, active: bool, text: str, remedy: str) -> None:
        """See sealing.Outlet."""
        if active:
            self.alarms.append(f"{name}: {text}")

    def evidence(self, frame: Frame, give_back: Callable[[Frame], None]) -> bool:
        """See sealing.Outlet."""
        return False

    def note(self, seq: int, text: str) -> None:
        """See sealing.Outlet."""


class Watched(DecisionSealer):
    """A DecisionSealer that remembers what each frame said."""

    frames: dict[int, Judgement]
    told: dict[int, tuple[Reason, str | None]]

    def seal(self, ticket: Ticket, judgement: Judgement) -> bool:
        """See DecisionSealer."""
        if not hasattr(self, "frames"):
            self.frames, self.told = {}, {}
        changed = super().seal(ticket, judgement)
        stable = self.following.told
        self.frames[ticket.frame_id] = judgement
        if stable is not None:
            label = None if stable.label is None else self._labels[stable.label]
            self.told[ticket.frame_id] = stable.reason, label
        return changed


@dataclass(frozen=True)
class Run:
    """What came of it, frame by frame, in order."""

    rate_fps: float
    moments: list[Moment]
    guesses: list[str | None]
    """The best label of an inferred frame; None: the frame was not inferred."""
    told: list[tuple[Reason, str | None] | None]
    """The decision in force after each frame."""
    looks: dict[Look, int]
    infer_us: int
    results: list[Sealed]
    not_seen: dict[Reason, int] = field(default_factory=dict)
    """Frames on which nothing could be seen, by reason: dark, late, a fault."""


def run_mirror(pipeline: Pipeline, placed: Placed, source: MirrorSource, progress: Callable[[int], None]) -> Run:
    """Runs an opened, unpaced source through a line of this pipeline.

    Raises:
        EdgeAppError: what ended the line, or what it raised an alarm about.
    """
    assert pipeline.decision is not None
    kept = Kept()
    line = Line(
        source, placed.engines, placed.placer, placed.recipes.own.inspection, kept, OFFLINE, 60_000,
        degraded=placed.degraded, make_sealer=partial(Watched, pipeline.decision, placed.recipes.labels),
    )  # fmt: skip
    line.start()
    sealer = line.sealer
    assert isinstance(sealer, Watched)
    while not line.wait(0.2):
        progress(sealer.triggers)
    line.close()
    if kept.alarms:
        raise EdgeAppError("the line was in trouble: nothing of this can be trusted", got="; ".join(kept.alarms))
    gate, count = placed.recipes.gate, source.scenes.frames
    return Run(
        rate_fps=1e6 / source.period_us,
        moments=[source.scenes.moment(k) for k in range(count)],
        guesses=[_guess(sealer.frames[k + 1]) for k in range(count)],
        told=[sealer.told.get(k + 1) for k in range(count)],
        looks={} if gate is None else dict(gate.counts),
        infer_us=sealer.effort.infer_us,
        results=kept.results,
        not_seen=dict(Counter(one.reason for one in sealer.frames.values() if shown_by(one).is_blind)),
    )


def offline(pipeline: Pipeline) -> Pipeline:
    """The same pipeline for frames whose times are not this machine's: without deadline, one frame at a time."""
    return pipeline.model_copy(update={"limits": OFFLINE})


def _guess(judgement: Judgement) -> str | None:
    if judgement.classes is None:
        return None
    return max(judgement.classes, key=lambda one: one[1])[0]


def measures(run: Run, energy: Energy | None) -> dict[str, object]:
    """The figures, by stable keys. Shares are 0..1; None where there was nothing to count."""
    shown = [m.label for m in run.moments]
    seen = [(g, s) for g, s in zip(run.guesses, shown, strict=True) if g is not None and s is not None]
    labels = [None if told is None else told[1] for told in run.told]
    named = [(label, s) for label, s in zip(labels, shown, strict=True) if s is not None]
    minutes = len(run.moments) / run.rate_fps / 60
    inferences = sum(g is not None for g in run.guesses)
    duty = run.infer_us / (len(run.moments) / run.rate_fps * 1e6)
    return {
        "frames": len(run.moments),
        "minutes": round(minutes, 3),
        "accuracy_by_frame": _share([g == s for g, s in seen]),
        **_by_visit(run, labels),
        "named_share": _share([label is not None for label, _ in named]),
        "right_share_of_named": _share([label == s for label, s in named if label is not None]),
        "empty_told_empty": _share([t is not None and t[0] is Reason.NO_PART for t in _settled_empty(run)]),
        "label_flips_per_minute": round(_flips(labels, run.moments) / minutes, 3),
        "flips_per_minute_without_decision": round(_flips(run.guesses, run.moments) / minutes, 3),
        "decisions": len(run.results),
        "inferences": inferences,
        "inferences_saved": round(1 - inferences / len(run.moments), 4),
        "gate": {look.value: count for look, count in sorted(run.looks.items())},
        "not_seen": {reason.value: count for reason, count in sorted(run.not_seen.items())},
        "duty_cycle": round(duty, 4),
        "power_w_estimate": None if energy is None else round(estimated_w(energy, duty), 3),
    }


def _by_visit(run: Run, labels: list[str | None]) -> dict[str, object]:
    """Whether each visit's last named label was right, and how long after its first pixel the right one came."""
    right, waits_s = [], []
    for visit in sorted({m.visit for m in run.moments if m.label is not None}):
        frames = [k for k, m in enumerate(run.moments) if m.visit == visit and m.label is not None]
        wanted = run.moments[frames[0]].label
        last = [labels[k] for k in frames if labels[k] is not None]
        right.append(bool(last) and last[-1] == wanted)
        came = next(k for k, m in enumerate(run.moments) if m.visit == visit)
        first = next((k for k in range(came, frames[-1] + 1) if labels[k] == wanted), None)
        if first is not None:
            waits_s.append((first - came) / run.rate_fps)
    return {
        "visits": len(right),
        "accuracy_by_decision": _share(right),
        "seconds_to_label_p50": _percentile(waits_s, 50),
        "seconds_to_label_p90": _percentile(waits_s, 90),
    }


def _settled_empty(run: Run) -> list[tuple[Reason, str | None] | None]:
    """Decisions in force where nobody has been there for a second."""
    settle = round(run.rate_fps)
    empties = [m.empty for m in run.moments]
    return [told for k, told in enumerate(run.told) if k >= settle and all(empties[k - settle : k + 1])]


def _flips(labels: list[str | None], moments: list[Moment]) -> int:
    """Changes from one label to another while the same garment is whole in the frame.

    The label of whoever was there before is not counted: that it goes is right.
    """
    flips = 0
    for visit in {m.visit for m in moments if m.label is not None}:
        frames = [k for k, m in enumerate(moments) if m.visit == visit and m.label is not None]
        own = list(dropwhile(lambda k: labels[k] == labels[frames[0] - 1], frames)) if frames[0] else frames  # noqa: B023
        named = [labels[k] for k in own if labels[k] is not None]
        flips += sum(one != other for one, other in pairwise(named))
    return flips


def _share(values: list[bool]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None


def _percentile(values: list[float], percent: float) -> float | None:
    return round(float(np.percentile(values, percent)), 3) if values else None
