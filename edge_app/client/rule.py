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


class ControllerRule:
    """Accepts a part only on a live, in-time, not simulated PASS whose trigger is pending, with the expected recipe.

    Where trigger ids may come again after a restart of the node, as a camera's do, `triggered` must know the epoch.

    Every trigger ends in exactly one decision: that of its first result, or NO_RESULT.

    Args:
        recipe_rev: the revision that this line should run; None: any (for trials).
        wait_us: how long a trigger waits for its result.
        allow_simulated: for trials without parts.
    """

    def __init__(self, recipe_rev: str | None, wait_us: int, *, allow_simulated: bool = False) -> None:
        self._recipe_rev = recipe_rev
        self._wait_us = wait_us
        self._allow_simulated = allow_simulated
        self._pending: dict[int, tuple[int, str | None]] = {}
        """When a decision is due, and in which run of the node the part was triggered."""

    def triggered(self, trigger_id: int, now_us: int, epoch: str | None = None) -> None:
        """A part was triggered; its decision is open. `epoch`: the node's run by its last heartbeat; None: any."""
        self._pending[trigger_id] = now_us + self._wait_us, epoch

    @property
    def pending(self) -> int:
        """Parts whose decision is open."""
        return len(self._pending)

    def decide(self, result: Result, fault: str | None) -> Decision | None:
        """The decision for a result's part; None if its trigger is not pending (decided already, or not ours)."""
        pending = self._pending.pop(result.trigger_id, None)
        if pending is None:
            return None
        cause = Cause.OTHER_RUN if pending[1] not in (None, result.epoch) else self._cause(result, fault)
        return Decision(result.trigger_id, cause is Cause.GOOD, cause, "" if cause is Cause.GOOD else result.reason)

    def overdue(self, now_us: int) -> list[Decision]:
        """Decisions for the parts whose result did not come in time."""
        late = [trigger_id for trigger_id, (end_us, _) in self._pending.items() if end_us <= now_us]
        for trigger_id in late:
            del self._pending[trigger_id]
        return [Decision(trigger_id, False, Cause.NO_RESULT) for trigger_id in late]

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
