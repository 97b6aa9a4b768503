"""The rule by which a controller acts on results: what is not certainly good goes out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from edge_app.client.messages import Delivery, Result


class Cause(StrEnum):
    """Why a part was accepted (GOOD) or rejected (all others)."""

    GOOD = "GOOD"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"
    NOT_LIVE = "NOT_LIVE"
    """Replayed, or too old."""
    LATE = "LATE"
    """Sealed after its deadline."""
    SIMULATED = "SIMULATED"
    WRONG_RECIPE = "WRONG_RECIPE"
    OTHER_RUN = "OTHER_RUN"
    """The node was started again since the part was triggered: its triggers are counted anew, this is another part."""
    DUPLICATE = "DUPLICATE"
    """Two parts were triggered with one id: nobody can tell whose result it is."""
    NO_RESULT = "NO_RESULT"
    """None came in time."""
    FAULT = "FAULT"
    """The node can't be trusted: no heartbeat, or two nodes of the same name."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with one part."""

    trigger_id: int
    accept: bool
    cause: Cause
    reason: str = ""
    """The node's reason, where the verdict was not PASS."""


@dataclass(frozen=True, slots=True)
class _Open:
    """Parts with one trigger id whose decision is open: one, or several by mistake."""

    end_us: int
    """When a decision is due."""
    epoch: str | None
    """In which run of the node they were triggered."""
    parts: int


class ControllerRule:
    """Accepts a part only on a live, in-time, not simulated PASS whose trigger is pending, with the expected recipe.

    Where trigger ids may come again after a restart of the node, as a camera's do, `triggered` must know the epoch.

    Every trigger ends in exactly one decision: that of its first result, or NO_RESULT. Where an id comes again while
    its decision is open, both are rejected (DUPLICATE), or that of an earlier run (OTHER_RUN): `overdue` tells it.

    Args:
        recipe_rev: the revision that this line should run; None: any (for trials).
        wait_us: how long a trigger waits for its result.
        allow_simulated: for trials without parts.
    """

    def __init__(self, recipe_rev: str | None, wait_us: int, *, allow_simulated: bool = False) -> None:
        self._recipe_rev = recipe_rev
        self._wait_us = wait_us
        self._allow_simulated = allow_simulated
        self._pending: dict[int, _Open] = {}
        self._rejected: list[Decision] = []
        """To be told by `overdue`."""

    def triggered(self, trigger_id: int, now_us: int, epoch: str | None = None) -> None:
        """A part was triggered; its decision is open. `epoch`: the node's run by its last heartbeat; None: any."""
        before = self._pending.get(trigger_id)
        if before is not None and None not in (before.epoch, epoch) and before.epoch != epoch:
            self._rejected += [Decision(trigger_id, False, Cause.OTHER_RUN)] * before.parts
            before = None
        parts = 1 if before is None else before.parts + 1
        self._pending[trigger_id] = _Open(now_us + self._wait_us, epoch, parts)

    @property
    def pending(self) -> int:
        """Parts whose decision is open."""
        return sum(each.parts for each in self._pending.values()) + len(self._rejected)

    def decide(self, result: Result, fault: str | None) -> Decision | None:
        """The decision for a result's part; None if its trigger is not pending (decided already, or not ours)."""
        pending = self._pending.get(result.trigger_id)
        if pending is None or pending.parts > 1:
            return None
        del self._pending[result.trigger_id]
        cause = Cause.OTHER_RUN if pending.epoch not in (None, result.epoch) else self._cause(result, fault)
        return Decision(result.trigger_id, cause is Cause.GOOD, cause, "" if cause is Cause.GOOD else result.reason)

    def overdue(self, now_us: int) -> list[Decision]:
        """Decisions for the parts whose result did not come in time."""
        decisions, self._rejected = self._rejected, []
        for trigger_id in [key for key, each in self._pending.items() if each.end_us <= now_us]:
            parts = self._pending.pop(trigger_id).parts
            decisions += [Decision(trigger_id, False, Cause.NO_RESULT if parts == 1 else Cause.DUPLICATE)] * parts
        return decisions

    def _cause(self, result: Result, fault: str | None) -> Cause:
        if fault is not None:
            return Cause.FAULT
        if result.delivery is not Delivery.LIVE:
            return Cause.NOT_LIVE
        if result.verdict != "PASS":
            return Cause.FAIL if result.verdict == "FAIL" else Cause.UNKNOWN
        if not result.in_time:
            return Cause.LATE
        if result.simulated and not self._allow_simulated:
            return Cause.SIMULATED
        if self._recipe_rev is not None and result.recipe_rev != self._recipe_rev:
            return Cause.WRONG_RECIPE
        return Cause.GOOD
