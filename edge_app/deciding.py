"""Sealing by decision: many frames make one result, and only when what they show has changed and is stable.

A line without a decision seals every frame. This sealer stands in its place: the line runs as ever, hands every frame's
judgement in, and a trigger is what comes out when the decision over time (edge_app.temporal) tells something new.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from edge_app import threads
from edge_app.clock import monotonic_to_utc_us, monotonic_us
from edge_app.config.mirror import Decision, Energy
from edge_app.sealing import BAD_IMAGE_ALARM, Outlet, Sealer, Ticket
from edge_app.temporal import Following, Shown, Stable, follow, wait
from edge_app.verdict import Judgement, Reason

log = logging.getLogger(__name__)

TICK_S = 0.1


@dataclass(frozen=True, slots=True)
class Effort:
    """What was spent on frames so far: they are no triggers, so no other counter has them."""

    frames: int
    """That came in, whatever became of them."""
    gated: int
    """That the motion gate skipped."""
    inferences: int
    infer_us: int
    """Spent in inferences, together."""

    def duty_cycle(self, elapsed_us: float) -> float:
        """Share of the time that an inference ran, 0..1."""
        return self.infer_us / elapsed_us if elapsed_us > 0 else 0.0


def estimated_w(energy: Energy, duty_cycle: float) -> float:
    """Mean power of a node that takes two powers only: an estimate, nothing of it was measured here."""
    return energy.idle_w + (energy.active_w - energy.idle_w) * min(duty_cycle, 1.0)


class DecisionSealer(Sealer):
    """A Sealer whose triggers are stable decisions."""

    reason_alarms = (BAD_IMAGE_ALARM,)
    """Of frames. One that is left out is no trouble where many make a decision."""

    def __init__(
        self,
        rules: Decision,
        labels: tuple[str, ...],
        outlet: Outlet,
        degraded: Callable[[], frozenset[str]] = frozenset,
        broken: Callable[[Exception], None] = lambda _error: None,
    ) -> None:
        """`rules` and `labels`: of the pipeline and its classifier; the others as Sealer takes them."""
        super().__init__(outlet, degraded, broken)
        self._rules, self._labels = rules, labels
        self._state = Following()
        self._last: Ticket | None = None
        self._effort = Effort(0, 0, 0, 0)
        self._stopped = threading.Event()
        self._ticker = threads.daemon(self._tick, "decision")

    def start(self) -> None:
        """From now on time passes also while no frame comes."""
        self._ticker.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped.set()
        if self._ticker.is_alive():
            self._ticker.join()

    def admit(self, ticket: Ticket) -> Ticket:
        """Counts a frame: whether it becomes a trigger is not known yet."""
        with self._lock:
            self._effort = replace(self._effort, frames=self._effort.frames + 1)
        return ticket

    @property
    def triggers(self) -> int:
        """Frames that came in; see Sealer."""
        return self._effort.frames

    @property
    def effort(self) -> Effort:
        """As it stands."""
        return self._effort

    @property
    def following(self) -> Following:
        """The decision as it stands, and what it stands on: for pages that show it."""
        return self._state

    def is_current(self, now_us: int) -> bool:
        """Whether what was seen last still stands: no label, and nothing it rests on, is shown for longer."""
        told, seen_us = self._state.told, self._state.seen_us
        fresh = seen_us is not None and now_us - seen_us < self._rules.hold_s * 1e6
        return fresh and not (told is not None and told.is_blind)

    def seal(self, ticket: Ticket, judgement: Judgement) -> bool:
        """Takes one frame's judgement; True if it made the decision change, which is then sealed for this frame.

        A judgement that is none (a bug) raises, and leaves the ticket unsealed.
        """
        degraded = self._degraded_of(ticket)
        with self._lock:
            if ticket.sealed:
                return False
            now = monotonic_us()
            judgement = self._in_time(ticket, judgement, now)
            state, stable = follow(self._rules, self._state, shown_by(judgement), ticket.t_capture_mono_us)
            ticket.sealed = True  # the frame has been judged; most of them have no result of their own
            self._state, self._last = state, ticket
            self._count_effort(ticket, judgement)
            if stable is not None:
                self._seal_decision(ticket, stable, degraded, now)
            self._look_for_many(judgement)
            return stable is not None

    def pass_time(self) -> bool:
        """No frame came; True if a decision has had its time and another one was sealed."""
        with self._lock:
            if self._last is None:
                return False
            now = monotonic_us()
            self._state, stable = wait(self._rules, self._state, now)
            if stable is None:
                return False
            ticket = replace(
                self._last, frame_id=0, t_capture_us=monotonic_to_utc_us(now), t_capture_mono_us=now,
                deadline_mono_us=None, stage_us={},
            )  # fmt: skip
            self._seal_decision(ticket, stable, self._degraded_of(ticket), now)
            return True

    def _seal_decision(self, ticket: Ticket, stable: Stable, degraded: tuple[str, ...], now: int) -> None:
        ticket.trigger_id = self._triggers + 1
        self._publish(ticket, self._told(stable), degraded, now)
        self._triggers += 1

    def _told(self, stable: Stable) -> Judgement:
        average = self._state.average
        classes = () if average is None else zip(self._labels, (round(float(p), 4) for p in average), strict=True)
        return Judgement(
            stable.reason,
            stable.detail,
            classes=tuple(classes),
            label=None if stable.label is None else self._labels[stable.label],
            stable_since_us=monotonic_to_utc_us(stable.since_us),
        )

    def _count_effort(self, ticket: Ticket, judgement: Judgement) -> None:
        effort, infer_us = self._effort, ticket.stage_us.get("infer")
        self._effort = replace(
            effort,
            gated=effort.gated + judgement.gated,
            inferences=effort.inferences + (infer_us is not None),
            infer_us=effort.infer_us + (infer_us or 0),
        )

    def _tick(self) -> None:
        while not self._stopped.wait(TICK_S):
            try:
                self.pass_time()
            except Exception as error:
                log.critical("the decision could not follow the time", exc_info=True)
                self._broken(error)
                return


def shown_by(judgement: Judgement) -> Shown:
    """What one frame's judgement says to the decision."""
    if judgement.reason is Reason.OK:
        raise AssertionError("one frame alone was judged OK in a pipeline that decides over many")
    if judgement.reason is Reason.LATE:
        return Shown(Reason.LATE, detail=judgement.detail)
    if judgement.gated:
        return Shown(Reason.OK)
    if judgement.classes is not None:
        scores = np.array([score for _, score in judgement.classes], np.float32)
        return Shown(Reason.OK, scores, judgement.detail)
    return Shown(judgement.reason, detail=judgement.detail)
