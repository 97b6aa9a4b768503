"""Two models on one frame: a detector finds where to look, a classifier names each crop. One plan runs both.

To the line it is one engine. What it gives are detections whose labels and scores are the classifier's; or, for a
decision over frames, the scores of the largest crop alone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from edge_app.clock import monotonic_us
from edge_app.config.detector import Detector
from edge_app.detections import Classes, Detections
from edge_app.engine import Engine, Work
from edge_app.errors import ConfigError, InvalidOutput, RuntimeFault
from edge_app.frame import Frame
from edge_app.preprocess.geometry import Region
from edge_app.runtime.base import Binding, Session, TensorInfo
from edge_app.verdict import PlanKind, PowerMode

log = logging.getLogger(__name__)
Boxes = npt.NDArray[np.float32]


class _OddCrop(Exception):
    """A crop that can't be named: it does not fit into the classifier's input (a very thin one), or shows nothing of
    its box, which the detector put off the frame or turned inside out. No fault of the plan."""


@dataclass(slots=True, eq=False)
class PairWork(Work):
    """A slot's buffers: those of the detector, as any engine's; the classifier's; and what came of the frame."""

    second: Work | None = None
    frame: Frame | None = None
    found: Detections | Classes | InvalidOutput | None = None


class PairSession:
    """Both sessions as one, for those who ask what runs where, and to give both back."""

    def __init__(self, first: Session, second: Session) -> None:
        self._first, self._second = first, second
        self.plan: PlanKind = first.plan
        self.provider: str = first.provider
        self.simulated: bool = first.simulated or second.simulated
        self.input: TensorInfo = first.input
        self.outputs: tuple[TensorInfo, ...] = first.outputs
        self.host_nodes: tuple[str, ...] = (*first.host_nodes, *second.host_nodes)

    def bind(self) -> Binding:
        """The detector's buffers."""
        return self._first.bind()

    def run(self, binding: Binding, power_mode: PowerMode) -> None:
        """The detector's run."""
        self._first.run(binding, power_mode)

    def close(self) -> None:
        """Gives both back."""
        self._first.close()
        self._second.close()


