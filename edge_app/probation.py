"""The first frames of a model that was swapped in: whether it may stay."""

from __future__ import annotations

import math
import threading
from collections import deque

from edge_app.sealing import Ticket
from edge_app.verdict import Judgement, ModelIdentity, Reason

INSPECTED = (Reason.OK, Reason.DEFECT, Reason.MARGINAL)
BROKEN = (Reason.INVALID_OUTPUT, Reason.RUNTIME_FAULT, Reason.INTERNAL)
NOT_IN_TIME = (Reason.LATE, Reason.OVERRUN, Reason.OVERLOAD)


RECENT = 400
"""Results that tell how punctual a line is."""
FEWEST = 20
SIGMAS = 3.0
"""How far chance alone may carry a share."""


class Punctuality:
    """How many of a line's last results were not in time."""

    def __init__(self) -> None:
        self._late: deque[bool] = deque(maxlen=RECENT)

    def saw(self, ticket: Ticket, judgement: Judgement) -> None:
        """One sealed result."""
        if ticket.has_picture:
            self._late.append(judgement.reason in NOT_IN_TIME)

    @property
    def share(self) -> float:
        """From 0 to 1; 0 of a line that has hardly begun."""
        late = list(self._late)
        return sum(late) / len(late) if len(late) >= FEWEST else 0.0


class Probation:
    """Over when enough frames were inspected, or at the first fault, or when too many were not in time.

    Too many are `most_late` more than the line had before: a hot board, or a camera that is too quick, is not the new
    model's fault. What the line had before varies by chance (binomially), so that much is allowed for too. What the
    model did not look at (BAD_IMAGE, NO_PART, a lost camera, a trigger whose picture never came) counts for nothing. A
    frame that another of the model's plans had to rescue counts as a fault, whatever its verdict.
    """

    def __init__(self, model: ModelIdentity, frames: int, most_late: int, late_before: float = 0.0) -> None:
        """`model` as the tickets of its frames carry it; `late_before`: the line's share that was not in time."""
        self._model, self.frames, self._most_late, self._late_before = model, frames, most_late, late_before
        self.inspected = 0
        self.late = 0
        self.failure: str | None = None
        """Why it may not stay."""
        self.ordered = False
        """A person sent it away."""
        self.over = threading.Event()

    def saw(self, ticket: Ticket, judgement: Judgement) -> None:
        """One sealed result; see Sealer.saw."""
        if ticket.model is not self._model or self.over.is_set() or not ticket.has_picture:
            return
        if judgement.reason in BROKEN or ticket.tried:
            tried = f"plan {', '.join(ticket.tried)} failed; " if ticket.tried else ""
            self.end(f"frame {ticket.frame_id}: {tried}{judgement.reason} {judgement.detail}".rstrip())
        elif judgement.reason in NOT_IN_TIME:
            self.late += 1
            seen = self.inspected + self.late
            most = self._most_late + usual(seen, self._late_before)
            if self.late > most:
                self.end(f"{self.late} of its first {seen} frames were not in time, the last {judgement.reason}; "
                         f"at most {most} may be, {self._late_before:.0%} were before")  # fmt: skip
        elif judgement.reason in INSPECTED:
            self.inspected += 1
            if self.inspected >= self.frames:
                self.over.set()

    def end(self, failure: str) -> None:
        """It may not stay."""
        self.failure = failure
        self.over.set()


def usual(seen: int, share: float) -> int:
    """Of so many frames, those not in time that are nothing new: the mean of a binomial, and SIGMAS deviations."""
    return math.floor(seen * share + SIGMAS * math.sqrt(seen * share * (1 - share)))
