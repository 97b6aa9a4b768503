"""Sealing: every trigger gets exactly one result, and the first seal wins."""

from __future__ import annotations

import heapq
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from edge_app import threads
from edge_app.clock import monotonic_to_utc_us, monotonic_us
from edge_app.frame import Frame, TrueDefect
from edge_app.verdict import Judgement, Mode, ModelIdentity, Placement, PlanKind, Reason, Sealed, Verdict

log = logging.getLogger(__name__)

LATENCIES_KEPT = 4096
MANY_OF, MANY_FROM, MANY_UNTIL = 32, 8, 2
"""Of so many results, how many with a reason that has an alarm raise it, and how few clear it."""
LOOKED_AT = frozenset({Reason.OK, Reason.DEFECT, Reason.MARGINAL, Reason.BAD_IMAGE, Reason.NO_PART})


@dataclass(frozen=True, slots=True)
class ReasonAlarm:
    """An alarm that tells of many results with one reason: by one alone nobody sees that a line can't do its work."""

    name: str
    many: frozenset[Reason]
    among: frozenset[Reason]
    """Other results count for nothing: to refuse a trigger says nothing about time, nor about the picture."""
    text: str
    remedy: str


LATE_ALARM = ReasonAlarm(
    "LATE", frozenset({Reason.LATE, Reason.OVERRUN}), LOOKED_AT | {Reason.LATE, Reason.OVERRUN},
    f"at least {MANY_FROM} of the last {MANY_OF} triggers had no verdict in time (LATE, OVERRUN)",
    "give it more time (limits.deadline_ms) or fewer parts; `edge_app profile` tells what takes the time",
)  # fmt: skip
BAD_IMAGE_ALARM = ReasonAlarm(
    "BAD_IMAGE", frozenset({Reason.BAD_IMAGE}), LOOKED_AT,
    f"at least {MANY_FROM} of the last {MANY_OF} pictures could not be judged",
    "look at the lens, the light, the place of the part and preprocess.region_px; if the parts or the light are "
    "new, learn the guard anew: `edge_app calibration guard`",
)  # fmt: skip


class Outlet(Protocol):
    """Where sealed results go. Must not block: it runs under the sealing lock, so that results leave in order."""

    def result(self, sealed: Sealed) -> None:
        """One sealed result, in the order of seq."""

    def state(self, mode: Mode, was: Mode, placement: Placement, reason: str) -> None:
        """The node's mode or plan changed."""

    def alarm(self, name: str, active: bool, text: str, remedy: str) -> None:
        """An alarm was raised or cleared."""

    def evidence(self, frame: Frame, give_back: Callable[[Frame], None]) -> bool:
        """Offers a frame after its seal. True: its pixels are held until `give_back(frame)`."""

    def note(self, seq: int, text: str) -> None:
        """Keeps a remark on a sealed result; it is never published."""


@dataclass(slots=True, eq=False)
class Ticket:
    """One trigger on its way to its result. Only the Sealer changes `sealed`."""

    trigger_id: int
    frame_id: int
    part_id: str | None
    t_capture_us: int
    t_capture_mono_us: int
    deadline_mono_us: int | None
    placement: Placement
    truth: tuple[TrueDefect, ...] | None = None
    stage_us: dict[str, int] = field(default_factory=dict)
    degraded: set[str] = field(default_factory=set)
    tried: tuple[PlanKind, ...] = ()
    """Plans on which this frame failed."""
    sealed: bool = False
    seq: int = 0
    """Of its result, once sealed."""
    recipe: tuple[str, str] | None = None
    """Name and revision of the recipe that it is judged by."""
    model: ModelIdentity | None = None
    """That inspects it; None: the node's."""

    @property
    def has_picture(self) -> bool:
        """Whether its frame has come; a software trigger may wait for it in vain."""
        return self.frame_id != 0

    def time_left_us(self) -> int | None:
        """Microseconds to the deadline, negative when it is past; None without one."""
        return None if self.deadline_mono_us is None else self.deadline_mono_us - monotonic_us()


@dataclass(frozen=True, slots=True)
class Counts:
    """What was sealed so far. `triggers` are those that came in; the difference to `sealed` is in flight (or lost)."""

    triggers: int
    passed: int
    failed: int
    unknown: int
    unknown_by_reason: dict[str, int]
    escapes: int
    false_rejects: int
    truths: int
    """Results whose true verdict is known."""

    @property
    def sealed(self) -> int:
        """Results so far."""
        return self.passed + self.failed + self.unknown


