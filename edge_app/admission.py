"""Admission: every frame or trigger gets a ticket and a slot, or its UNKNOWN at once. The first stage of the line."""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from edge_app.camera.base import Camera, missed_between
from edge_app.clock import monotonic_to_utc_us, monotonic_us
from edge_app.config.runtime import Limits
from edge_app.errors import ConfigError, EdgeAppError, RuntimeFault
from edge_app.frame import Frame, FrameStatus
from edge_app.in_force import InForce
from edge_app.inference import Slot
from edge_app.placing import Placer
from edge_app.sealing import DeadlineTimer, Sealer, Ticket
from edge_app.verdict import Judgement, Placement, Reason

log = logging.getLogger(__name__)

STATUS_REASONS = {
    FrameStatus.INCOMPLETE: Reason.INCOMPLETE_FRAME,
    FrameStatus.STALE: Reason.STALE_FRAME,
    FrameStatus.MISSED: Reason.MISSED_TRIGGER,
    FrameStatus.LOST: Reason.CAMERA_LOST,
}
POLL_S = 0.05
MOST_TRIGGERS_WAITING = 64
USUAL_WAY_US = 20_000
"""Of a trigger from its sender to here; two clocks agree no better."""
LONGEST_WAY_US = 60_000_000
"""As long as the largest budget: nobody waits for the result of an older one, so the sender's clock is wrong."""


@dataclass(frozen=True, slots=True)
class SoftwareTrigger:
    """A trigger that came over the wire, and when."""

    ticket: Ticket
    at_mono_us: int


class FreeSlots:
    """The slots that nobody uses. Last in, first out: the buffers of that one are still in the caches.

    A deque beside a count of what is in it, both written in C: queue.LifoQueue takes a lock, and the GIL anew, several
    times for a slot.
    """

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        self._count: queue.SimpleQueue[None] = queue.SimpleQueue()

    def __len__(self) -> int:
        return self._count.qsize()

    def put(self, slot: Slot) -> None:
        """Never blocks."""
        self._slots.append(slot)
        self._count.put(None)

    def get(self, timeout_s: float) -> Slot:
        """Waits for one. Raises queue.Empty."""
        self._count.get(timeout=timeout_s)
        return self._slots.pop()

    def get_nowait(self) -> Slot:
        """Raises queue.Empty."""
        self._count.get_nowait()
        return self._slots.pop()


