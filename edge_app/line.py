"""The frame loop: camera -> admission -> guard -> preprocess -> inference -> decode and judge -> seal.

Stages run side by side on threads and hand each other slots out of a fixed pool. Every trigger that comes in is
sealed exactly once, whatever happens to it on the way.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping

from edge_app import threads
from edge_app.admission import Admission, FreeSlots
from edge_app.camera.base import Camera
from edge_app.clock import monotonic_us
from edge_app.config.runtime import Limits
from edge_app.engine import Engine
from edge_app.errors import EdgeAppError, FrameMisfit, InvalidOutput, RuntimeFault, scarcity
from edge_app.frame import Frame
from edge_app.in_force import Fitted, InForce, fit
from edge_app.inference import InferenceStage, Slot, fill
from edge_app.inspection import Inspection
from edge_app.mode import inspects, may_change
from edge_app.npu_gate import NpuGate
from edge_app.placing import Fault, Placer
from edge_app.sealing import DeadlineTimer, Outlet, Sealer, Ticket
from edge_app.verdict import Judgement, Mode, ModelIdentity, Placement, PlanKind, Reason

log = logging.getLogger(__name__)

DRAIN_S = 1.0
MakeSealer = Callable[[Outlet, Callable[[], frozenset[str]], Callable[[Exception], None]], Sealer]


class Line:
    """One inspection line. `start`, then `wait` until its source ends or somebody calls `stop`."""

    def __init__(
        self,
        camera: Camera,
        engines: Mapping[PlanKind, Engine],
        placer: Placer,
        inspection: Inspection,
        outlet: Outlet,
        limits: Limits,
        timeout_ms: int,
        max_frames: int | None = None,
        degraded: Callable[[], frozenset[str]] = frozenset,
        make_sealer: MakeSealer = Sealer,
        model: ModelIdentity | None = None,
        gate: NpuGate | None = None,
        name: str = "line",
    ) -> None:
        """The camera is open and the engines are loaded.

        `degraded` tells what is not as configured; `make_sealer` makes what gives triggers their results;
        `model` is told in results of these engines (None: the node's own). At `gate` runs on the NPU take turns with
        those of other lines, under this line's `name`.
        """
        self._camera, self._outlet, self._limits = camera, outlet, limits
        self._degraded = degraded
        self.sealer = make_sealer(outlet, degraded, self._broken)
        self._timer = DeadlineTimer(self.sealer, self._broken)
        self._inference = InferenceStage(
            timeout_ms * 1000, done=lambda slot: self._to_judge.put(slot), failed=self._finish,
            bug=lambda error, slot, ticket: self._bug("inference", error, slot, ticket), broken=self._broken,
            gate=gate or NpuGate(), line=name,
        )  # fmt: skip
        self._free = FreeSlots()
        self._to_guard: queue.SimpleQueue[Slot | None] = queue.SimpleQueue()
        self._to_preprocess: queue.SimpleQueue[Slot | None] = queue.SimpleQueue()
        self._to_judge: queue.SimpleQueue[Slot | None] = queue.SimpleQueue()
        in_force = InForce(inspection, fit(engines, placer, limits.slots, model))
        self.admission = Admission(
            camera, in_force, self.sealer, self._timer, limits, self._free, self._to_guard.put, self._let_go
        )
        self.admission.max_frames = max_frames
        self.admission.camera_lost = self._camera_lost
        self.admission.bug = lambda error: self._bug("admission", error)
        self._retired = 0
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._error: EdgeAppError | None = None
        self._alarms: set[str] = set()
        self._bugs_told: set[tuple[str, type[Exception]]] = set()
        self.mode = Mode.STARTING
        self._mode_lock = threading.Lock()
        stages = {"camera": self._capture, "guard": self._guard, "preprocess": self._preprocess, "judge": self._judge}
        self._threads = [threads.daemon(work, stage) for stage, work in stages.items()]
        self._slots = [Slot(number) for number in range(limits.slots)]
        for slot in self._slots:
            self._free.put(slot)

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts all stages; the node is RUNNING when this returns."""
        self.change_mode(Mode.READY, "loaded and warm")
        self.change_mode(Mode.RUNNING, "started")
        self._timer.start()
        self._inference.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Asks for the end: no further frame is taken, those in flight are finished. Returns at once."""
        self._stopping.set()
        self._camera.stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the end; True if it has come."""
        return self._ended.wait(timeout_s)

    def close(self) -> None:
        """After the end; raises what ended the line, if that was an error. The outlet tells STOPPED as it closes."""
        self._timer.stop()
        with self._mode_lock:
            self.mode = Mode.STOPPED
        if self._error is not None:
            raise self._error

    @property
    def in_force(self) -> InForce:
        """What the next frame is inspected with."""
        return self.admission.in_force

    def inspect_with(self, in_force: InForce) -> None:
        """From the next frame on; frames in flight keep what they have."""
        self.admission.in_force = in_force

    def uses(self, model: Fitted) -> bool:
        """Whether a frame in flight is inspected with it."""
        held = [slot.in_force for slot in self._slots]
        return any(in_force is not None and in_force.model is model for in_force in held)

    def change_mode(self, to: Mode, reason: str, only_from: Mode | None = None) -> bool:
        """Goes to another mode and tells it; False if no way leads there, or it is not in `only_from`."""
        with self._mode_lock:
            was = self.mode
            if was is to or not may_change(was, to) or only_from not in (None, was):
                return False
            self.mode = to
            self.admission.inspects = inspects(to)
        log.info("mode %s -> %s: %s", was, to, reason)
        self._outlet.state(to, was, self.placement, reason)
        return True

    @property
    def degraded(self) -> frozenset[str]:
        """What is not as configured, as results tell it."""
        return self._degraded()

    @property
    def placement(self) -> Placement:
        """Where the last frame was placed."""
        return self.in_force.placer.last

    @property
    def queue_depth(self) -> int:
        """Frames in flight."""
        return self._limits.slots - self._retired - len(self._free)

    def oldest_us(self) -> int:
        """How long the frame that is longest in a slot has been there; 0: none is. For the watchdog."""
        tickets = [slot.ticket for slot in self._slots if not slot.retired]
        return max((monotonic_us() - ticket.t_capture_mono_us for ticket in tickets if ticket is not None), default=0)

    def _end_with(self, error: EdgeAppError) -> None:
        if self._error is None:
            self._error = error
            log.error("%s", error)
        self.stop()

    def _broken(self, error: Exception) -> None:
        """There is no going on: results would be lost, or never come."""
        if not isinstance(error, EdgeAppError):
            what = "the line can't go on after an error that nobody expected"
            got, remedy = f"{type(error).__name__}: {error}", "this is a bug: report it, with the log"
            error = scarcity(error) or EdgeAppError(what, got=got, remedy=remedy)
        self._end_with(error)

    def _stage_broken(self, stage: str, error: Exception) -> None:
        """A stage without its thread: told before those after it end, or it would look like the source's end."""
        log.critical("stage %s has ended", stage, exc_info=True)
        self._broken(error)

    def _capture(self) -> None:
        try:
            self.admission.run(self._stopping, self._end_with)
        finally:
            self._to_guard.put(None)

    def _camera_lost(self, lost: bool, note: str) -> None:
        remedy = "check the camera's power, cable and network; the node goes on trying to reconnect"
        self._set_alarm("CAMERA_LOST", lost, note, remedy)

    # -- guard ------------------------------------------------------------------------------------------------------

    def _guard(self) -> None:
        try:
            while (slot := self._to_guard.get()) is not None:
                self._safely("guard", slot, self._guard_one)
        except Exception as error:
            self._stage_broken("guard", error)
        finally:
            self._to_preprocess.put(None)

    def _guard_one(self, slot: Slot) -> None:
        ticket, frame = _held(slot)
        start = monotonic_us()
        ticket.stage_us["wait"] = start - ticket.t_capture_mono_us
        finding = _inspection_of(slot).guard(frame)
        ticket.stage_us["guard"] = monotonic_us() - start
        if finding is None:
            self._to_preprocess.put(slot)
        else:
            self._finish(slot, finding)

    # -- preprocess -------------------------------------------------------------------------------------------------

    def _preprocess(self) -> None:
        try:
            while (slot := self._to_preprocess.get()) is not None:
                self._safely("preprocess", slot, self._preprocess_one)
            self._drain()
            self._inference.stop()
        except Exception as error:
            self._stage_broken("preprocess", error)
        finally:
            self._to_judge.put(None)

    def _drain(self) -> None:
        """Waits for the frames in flight: all of them at the source's end, DRAIN_S when somebody asked to stop."""
        give_up: float | None = None
        while self.queue_depth > 0:
            if self._stopping.is_set() and give_up is None:
                give_up = time.monotonic() + DRAIN_S
            if give_up is not None and time.monotonic() > give_up:
                return
            time.sleep(0.002)

    def _preprocess_one(self, slot: Slot) -> None:
        ticket, _ = _held(slot)
        start = monotonic_us()
        try:
            fill(slot, ticket.placement.plan)
        except FrameMisfit as error:
            self._finish(slot, Judgement(Reason.BAD_IMAGE, f"{error.what}: wanted {error.wanted}, got {error.got}"))
            return
        ticket.stage_us["preprocess"] = monotonic_us() - start
        self._inference.put(slot)

    # -- decode and judge -------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        try:
            while (slot := self._to_judge.get()) is not None:
                self._safely("judge", slot, self._judge_one)
            self._seal_the_rest()
        except Exception as error:
            log.critical("not every trigger could be sealed", exc_info=True)
            self._broken(error)
        finally:
            self._ended.set()

    def _seal_the_rest(self) -> None:
        """What is still in flight when the line ends (a hung run) has its result too."""
        for slot in self._slots:
            ticket = slot.ticket
            if ticket is not None and not ticket.sealed:
                self.sealer.seal(
                    ticket, Judgement(Reason.NOT_RUNNING, "the node stopped before this frame was inspected")
                )

    def _judge_one(self, slot: Slot) -> None:
        ticket, _ = _held(slot)
        start = monotonic_us()
        if ticket.sealed:
            self._release(slot)
            return
        try:
            work = slot.work
            if work is None:
                raise AssertionError(f"slot {slot.number} came to be judged without a run")
            found = work.engine.result(work)
        except InvalidOutput as error:
            self._retry_invalid(slot, error)
            return
        judgement = _inspection_of(slot).judge(found)
        ticket.stage_us["decode"] = monotonic_us() - start
        self._finish(slot, judgement)

    def _retry_invalid(self, slot: Slot, error: InvalidOutput) -> None:
        if self._inference.place_again(slot, Fault.WRONG_OUTPUT, error.what):
            self._inference.put(slot)
        else:
            self._finish(slot, Judgement(Reason.INVALID_OUTPUT, error.what))

    # -- the end of a frame -----------------------------------------------------------------------------------------

    def _safely(self, stage: str, slot: Slot, work: Callable[[Slot], None]) -> None:
        """A stage never dies of one frame."""
        ticket = slot.ticket
        try:
            work(slot)
        except Exception as error:
            self._bug(stage, error, slot, ticket)

    def _bug(self, stage: str, error: Exception, slot: Slot | None = None, ticket: Ticket | None = None) -> None:
        """What nobody expected: an alarm, once for each stage and kind, and UNKNOWN/INTERNAL for the frame in hand.

        `ticket` is the slot's when the stage got it: a slot that has been let go since may hold the next frame.
        """
        log.error("stage %s failed", stage, exc_info=error)
        text = f"stage {stage}: {type(error).__name__}: {error}".rstrip(": ")
        scarce = scarcity(error)
        try:
            if slot is not None and ticket is not None and slot.ticket is ticket:
                self._finish(slot, Judgement(Reason.INTERNAL, text))
            if (stage, type(error)) not in self._bugs_told:
                self._bugs_told.add((stage, type(error)))
                remedy = "report it, with the log" if scarce is None else str(scarce.remedy)
                self._outlet.alarm("INTERNAL", True, text, remedy)
        except Exception as worse:
            log.critical("stage %s: what was to be done about it failed too", stage, exc_info=True)
            self._broken(worse)

    def _finish(self, slot: Slot, judgement: Judgement) -> None:
        ticket, _ = _held(slot)
        if not (ticket.sealed and judgement.reason is Reason.INTERNAL):  # a bug after the seal is no second verdict
            self.sealer.seal(ticket, judgement)
        self._release(slot)

    def _release(self, slot: Slot) -> None:
        _, frame = _held(slot)
        slot.frame = slot.ticket = slot.work = slot.in_force = None
        try:
            self._let_go(frame)
        finally:
            self._back_to_pool(slot)

    def _back_to_pool(self, slot: Slot) -> None:
        if not slot.retired:
            self._free.put(slot)
            return
        self._retired += 1
        if self._retired >= self._limits.slots:
            self._end_with(
                RuntimeFault(
                    "every slot is held by a run that never returned",
                    remedy="restart; the service does so on the cpu plan",
                )
            )

    def _let_go(self, frame: Frame) -> None:
        """The pixels go to the evidence, if it wants them, or back to the camera.

        If the evidence fails, nobody knows whether it holds them: they are left to Python, and never written again.
        """
        if not self._outlet.evidence(frame, self._camera.recycle):
            self._camera.recycle(frame)

    def _set_alarm(self, name: str, active: bool, text: str, remedy: str) -> None:
        """Tells an alarm when it comes and when it goes, not in between."""
        if active == (name in self._alarms):
            return
        (self._alarms.add if active else self._alarms.discard)(name)
        self._outlet.alarm(name, active, text, remedy)


def _inspection_of(slot: Slot) -> Inspection:
    if slot.in_force is None:
        raise AssertionError(f"slot {slot.number} came into a stage without a recipe")
    return slot.in_force.inspection


def _held(slot: Slot) -> tuple[Ticket, Frame]:
    if slot.ticket is None or slot.frame is None:
        raise AssertionError(f"slot {slot.number} came into a stage without a frame")
    return slot.ticket, slot.frame