class Many:
    """Whether many of the last results have a reason of an alarm."""

    def __init__(self, alarm: ReasonAlarm) -> None:
        self.alarm = alarm
        self._had: deque[bool] = deque(maxlen=MANY_OF)
        self.stands = False
        """The alarm."""

    def changed_by(self, reason: Reason) -> bool:
        """One more result: whether the alarm comes or goes."""
        if reason not in self.alarm.among:
            return False
        self._had.append(reason in self.alarm.many)
        had = sum(self._had)
        was, self.stands = self.stands, had > MANY_UNTIL if self.stands else had >= MANY_FROM
        return self.stands is not was


class Sealer:
    """Gives each trigger its one result: sequence number, counters, and out."""

    reason_alarms: tuple[ReasonAlarm, ...] = (LATE_ALARM, BAD_IMAGE_ALARM)

    def __init__(
        self,
        outlet: Outlet,
        degraded: Callable[[], frozenset[str]] = frozenset,
        broken: Callable[[Exception], None] = lambda _error: None,
    ) -> None:
        """Counts from 0.

        Args:
            outlet: where results go.
            degraded: tells what of the node is not as configured when a result is sealed.
            broken: told that the outlet raised at a result: it is counted, but may be nowhere. The line must end.
        """
        self._outlet = outlet
        self._degraded = degraded
        self._broken = broken
        self._lock = threading.Lock()
        self._seq = 0
        self._triggers = 0
        self._reasons: Counter[Reason] = Counter()
        self._escapes = self._false_rejects = self._truths = 0
        self._latencies_us: deque[int] = deque(maxlen=LATENCIES_KEPT)
        self._many = [Many(alarm) for alarm in self.reason_alarms]
        self.saw: Callable[[Ticket, Judgement], None] = lambda _ticket, _judgement: None
        """Told of every result, with the lock held: it must be quick and not raise."""

    def admit(self, ticket: Ticket) -> Ticket:
        """Counts a trigger that came in. Every admitted ticket must be sealed."""
        with self._lock:
            self._triggers += 1
        return ticket

    def seal(self, ticket: Ticket, judgement: Judgement) -> bool:
        """Seals a trigger; False if it had been sealed before (the judgement then is only a note in the journal).

        A judgement that comes after the deadline is UNKNOWN/LATE, whatever it says.
        """
        degraded = self._degraded_of(ticket)
        with self._lock:
            if ticket.sealed:
                if ticket.seq:
                    self._note(ticket.seq, f"a verdict came after the seal: {judgement.reason} {judgement.detail}")
                return False
            now = monotonic_us()
            judgement = self._in_time(ticket, judgement, now)
            self._publish(ticket, judgement, degraded, now)
            self._look_for_many(judgement)
            return True

    def _degraded_of(self, ticket: Ticket) -> tuple[str, ...]:
        return tuple(sorted(self._degraded() | ticket.degraded))

    def _in_time(self, ticket: Ticket, judgement: Judgement, now: int) -> Judgement:
        deadline = ticket.deadline_mono_us
        if deadline is None or now <= deadline or judgement.reason is Reason.LATE:
            return judgement
        return replace(judgement, reason=Reason.LATE, detail=f"{judgement.reason} came too late")

    def _publish(self, ticket: Ticket, judgement: Judgement, degraded: tuple[str, ...], now: int) -> None:
        """The next result. Called with the lock held: results leave in the order of seq.

        It is made before anything is changed: a judgement that is none (a bug) leaves the ticket unsealed.
        """
        sealed = self._sealed(ticket, judgement, degraded, now)
        ticket.sealed = True
        self._seq = ticket.seq = sealed.seq
        self._count(ticket, judgement)
        if ticket.stage_us or judgement.reason is Reason.LATE:
            self._latencies_us.append(now - ticket.t_capture_mono_us)
        self._hand_over(sealed)
        self.saw(ticket, judgement)

    def _look_for_many(self, judgement: Judgement) -> None:
        """One more frame was judged: alarms that tell of many may come or go."""
        for many in self._many:
            if many.changed_by(judgement.reason):
                self._tell(many, judgement.detail)

    def _tell(self, many: Many, detail: str | None) -> None:
        """That an alarm comes, with what the result that brought it says; or that it goes."""
        alarm = many.alarm
        text = alarm.text if many.stands else ""
        if many.stands and detail:
            text += f"; the last one: {detail}"
        try:
            self._outlet.alarm(alarm.name, many.stands, text, alarm.remedy)
        except Exception:
            log.exception("the alarm %s could not be told: %s", alarm.name, text)

    def _note(self, seq: int, text: str) -> None:
        try:
            self._outlet.note(seq, text)
        except Exception:
            log.exception("a remark on result %d could not be kept: %s", seq, text)

    def _hand_over(self, sealed: Sealed) -> None:
        try:
            self._outlet.result(sealed)
        except Exception as error:
            log.critical("result %d (%s) could not be handed over", sealed.seq, sealed.reason, exc_info=True)
            self._broken(error)

    def _sealed(self, ticket: Ticket, judgement: Judgement, degraded: tuple[str, ...], now: int) -> Sealed:
        deadline, t_done_us = ticket.deadline_mono_us, monotonic_to_utc_us(now)
        return Sealed(
            seq=self._seq + 1,
            trigger_id=ticket.trigger_id,
            part_id=ticket.part_id,
            frame_id=ticket.frame_id,
            reason=judgement.reason,
            detail=judgement.detail,
            t_capture_us=ticket.t_capture_us,
            t_done_us=t_done_us,
            # By the same clocks as t_done_us: who compares the two gets what the node decided, also after a clock step.
            deadline_us=None if deadline is None else t_done_us + deadline - now,
            stage_us=dict(ticket.stage_us),
            placement=ticket.placement,
            degraded=degraded,
            defects=judgement.defects,
            classes=judgement.classes,
            label=judgement.label,
            stable_since_us=judgement.stable_since_us,
            recipe=ticket.recipe,
            model=ticket.model,
        )

    def _count(self, ticket: Ticket, judgement: Judgement) -> None:
        self._reasons[judgement.reason] += 1
        if ticket.truth is None:
            return
        self._truths += 1
        self._escapes += bool(ticket.truth) and judgement.verdict is Verdict.PASS
        self._false_rejects += not ticket.truth and judgement.verdict is Verdict.FAIL

    def counts(self) -> Counts:
        """The counters as they stand."""
        with self._lock:
            reasons = Counter(self._reasons)
            unknown = {r.value: n for r, n in sorted(reasons.items()) if r.verdict is Verdict.UNKNOWN}
            return Counts(
                self._triggers,
                reasons[Reason.OK],
                reasons[Reason.DEFECT],
                sum(unknown.values()),
                unknown,
                self._escapes,
                self._false_rejects,
                self._truths,
            )

    @property
    def triggers(self) -> int:
        """Admitted so far."""
        return self._triggers

    @property
    def last_seq(self) -> int:
        """Of the result sealed last; 0 before the first."""
        return self._seq

    def latencies_us(self) -> list[int]:
        """Capture to seal of the last LATENCIES_KEPT triggers that were taken up: to refuse one takes no time."""
        with self._lock:
            return list(self._latencies_us)


