"""The inference stage: one thread owns the sessions; a failed run goes to the next plan, a hung one is left behind.

A run can't be interrupted. One that is still busy after the time-out keeps its thread and its buffers for ever (it may
yet write there): its slot is retired, a fresh thread takes over, and the frame is run again on the next plan.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from edge_app import threads
from edge_app.clock import monotonic_us
from edge_app.engine import Work
from edge_app.errors import EdgeAppError, RuntimeFault
from edge_app.frame import Frame
from edge_app.in_force import InForce
from edge_app.npu_gate import NpuGate, Turn
from edge_app.placing import Fault, Placer
from edge_app.scheduler.policy import NPU_PLANS
from edge_app.sealing import Ticket
from edge_app.verdict import Judgement, Placement, PlanKind, Reason

log = logging.getLogger(__name__)
T = TypeVar("T")
STOP_S = 0.5


@dataclass(slots=True, eq=False)
class Slot:
    """One frame in flight."""

    number: int
    work: Work | None = None
    """The buffers that hold the frame's input: a plan that is built again meanwhile brings others."""
    frame: Frame | None = None
    ticket: Ticket | None = None
    in_force: InForce | None = None
    """The recipe and the model that were in force when the frame came."""
    retired: bool = False
    """A hung run may still write into the buffers: the slot is never used again."""

    @property
    def works(self) -> dict[PlanKind, Work]:
        """Buffers for every plan of the frame's model."""
        return _of(self.in_force).model.works[self.number]

    @property
    def placer(self) -> Placer:
        """Of the frame's model."""
        return _of(self.in_force).placer


@dataclass(slots=True, eq=False)
class _Worker:
    """The thread that runs sessions, and what it is at."""

    thread: threading.Thread | None = None
    busy: Slot | None = None
    plan: PlanKind | None = None
    since_us: int = 0
    abandoned: bool = False


