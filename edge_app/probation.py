"""The first frames of a model that was swapped in: whether it may stay."""

from __future__ import annotations

import threading

from edge_app.sealing import Ticket
from edge_app.verdict import Judgement, ModelIdentity, Reason

INSPECTED = (Reason.OK, Reason.DEFECT, Reason.MARGINAL)
BROKEN = (Reason.INVALID_OUTPUT, Reason.RUNTIME_FAULT, Reason.INTERNAL)
NOT_IN_TIME = (Reason.LATE, Reason.OVERRUN, Reason.OVERLOAD)


class Probation:
    """Over when enough frames were inspected, or at the first fault, or when too many were not in time.

    What the model did not look at (BAD_IMAGE, NO_PART, a lost camera) counts for nothing. A frame that another of the
    model's plans had to rescue counts as a fault, whatever its verdict.
    """

    def __init__(self, model: ModelIdentity, frames: int, most_late: int) -> None:
        """`model` as the tickets of its frames carry it."""
        self._model, self.frames, self._most_late = model, frames, most_late
        self.inspected = 0
        self.late = 0
        self.failure: str | None = None
        """Why it may not stay."""
        self.ordered = False
        """A person sent it away."""
        self.over = threading.Event()

    def saw(self, ticket: Ticket, judgement: Judgement) -> None:
        """One sealed result; see Sealer.saw."""
        if ticket.model is not self._model or self.over.is_set():
            return
        if judgement.reason in BROKEN or ticket.tried:
            tried = f"plan {', '.join(ticket.tried)} failed; " if ticket.tried else ""
            self.end(f"frame {ticket.frame_id}: {tried}{judgement.reason} {judgement.detail}".rstrip())
        elif judgement.reason in NOT_IN_TIME:
            self.late += 1
            if self.late > self._most_late:
                self.end(f"{self.late} of its first {self.inspected + self.late} frames were not in time, "
                         f"the last {judgement.reason}; at most {self._most_late} may be")  # fmt: skip
        elif judgement.reason in INSPECTED:
            self.inspected += 1
            if self.inspected >= self.frames:
                self.over.set()

    def end(self, failure: str) -> None:
        """It may not stay."""
        self.failure = failure
        self.over.set()