class DeadlineTimer:
    """Seals UNKNOWN/LATE at a trigger's deadline if nothing else has sealed it by then.

    `broken` is told if it can't seal: from then on no deadline is kept, so the line must end.
    """

    def __init__(self, sealer: Sealer, broken: Callable[[Exception], None]) -> None:
        self._sealer = sealer
        self._broken = broken
        self._tickets: list[tuple[int, int, Ticket]] = []
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threads.daemon(self._work, "deadline")

    def start(self) -> None:
        """Starts the timer's thread."""
        self._thread.start()

    def watch(self, ticket: Ticket) -> None:
        """Adds a ticket; one without a deadline is not watched."""
        if ticket.deadline_mono_us is None:
            return
        with self._changed:
            heapq.heappush(self._tickets, (ticket.deadline_mono_us, id(ticket), ticket))
            if self._tickets[0][2] is ticket:
                self._changed.notify()

    def stop(self) -> None:
        """Ends the thread; tickets that are still watched are left to their stages."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        try:
            self._keep_deadlines()
        except Exception as error:
            log.critical("deadlines are no longer kept", exc_info=True)
            self._broken(error)

    def _is_due(self) -> bool:
        """Whether the first ticket that is not sealed yet is at its deadline; those before it need nobody to wake."""
        while self._tickets and self._tickets[0][2].sealed:
            heapq.heappop(self._tickets)
        return bool(self._tickets) and self._tickets[0][0] <= monotonic_us()

    def _keep_deadlines(self) -> None:
        while True:
            with self._changed:
                while not self._stopped and not self._is_due():
                    wait_us = self._tickets[0][0] - monotonic_us() if self._tickets else None
                    self._changed.wait(None if wait_us is None else max(wait_us, 0) / 1e6)
                if self._stopped:
                    return
                ticket = heapq.heappop(self._tickets)[2]
            if not ticket.sealed:
                what = "no verdict by the deadline" if ticket.has_picture else "no picture came by the deadline"
                self._sealer.seal(ticket, Judgement(Reason.LATE, what))