@dataclass(eq=False)
class InferenceStage:
    """Takes preprocessed slots; hands on those that ran (`done`) and those without any plan left (`failed`).

    `bug` is told of every exception that nobody raises on purpose, with the slot and the ticket that were in hand if
    the frame got no further; with None, None if the frame goes on (a session that raised counts as a run that failed).
    `broken` is told when there is no thread left to run anything on. Runs on the NPU take turns at `gate` with those of
    other lines, as `line`'s.
    """

    timeout_us: int
    done: Callable[[Slot], None]
    failed: Callable[[Slot, Judgement], None]
    bug: Callable[[Exception, Slot | None, Ticket | None], None]
    broken: Callable[[Exception], None]
    gate: NpuGate = field(default_factory=NpuGate)
    line: str = "line"
    _queue: queue.SimpleQueue[Slot | None] = field(default_factory=queue.SimpleQueue)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _worker: _Worker = field(default_factory=_Worker)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _watchdog: threading.Thread | None = None

    def start(self) -> None:
        """Starts the owner thread and its watchdog."""
        self._start_worker()
        self._watchdog = threads.daemon(self._watch, "run-watchdog")
        self._watchdog.start()

    def put(self, slot: Slot) -> None:
        """A slot whose input is ready for its ticket's plan."""
        self._queue.put(slot)

    def stop(self) -> None:
        """Ends after the slots that were put before; a run that hangs is not waited for."""
        self._queue.put(None)
        if self._worker.thread is not None:
            self._worker.thread.join(STOP_S)
        self._stopped.set()
        if self._watchdog is not None:
            self._watchdog.join()

    def place_again(self, slot: Slot, fault: Fault, text: str) -> bool:
        """After a fault: the same frame onto the next plan, its input written; False if none is left or no time."""
        slot.placer.fault(_of(slot.ticket).placement.plan, fault, text)
        return self._move_on(slot)

    def _move_on(self, slot: Slot) -> bool:
        ticket = _of(slot.ticket)
        plan = ticket.placement.plan
        while True:
            ticket.tried += (plan,)
            placement = slot.placer.retry(ticket.tried, ticket.time_left_us())
            if placement is None or placement.plan not in slot.works:
                return False
            try:
                self._assign(slot, placement)
                return True
            except Exception as error:
                plan = placement.plan
                slot.placer.fault(plan, Fault.ERROR, self._as_fault(error).what)

    def _assign(self, slot: Slot, placement: Placement) -> None:
        ticket = _of(slot.ticket)
        fill(slot, placement.plan)
        ticket.placement = placement
        ticket.degraded.add(f"{placement.plan}_fallback")

    def _start_worker(self) -> None:
        worker = _Worker()
        worker.thread = threads.daemon(self._work, "inference", (worker,))
        self._worker = worker
        try:
            worker.thread.start()
        except RuntimeError as error:
            self.broken(error)

    def _work(self, worker: _Worker) -> None:
        try:
            self._run_all(worker)
        except Exception as error:  # of the queue, or of telling a bug
            if not worker.abandoned:
                log.critical("the inference thread has ended", exc_info=True)
                self.broken(error)

    def _run_all(self, worker: _Worker) -> None:
        while (slot := self._queue.get()) is not None:
            ticket = slot.ticket
            try:
                self._run(worker, slot)
            except Exception as error:
                with self._lock:
                    worker.busy = None
                self.bug(error, *((None, None) if worker.abandoned else (slot, ticket)))
            if worker.abandoned:
                return

    def _run(self, worker: _Worker, slot: Slot) -> None:
        ticket = _of(slot.ticket)
        while not ticket.sealed:
            plan = ticket.placement.plan
            if not slot.placer.is_ready(plan):  # it went out while this frame waited; a hung NPU would take it too
                if self._move_on(slot):
                    continue
                self.failed(slot, Judgement(Reason.RUNTIME_FAULT, f"plan {plan} went out before this frame was run"))
                return
            turn = Turn(self.line, ticket.deadline_mono_us, self.timeout_us) if plan in NPU_PLANS else None
            if turn is not None and not self._granted(turn, ticket):
                if ticket.sealed or self.place_again(slot, Fault.TIMEOUT, self.gate.out or "no turn"):
                    continue
                self.failed(slot, Judgement(Reason.RUNTIME_FAULT, f"plan {plan}: {self.gate.out}"))
                return
            start = monotonic_us()
            with self._lock:
                worker.busy, worker.plan, worker.since_us = slot, plan, start
            try:
                work = _of(slot.work)
                work.engine.run(work, ticket.placement.power_mode)
                caught: Exception | None = None
            except Exception as raised:
                caught = raised
            finally:
                if turn is not None:
                    self.gate.leave(turn)
            with self._lock:
                if worker.abandoned:  # it returned late: the frame has long gone on without it
                    return
                worker.busy = None
            took = monotonic_us() - start
            ticket.stage_us["infer"] = ticket.stage_us.get("infer", 0) + took
            if caught is None:
                slot.placer.observe(ticket.placement, took, start - ticket.t_capture_mono_us)
                break
            error = self._as_fault(caught)
            log.error("%s", error)
            if not self.place_again(slot, Fault.ERROR, error.what if error.got is None else error.got):
                self.failed(slot, Judgement(Reason.RUNTIME_FAULT, f"plan {plan}: {error.what}"))
                return
        self.done(slot)

    def _granted(self, turn: Turn, ticket: Ticket) -> bool:
        """Waits for the NPU, which other lines use too; False: the frame's deadline went by, or the NPU is out."""
        if not self.gate.enter(turn, lambda: ticket.sealed):
            return False
        sealed = ticket.sealed  # looked at once: its deadline may come at any moment
        if sealed:
            self.gate.leave(turn)
        return not sealed

    def _as_fault(self, error: Exception) -> EdgeAppError:
        """What a session or the preprocessing before it raised, as a fault of its plan. Bugs are told besides."""
        if isinstance(error, EdgeAppError):
            return error
        self.bug(error, None, None)
        return RuntimeFault(f"{type(error).__name__}: {error}")

    def _watch(self) -> None:
        try:
            self._watch_runs()
        except Exception as error:
            log.critical("hung runs are no longer seen", exc_info=True)
            self.broken(error)

    def _watch_runs(self) -> None:
        pause = min(0.05, self.timeout_us / 4e6)
        while not self._stopped.wait(pause):
            with self._lock:
                worker = self._worker
                slot, plan = worker.busy, worker.plan
                hung = slot is not None and monotonic_us() - worker.since_us > self.timeout_us
                worker.abandoned = hung
            if hung and slot is not None and plan is not None:
                try:
                    self._leave_behind(slot, plan)
                except Exception as error:  # without this thread no hung run would be left behind any more
                    self.bug(error, None, None)

    def _leave_behind(self, slot: Slot, plan: PlanKind) -> None:
        text = f"a run on plan {plan} did not return within {self.timeout_us // 1000} ms"
        log.error("%s; slot %d is retired", text, slot.number)
        slot.retired = True
        successor = Slot(slot.number, None, slot.frame, slot.ticket, _without(_of(slot.in_force), slot, plan), True)
        ticket = slot.ticket
        try:
            self._pass_on(successor, text)
        except Exception as error:
            self.bug(error, successor, ticket)

    def _pass_on(self, successor: Slot, text: str) -> None:
        try:
            can_go_on = self.place_again(successor, Fault.TIMEOUT, text)
        finally:
            self._start_worker()  # now that the plan that hangs is known to be out
        if can_go_on:
            self.put(successor)
        else:
            self.failed(successor, Judgement(Reason.RUNTIME_FAULT, text))


def _without(in_force: InForce, slot: Slot, plan: PlanKind) -> InForce:
    """The same for one slot, without the buffers that a hung run may still write into."""
    works = slot.works.copy()  # in one step: the mechanic may install a plan meanwhile
    works.pop(plan, None)
    return replace(in_force, model=replace(in_force.model, works={slot.number: works}))


def fill(slot: Slot, plan: PlanKind) -> None:
    """Writes the slot's frame into the input of one of its plans."""
    work = slot.works[plan]
    work.engine.preprocess(_of(slot.frame), work)
    slot.work = work


def _of(value: T | None) -> T:
    """A slot in a stage always has its frame and ticket; anything else is a bug of the line."""
    if value is None:
        raise AssertionError("an empty slot came into a stage")
    return value
