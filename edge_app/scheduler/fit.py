"""Which rungs meet the deadline and keep up with the triggers."""

from __future__ import annotations

from edge_app.scheduler.drift import estimate_us
from edge_app.scheduler.policy import Policy, Rung
from edge_app.scheduler.state import State

ENTER_SHARE = 0.95
"""A step is entered only with some of the deadline to spare, and left when it misses it: no flapping."""
FULL_LOAD = 0.97
"""Share of the time between two triggers that runs may take; more, and a queue grows."""


class Fit:
    """Expected latencies against the deadline and the triggers' interval, at one moment."""

    def __init__(self, policy: Policy, state: State, now_us: int) -> None:
        held = state.held
        self.budget_us = None if held.deadline_us is None else held.deadline_us - state.meters.other_us
        """For the run alone; None: no deadline."""
        self.interval_us = state.pace.interval_us
        """Between triggers; 0: not known."""
        self._present = None if held.rung is None else held.rung.step
        self._policy, self._state, self._now_us = policy, state, now_us
        self._expected_us: dict[int, int] = {}

    def expected_us(self, step: int) -> int:
        """How long a run on this step is expected to take; 0: not known, which is no reason to refuse it."""
        known = self._expected_us.get(step)
        if known is None:
            known = estimate_us(self._policy, self._state.meters.tracks, self._state.health, step, self._now_us)
            self._expected_us[step] = known
        return known

    def in_time(self, rung: Rung) -> bool:
        """Whether a frame on this rung makes its deadline."""
        if self.budget_us is None:
            return True
        room = self.budget_us if rung.step == self._present else self.budget_us * ENTER_SHARE
        return self.expected_us(rung.step) <= room

    def keeps_up(self, rung: Rung) -> bool:
        """Whether runs at this rung's rate end before the next ones come. Without a deadline the source waits."""
        if self.budget_us is None or self.interval_us == 0:
            return True
        return self.expected_us(rung.step) * rung.rate <= self.interval_us * FULL_LOAD

    def in_time_and_keeps_up(self, rung: Rung) -> bool:
        """Both."""
        return self.in_time(rung) and self.keeps_up(rung)
