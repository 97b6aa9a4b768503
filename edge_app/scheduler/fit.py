"""Which rungs meet the deadline and keep up with the triggers."""

from __future__ import annotations

from edge_app.scheduler.drift import estimate_us
from edge_app.scheduler.policy import Policy
from edge_app.scheduler.state import State

ENTER_SHARE = 0.95
"""A step, or a higher rate, is entered only with some time to spare, and left when there is too little: no flapping."""
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
        self._present_rate = 0.0 if held.rung is None else held.rung.rate
        self._policy, self._state, self._now_us = policy, state, now_us
        self._expected_us: dict[int, int] = {}
        self._sustained: dict[int, float] = {}
        self._in_time: dict[int, float] = {}

    def expected_us(self, step: int) -> int:
        """How long a run on this step is expected to take; 0: not known, which is no reason to refuse it."""
        known = self._expected_us.get(step)
        if known is None:
            known = estimate_us(self._policy, self._state.meters.tracks, self._state.health, step, self._now_us)
            self._expected_us[step] = known
        return known

    def is_in_time(self, step: int) -> bool:
        """Whether a frame on this step makes its deadline."""
        if self.budget_us is None:
            return True
        room = self.budget_us if step == self._present else self.budget_us * ENTER_SHARE
        return self.expected_us(step) <= room

    def sustained_rate(self, step: int) -> float:
        """The most of the triggers for which runs on this step end before the next ones come.

        Without a deadline the source waits, so every rate is sustained.
        """
        known = self._sustained.get(step)
        if known is None:
            known = self._sustained[step] = self._most_sustained(step)
        return known

    def _most_sustained(self, step: int) -> float:
        expected = self.expected_us(step)
        if self.budget_us is None or self.interval_us == 0 or expected == 0:
            return 1.0
        rate = self.interval_us * FULL_LOAD / expected
        kept = min(rate, self._present_rate) if step == self._present else 0.0
        return max(kept, rate * ENTER_SHARE)

    def rate_in_time(self, step: int) -> float:
        """The most of the triggers that this step can inspect in time; 0 if it takes too long for any."""
        known = self._in_time.get(step)
        if known is None:
            known = self._in_time[step] = self.sustained_rate(step) if self.is_in_time(step) else 0.0
        return known