class TwoStageEngine(Engine):
    """Detector and classifier of one plan."""

    def __init__(
        self, first: Engine, second: Engine, rules: Detector, labels: frozenset[int], *, largest: bool
    ) -> None:
        """Joins both; what Engine itself is made of is the detector's.

        Args:
            first, second: detector and classifier, both loaded for the same plan.
            rules: the pipeline's section.
            labels: the detector's labels whose boxes are cropped, by index.
            largest: only the largest crop is named, and its scores are given whole.
        """
        self._first, self._second, self._rules = first, second, rules
        self._labels, self._largest = np.array(sorted(labels), np.int32), largest
        self._told_odd = False
        self.session = PairSession(first.session, second.session)

    @property
    def both(self) -> tuple[Engine, Engine]:
        """Detector and classifier alone: what canaries prove."""
        return self._first, self._second

    def bind(self) -> PairWork:
        """Buffers of both for one slot."""
        return PairWork(self, self.session.bind(), second=self._second.bind())

    def preprocess(self, frame: Frame, work: Work, region_px: Region | None = None) -> None:
        """See Engine; the frame is kept for its crops."""
        pair = _pair(work)
        pair.frame, pair.found = frame, None
        self._first.preprocess(frame, work, region_px)

    def run(self, work: Work, power_mode: PowerMode) -> None:
        """The detector, then the classifier on each crop; raises RuntimeFault.

        What the models gave that is no result is told by `result`, as with any engine.
        """
        pair = _pair(work)
        self._first.run(work, power_mode)
        try:
            pair.found = self._named(pair, self._to_crop(self._first.result(work)), power_mode)
        except InvalidOutput as error:
            pair.found = error

    def result(self, work: Work) -> Detections | Classes:
        """See the module; no crop at all is an empty list. Raises InvalidOutput."""
        found = _pair(work).found
        if isinstance(found, InvalidOutput):
            raise found
        if found is None:
            raise RuntimeFault("a result was asked for before any run")
        return found

    def warm_up(self, work: Work, runs: int, power_mode: PowerMode | None = None) -> list[int]:
        """See Engine: one run of each model at a time, as for a frame with one crop."""
        pair, times = _pair(work), []
        for _ in range(runs):
            start = monotonic_us()
            self._first.warm_up(work, 1, power_mode)
            self._second.warm_up(_second(pair), 1, power_mode)
            times.append(monotonic_us() - start)
        return times

    def _to_crop(self, found: Detections | Classes) -> Detections:
        """The boxes of the wanted labels; the largest first, if it is the only one that is named."""
        if not isinstance(found, Detections):
            raise RuntimeFault("a classifier stands where the detector should")
        wanted = np.isin(found.labels, self._labels)
        boxes, scores, labels = found.boxes_px[wanted], found.scores[wanted], found.labels[wanted]
        if self._largest:
            order = np.argsort(-(boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]), kind="stable")
            return Detections(boxes[order], scores[order], labels[order], found.truncated)
        most = self._rules.most
        return Detections(boxes[:most], scores[:most], labels[:most], found.truncated or len(boxes) > most)

    def _named(self, pair: PairWork, crops: Detections, power_mode: PowerMode) -> Detections | Classes:
        if self._largest:
            if len(crops) == 0 or crops.truncated:  # the largest one may be among those that were cut off
                return replace(Detections.none(), truncated=crops.truncated)
            try:
                return Classes(self._scores(pair, crops.boxes_px[0], power_mode), len(crops))
            except _OddCrop:
                return replace(Detections.none(), unsure=len(crops))
        scores, odd = [], np.zeros(len(crops), np.bool_)
        for index, box in enumerate(crops.boxes_px):
            try:
                scores.append(self._scores(pair, box, power_mode))
            except _OddCrop:
                odd[index] = True
        crops = Detections(crops.boxes_px[~odd], crops.scores[~odd], crops.labels[~odd], crops.truncated)
        best = np.array([one.max() for one in scores], np.float32)
        labels = np.array([int(one.argmax()) for one in scores], np.int32)
        sure = best >= self._rules.sure_at
        order = np.flatnonzero(sure)[np.argsort(-best[sure], kind="stable")]
        unsure = len(best) - len(order) + int(odd.sum())
        return Detections(crops.boxes_px[order], best[order], labels[order], crops.truncated, unsure)

    def _scores(self, pair: PairWork, box: Boxes, power_mode: PowerMode) -> npt.NDArray[np.float32]:
        if pair.frame is None:
            raise RuntimeFault("a run was asked for before any picture was put in")
        work = _second(pair)
        try:
            _refuse_unseen(box, pair.frame)
            self._second.preprocess(pair.frame, work, crop_region(box, self._rules.margin, pair.frame))
        except ConfigError as error:
            if not self._told_odd:  # the first is enough: each is in its frame's result
                self._told_odd = True
                log.warning("a crop of %s px can't be put into the classifier: %s", box.tolist(), error)
            raise _OddCrop from error
        self._second.run(work, power_mode)
        classes = self._second.result(work)
        if not isinstance(classes, Classes):
            raise RuntimeFault("a detector stands where the classifier should")
        return classes.scores


def crop_region(box: Boxes, margin: float, frame: Frame) -> Region:
    """A box with `margin` (a share of its longer side) around it, in whole px, clipped to the frame; 1 px at least."""
    x0, y0, x1, y1 = (float(edge) for edge in box)
    around = margin * max(x1 - x0, y1 - y0)
    left, top = (max(int(np.floor(edge - around)), 0) for edge in (x0, y0))
    right, bottom = (int(np.ceil(edge + around)) for edge in (x1, y1))
    left, top = min(left, frame.width - 1), min(top, frame.height - 1)
    return left, top, min(max(right, left + 1), frame.width), min(max(bottom, top + 1), frame.height)


def _refuse_unseen(box: Boxes, frame: Frame) -> None:
    """Raises ConfigError if less than a pixel of a box lies in the frame: its crop would show what stands beside it."""
    x0, y0, x1, y1 = (float(edge) for edge in box)
    if not (min(x1, frame.width) - max(x0, 0) >= 1 and min(y1, frame.height) - max(y0, 0) >= 1):
        raise ConfigError("less than a pixel of it lies in the frame")


def _pair(work: Work) -> PairWork:
    if not isinstance(work, PairWork):
        raise AssertionError("buffers of another engine came to a two-stage one")
    return work


def _second(pair: PairWork) -> Work:
    if pair.second is None:
        raise AssertionError("a two-stage slot has no buffers for its classifier")
    return pair.second
