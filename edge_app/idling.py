"""The NPU's power mode while the motion gate finds nothing to do: as low as it goes, up again when somebody moves."""

from __future__ import annotations

from collections.abc import Callable

from edge_app.placing import Fault, Placer
from edge_app.verdict import Placement, PlanKind, PowerMode

IDLE_MODE = PowerMode.LOW_POWER_SAVER


class _Lowered(Placement):
    """A placement whose power mode was lowered here, not chosen by the scheduler."""

    __slots__ = ()


class IdlingPlacer:
    """A Placer that lowers another one's power mode while `idle` says so.

    The frame that ends the idling is placed before anybody has looked at it, so it still runs in the low mode. Runs
    whose mode was lowered here are not told to the scheduler: they would look like a chip that throttles.
    """

    def __init__(self, placer: Placer, idle: Callable[[], bool]) -> None:
        self._placer, self._idle = placer, idle
        self._last: Placement | None = None

    def place(self) -> Placement | None:
        """See Placer."""
        placement = self._placer.place()
        if placement is not None and placement.power_mode not in (PowerMode.NONE, IDLE_MODE) and self._idle():
            placement = _Lowered(placement.plan, IDLE_MODE, placement.rate, placement.reason, placement.zones_c)
        self._last = placement or self._last
        return placement

    @property
    def last(self) -> Placement:
        """See Placer."""
        return self._last or self._placer.last

    def admit(self) -> bool:
        """See Placer."""
        return self._placer.admit()

    def is_ready(self, plan: PlanKind) -> bool:
        """See Placer."""
        return self._placer.is_ready(plan)

    def observe(self, placement: Placement, infer_us: int, before_us: int = 0) -> None:
        """See Placer."""
        if not isinstance(placement, _Lowered):
            self._placer.observe(placement, infer_us, before_us)

    def fault(self, plan: PlanKind, fault: Fault, text: str) -> None:
        """See Placer."""
        self._placer.fault(plan, fault, text)

    def retry(self, tried: tuple[PlanKind, ...], time_left_us: int | None) -> Placement | None:
        """See Placer."""
        return self._placer.retry(tried, time_left_us)
