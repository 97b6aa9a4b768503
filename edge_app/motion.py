"""The motion gate: whether a frame needs an inference at all. It decides on luma alone and never makes a result.

Each frame's thumbnail is compared, in C, with that of the frame that was inferred last (has anything changed since we
last looked?) and with the empty scene (is anybody there?). `step` is the decision, pure; `MotionGate` keeps thumbnails
and counts.

A gate skips frames, so it belongs to pipelines that name what stands before them; where parts are judged it is refused
(edge_app.config.pipeline).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from edge_app.config.mirror import Gate
from edge_app.engine import memory_of, source_of
from edge_app.errors import CameraError
from edge_app.frame import Frame
from edge_app.preprocess import Source, Thumbnailer, difference
from edge_app.preprocess.geometry import Region
from edge_app.preprocess.thumbnail import Luma

ADAPT_US = 500_000
"""The empty scene follows daylight: one grey level in this time, while nobody is there."""


class Look(StrEnum):
    """What the gate says of a frame. Only MOVING and KEEP_ALIVE are inferred."""

    MOVING = "moving"
    KEEP_ALIVE = "keep_alive"
    STILL = "still"
    PACED = "paced"
    EMPTY = "empty"

    @property
    def inferred(self) -> bool:
        """Whether the frame goes on to the model."""
        return self in (Look.MOVING, Look.KEEP_ALIVE)


@dataclass(frozen=True, slots=True)
class GateState:
    """What the gate remembers. Times are monotonic microseconds; None: not yet."""

    moving: bool = True
    quiet_since_us: int | None = None
    """Since when less than `still` has changed."""
    looked_us: int | None = None
    """The last inference."""


def step(
    gate: Gate, state: GateState, now_us: int, changed: float | None, differs: float | None
) -> tuple[GateState, Look]:
    """Decides on one frame.

    Args:
        gate: the pipeline's section.
        state: after the frame before.
        now_us: when the frame was captured; never falls.
        changed: share of points that changed since the last inference, 0..1; None: there was none.
        differs: share of points that differ from the empty scene, 0..1; None: what is empty is not known.
    """
    if changed is None or changed >= gate.moving:
        state = replace(state, moving=True, quiet_since_us=None)
    elif changed >= gate.still:
        state = replace(state, quiet_since_us=None)
    else:
        since = now_us if state.quiet_since_us is None else state.quiet_since_us
        settled = now_us - since >= gate.settle_s * 1e6
        state = replace(state, moving=state.moving and not settled, quiet_since_us=since)
    look = _look(gate, state, now_us, differs)
    return (replace(state, looked_us=now_us) if look.inferred else state), look


def _look(gate: Gate, state: GateState, now_us: int, differs: float | None) -> Look:
    if gate.somebody is not None and differs is not None and differs < gate.somebody:
        return Look.EMPTY
    since_look = None if state.looked_us is None else now_us - state.looked_us
    if state.moving:
        paced = since_look is not None and gate.most_per_s is not None and since_look < 1e6 / gate.most_per_s
        return Look.PACED if paced else Look.MOVING
    return Look.KEEP_ALIVE if since_look is None or since_look >= gate.keep_alive_s * 1e6 else Look.STILL


class MotionGate:
    """The gate of one line; called frame by frame, by one thread."""

    def __init__(self, gate: Gate, region: Region | None = None) -> None:
        """`region`: the part of the frame that is looked at."""
        self._gate, self._region = gate, region
        self._state = GateState()
        self._source: tuple[Source, Thumbnailer] | None = None
        self._inferred: Luma | None = None
        self._empty: Luma | None = None
        self._adapted_us = 0
        self.counts: Counter[Look] = Counter()
        """Frames by what was said of them."""
        self.last: Look | None = None

    @property
    def idle(self) -> bool:
        """Nothing has moved since the scene settled, or nobody is there."""
        return self.last not in (None, Look.MOVING, Look.PACED)

    def see(self, frame: Frame) -> Look:
        """What is to be done with a complete frame.

        Raises:
            CameraError: it has no pixels.
            ConfigError: it is smaller than a thumbnail, or than the region.
        """
        luma = self._thumbnail(frame)
        if self._empty is None and self._gate.somebody is not None:
            self._empty = luma
        now_us = frame.t_capture_mono_us
        changed = self._share(luma, self._inferred)
        self._state, look = step(self._gate, self._state, now_us, changed, self._share(luma, self._empty))
        if look.inferred or look is Look.EMPTY:  # an empty scene is what the next change is measured from
            self._inferred = luma
        self._learn(luma, look, now_us)
        self.counts[look] += 1
        self.last = look
        return look

    def _thumbnail(self, frame: Frame) -> Luma:
        if frame.pixels is None:
            raise CameraError("a frame without pixels came to the motion gate", got=frame.note or frame.status)
        source = source_of(frame)
        if self._source is None or self._source[0] != source:
            self._source = source, Thumbnailer(source, self._region)
            self._inferred = self._empty = None  # another camera or another size: nothing of before can be compared
        return self._source[1](memory_of(frame.pixels))

    def _share(self, luma: Luma, other: Luma | None) -> float | None:
        return None if other is None else difference(luma, other, self._gate.step).share

    def _learn(self, luma: Luma, look: Look, now_us: int) -> None:
        """Keeps the empty scene as it is now."""
        quiet_us = self._state.quiet_since_us
        relearn_s = self._gate.relearn_s
        if self._empty is None:
            return
        if look is Look.EMPTY and now_us - self._adapted_us >= ADAPT_US:
            towards = np.sign(luma.astype(np.int16) - self._empty)
            self._empty = (self._empty + towards).astype(np.uint8)
            self._adapted_us = now_us
        elif relearn_s is not None and quiet_us is not None and now_us - quiet_us >= relearn_s * 1e6:
            self._empty = luma