class Admission:
    """Reads the camera, frame by frame or trigger by trigger, on a thread of its own."""

    def __init__(
        self,
        camera: Camera,
        in_force: InForce,
        sealer: Sealer,
        timer: DeadlineTimer,
        limits: Limits,
        free: FreeSlots,
        admitted: Callable[[Slot], None],
        let_go: Callable[[Frame], None],
    ) -> None:
        """`in_force`: what the first frames are inspected with. `free` holds the slots that nobody uses; `admitted`
        takes a slot with its frame; `let_go` one's pixels."""
        self._camera, self._sealer, self._timer = camera, sealer, timer
        self._limits, self._free, self._admitted, self._let_go = limits, free, admitted, let_go
        self.inspects = False
        """Whether the node's mode is one in which triggers are inspected; else they are NOT_RUNNING."""
        self.in_force = in_force
        """What the next frame is inspected with: it may be replaced at any moment."""
        self.max_frames: int | None = None
        self.camera_lost: Callable[[bool, str], None] = lambda _lost, _note: None
        self.bug: Callable[[Exception], None] = lambda _error: None
        """Told of what nobody raises on purpose; the frame is sealed UNKNOWN/INTERNAL, and the camera read on."""
        self._over = False
        self._triggers: deque[SoftwareTrigger] = deque()
        self._triggered = threading.Condition()
        self._last_trigger_id = 0
        self._waits = False
        """A trigger waits for its picture now: it will see a lost camera come back."""

    @property
    def by_command(self) -> bool:
        """Whether a frame is taken at each `trigger` command, not as the camera gives them."""
        return self._limits.trigger == "software"

    # -- free-running camera ----------------------------------------------------------------------------------------

    def run(self, stopping: threading.Event, end_with: Callable[[EdgeAppError], None]) -> None:
        """Until the source ends, `stopping` is set, or max_frames is reached."""
        try:
            if self.by_command:
                self._run_by_trigger(stopping)
            else:
                self._run_free(stopping)
        except EdgeAppError as error:
            end_with(error)
        except Exception as error:
            log.exception("the camera stage failed")
            end_with(RuntimeFault("the camera stage failed", got=repr(error), remedy="this is a bug: report it"))
        finally:
            with self._triggered:
                self._over = True
                left = list(self._triggers)
                self._triggers.clear()
            for trigger in left:
                self._sealer.seal(trigger.ticket, Judgement(Reason.NOT_RUNNING, "the node stopped"))

    def _run_free(self, stopping: threading.Event) -> None:
        slot: Slot | None = None
        last: Frame | None = None
        try:
            while not stopping.is_set() and not self._enough():
                if self._limits.pacing == "offline" and slot is None:
                    slot = self._wait_for_slot(stopping)
                    if slot is None:
                        return
                frame = self._camera.read()
                if frame is None:
                    return
                for missed in missed_between(last, frame):
                    self._admit(missed, None)
                last = frame
                slot = self._admit(frame, slot)
        finally:
            if slot is not None:
                self._free.put(slot)

    def _enough(self) -> bool:
        return self.max_frames is not None and self._sealer.triggers >= self.max_frames

    def _wait_for_slot(self, stopping: threading.Event) -> Slot | None:
        while not stopping.is_set():
            try:
                return self._free.get(POLL_S)
            except queue.Empty:
                continue
        return None

    def _admit(self, frame: Frame, slot: Slot | None) -> Slot | None:
        """Gives a frame its ticket and a slot, or its UNKNOWN. Returns the slot if it is still free."""
        return self._go_on(self._sealer.admit(self._ticket_of(frame)), frame, slot)

    def _go_on(self, ticket: Ticket, frame: Frame, slot: Slot | None) -> Slot | None:
        in_force = self.in_force  # once: it may be replaced at any moment
        try:
            refusal = self._refusal(frame, in_force.placer, self._place(ticket, in_force))
            if refusal is None and slot is None:
                slot = self._free.get_nowait()
        except queue.Empty:
            refusal = Judgement(Reason.OVERRUN, f"all {self._limits.slots} slots are in use")
        except Exception as error:
            self.bug(error)
            refusal = Judgement(Reason.INTERNAL, f"admission: {type(error).__name__}: {error}")
        if refusal is not None or slot is None:
            self._sealer.seal(ticket, refusal or Judgement(Reason.OVERRUN))
            self._drop(frame)
            return slot
        self._timer.watch(ticket)
        slot.frame, slot.ticket, slot.in_force = frame, ticket, in_force
        self._admitted(slot)
        return None

    def _place(self, ticket: Ticket, in_force: InForce) -> Placement | None:
        placement = in_force.placer.place()
        if not ticket.sealed:
            ticket.placement = placement or in_force.placer.last
            ticket.recipe, ticket.model = in_force.inspection.recipe, in_force.model.identity
        return placement

    def _drop(self, frame: Frame) -> None:
        """A frame that is not inspected (any more)."""
        try:
            self._let_go(frame)
        except Exception as error:
            self.bug(error)

    def _ticket_of(self, frame: Frame) -> Ticket:
        deadline, in_force = self._deadline(frame.t_capture_mono_us, None), self.in_force
        return Ticket(
            frame.trigger_id, frame.frame_id, frame.part_id, frame.t_capture_us, frame.t_capture_mono_us, deadline,
            in_force.placer.last, frame.truth, recipe=in_force.inspection.recipe, model=in_force.model.identity,
        )  # fmt: skip

    def _deadline(self, start_mono_us: int, budget_us: int | None) -> int | None:
        if budget_us is not None:
            return start_mono_us + budget_us
        return None if self._limits.deadline_ms is None else start_mono_us + round(self._limits.deadline_ms * 1000)

    def _refusal(self, frame: Frame, placer: Placer, placement: Placement | None) -> Judgement | None:
        """Why a frame is not inspected at all."""
        self.camera_lost(frame.status is FrameStatus.LOST, frame.note)
        if frame.status is not FrameStatus.COMPLETE:
            return Judgement(STATUS_REASONS[frame.status], frame.note)
        if not self.inspects:
            return Judgement(Reason.NOT_RUNNING, "the node is not running")
        if placement is None:
            return Judgement(Reason.RUNTIME_FAULT, "no plan is left to run on")
        if not placer.admit():
            return Judgement(Reason.OVERLOAD, "the scheduler lowered the rate")
        return None

    # -- triggers that come over the wire ---------------------------------------------------------------------------

    def trigger(
        self, trigger_id: int, part_id: str | None, budget_us: int | None, asked_utc_us: int | None = None
    ) -> None:
        """A picture is to be taken now. Its result comes whatever happens; the ids of one run must rise.

        `asked_utc_us`: when its sender wanted it. One that a network, or a busy node, held up is as late as it is.

        Raises:
            ConfigError: the pipeline's camera triggers itself, the id is not above the last one, or the time is by
                another clock than this node's.
        """
        if not self.by_command:
            raise ConfigError("this pipeline's camera triggers itself", wanted="limits.trigger: software")
        now, in_force = monotonic_us(), self.in_force
        on_its_way_us = 0 if asked_utc_us is None else monotonic_to_utc_us(now) - asked_utc_us
        if on_its_way_us > LONGEST_WAY_US:
            raise ConfigError(
                "t_us is not by this node's clock", wanted=f"at most {LONGEST_WAY_US // 1_000_000} s ago",
                got=f"{on_its_way_us // 1_000_000} s ago", remedy="take the node's time from `hello`",
            )  # fmt: skip
        if on_its_way_us > USUAL_WAY_US:
            now -= on_its_way_us
        with self._triggered:
            if trigger_id <= self._last_trigger_id:
                raise ConfigError(
                    "trigger ids must rise", wanted=f"above {self._last_trigger_id}", got=str(trigger_id),
                    remedy="after a restart of the node they may begin anew",
                )  # fmt: skip
            self._last_trigger_id = trigger_id
            ticket = self._sealer.admit(
                Ticket(
                    trigger_id,
                    0,
                    part_id,
                    monotonic_to_utc_us(now),
                    now,
                    self._deadline(now, budget_us),
                    in_force.placer.last,
                    recipe=in_force.inspection.recipe,
                    model=in_force.model.identity,
                )
            )
            refusal = self._refused_at_once()
            if refusal is None:
                self._triggers.append(SoftwareTrigger(ticket, now))
                self._triggered.notify()
        if refusal is not None:
            self._sealer.seal(ticket, refusal)
        else:
            self._timer.watch(ticket)

    def _refused_at_once(self) -> Judgement | None:
        trouble = self._camera.trouble
        if trouble is not None and self._waits:
            return Judgement(Reason.CAMERA_LOST, trouble)
        waiting = len(self._triggers)
        if waiting >= MOST_TRIGGERS_WAITING:
            return Judgement(Reason.OVERRUN, f"{waiting} triggers were waiting for a picture")
        return Judgement(Reason.NOT_RUNNING, "the node stopped") if self._over else None

    def _run_by_trigger(self, stopping: threading.Event) -> None:
        taken = 0  # not those that came: all pictures that were asked for before the last one are taken
        while not stopping.is_set() and taken != self.max_frames:
            with self._triggered:
                self._triggered.wait_for(lambda: self._triggers, POLL_S)
                trigger = self._triggers.popleft() if self._triggers else None
            if trigger is None or (self._camera.live and trigger.ticket.sealed):
                continue  # a live picture now would be of another part, and the triggers behind would wait for it too
            if not self._take(trigger):
                return
            taken += 1

    def _take(self, trigger: SoftwareTrigger) -> bool:
        """Takes the picture of one trigger; False at the end of the source."""
        ticket = trigger.ticket
        try:
            self._waits = True
            frame = self._picture_after(trigger.at_mono_us)
        except Exception as error:
            self._sealer.seal(ticket, Judgement(Reason.CAMERA_LOST, f"{type(error).__name__}: {error}"))
            raise
        finally:
            self._waits = False
        if frame is None:
            self._sealer.seal(ticket, Judgement(Reason.CAMERA_LOST, "the source has ended"))
            return False
        if not ticket.sealed:
            ticket.frame_id, ticket.t_capture_us, ticket.truth = frame.frame_id, frame.t_capture_us, frame.truth
        self._go_on(ticket, frame, None)
        return True

    def _picture_after(self, at_mono_us: int) -> Frame | None:
        frame = self._camera.read()
        while frame is not None and self._camera.live and frame.t_capture_mono_us < at_mono_us:
            self._drop(frame)  # it was on its way before the trigger
            frame = self._camera.read()
        return frame
