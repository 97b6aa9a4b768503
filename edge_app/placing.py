"""Where a frame runs: the seam between the line and the scheduler."""

from __future__ import annotations

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

    def place(self) -> Placement | None:
        """For the next frame; None if no plan is left (the frame is sealed UNKNOWN/RUNTIME_FAULT)."""

    @property
    def last(self) -> Placement:
        """The last placement that there was, for what is told when there is none."""

    def admit(self) -> bool:
        """Whether the next trigger is inspected at all; refused ones are sealed UNKNOWN/OVERLOAD."""

    def is_ready(self, plan: PlanKind) -> bool:
        """Whether a frame that was placed on this plan before may still run there."""

    def observe(self, placement: Placement, infer_us: int, before_us: int = 0) -> None:
        """A run ended well, of a frame that had waited and been prepared for `before_us` until it began."""

    def fault(self, plan: PlanKind, fault: Fault, text: str) -> None:
        """A run did not end well. After a time-out no plan of that processor may be used again in this process."""

    def retry(self, tried: tuple[PlanKind, ...], time_left_us: int | None) -> Placement | None:
        """Where the same frame runs again, having failed on `tried`; None if nothing is left or there is no time."""


class FixedPlacer:
    """One plan, always: the null session, which measures the host alone."""

    def __init__(self, plan: PlanKind) -> None:
        self.last = Placement(plan, PowerMode.NONE, 1.0, SchedReason.CONFIGURED)

    def place(self) -> Placement | None:
        """See Placer."""
        return self.last

    def admit(self) -> bool:
        """See Placer."""
        return True

    def is_ready(self, plan: PlanKind) -> bool:
        """See Placer."""
        return True

    def observe(self, placement: Placement, infer_us: int, before_us: int = 0) -> None:
        """See Placer; nothing is learnt."""

    def fault(self, plan: PlanKind, fault: Fault, text: str) -> None:
        """See Placer; there is no other plan to go to."""

    def retry(self, tried: tuple[PlanKind, ...], time_left_us: int | None) -> Placement | None:
        """See Placer."""
        return None
