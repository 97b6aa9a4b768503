"""Where a frame runs: the seam between the line and the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from edge_app.verdict import Placement, PlanKind, PowerMode, SchedReason


class Fault(StrEnum):
    """What can go wrong with a plan while it runs."""

    ERROR = "error"
    WRONG_OUTPUT = "wrong_output"
    TIMEOUT = "timeout"


class Placer(Protocol):
    """Decides plan, power mode and admission; learns from what happened. Called from several threads."""

    def place(self) -> Placement:
        """For the next frame."""

    def admit(self) -> bool:
        """Whether the next trigger is inspected at all; refused ones are sealed UNKNOWN/OVERLOAD."""

    def observe(self, plan: PlanKind, infer_us: int) -> None:
        """A run ended well."""

    def fault(self, plan: PlanKind, fault: Fault, text: str) -> None:
        """A run did not end well. After a time-out no plan of that provider may be used again in this process."""

    def retry(self, plan: PlanKind, time_left_us: int | None) -> Placement | None:
        """Where the same frame runs again after a fault on `plan`; None if nothing is left or there is no time."""


class ConfiguredPlacer:
    """The plans as configured, first one first; a plan that fails `patience` times in a row is out for good."""

    def __init__(
        self,
        plans: Sequence[PlanKind],
        reason: SchedReason = SchedReason.NORMAL,
        power_mode: PowerMode = PowerMode.BURST,
        patience: int = 3,
    ) -> None:
        """`plans` in the order of preference; `reason` is told in results while the first one is in use."""
        self._plans = tuple(plans)
        self._reason = reason
        self._power_mode = power_mode
        self._patience = patience
        self._faults = dict.fromkeys(self._plans, 0)

    def _usable(self) -> list[PlanKind]:
        return [plan for plan in self._plans if self._faults[plan] < self._patience]

    def _placement(self, plan: PlanKind, reason: SchedReason) -> Placement:
        on_npu = plan in (PlanKind.HTP, PlanKind.HYBRID)
        return Placement(plan, self._power_mode if on_npu else PowerMode.NONE, 1.0, reason)

    def place(self) -> Placement:
        """See Placer. When every plan is out the last one is tried again: a line never stops trying."""
        usable = self._usable() or [self._plans[-1]]
        return self._placement(usable[0], self._reason if usable[0] is self._plans[0] else SchedReason.FAULT)

    def admit(self) -> bool:
        """See Placer: all are admitted."""
        return True

    def observe(self, plan: PlanKind, infer_us: int) -> None:
        """See Placer."""
        if self._faults[plan] < self._patience:
            self._faults[plan] = 0

    def fault(self, plan: PlanKind, fault: Fault, text: str) -> None:
        """See Placer."""
        self._faults[plan] += self._patience if fault is Fault.TIMEOUT else 1
        if fault is Fault.TIMEOUT and plan is not PlanKind.CPU:
            for other in (PlanKind.HTP, PlanKind.HYBRID):
                if other in self._faults:
                    self._faults[other] = self._patience

    def retry(self, plan: PlanKind, time_left_us: int | None) -> Placement | None:
        """See Placer."""
        if time_left_us is not None and time_left_us <= 0:
            return None
        later = self._plans[self._plans.index(plan) + 1 :]
        usable = [other for other in later if other in self._usable()]
        return self._placement(usable[0], SchedReason.FAULT) if usable else None
