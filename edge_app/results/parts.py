"""Which part a trigger is: announced by the controller, taken when the trigger is sealed; never changed after that."""

from __future__ import annotations

from collections import deque
from enum import Enum
from itertools import islice

from edge_app.results.commands import Code, RefusedError

KEPT = 8192


class _Mark(Enum):
    SEALED = "sealed without a part"


class Parts:
    """Announcements by trigger id; the ids of one run rise.

    The frame thread (`take`) and the bus thread (all else) meet in one `setdefault`, which the interpreter does in
    one step: whichever comes first wins, and neither waits for the other.
    """

    def __init__(self) -> None:
        self._parts: dict[int, str | _Mark] = {}
        self._sealed: deque[int] = deque()
        self._forgotten = -1
        """All triggers up to this one are sealed, and only the younger ones of them are remembered."""

    def announce(self, trigger_id: int, part_id: str) -> bool:
        """Says which part a trigger will be. False: the same was said before, which is harmless.

        Raises:
            RefusedError: TOO_LATE, the trigger is sealed; CONFLICT, it was announced as another part.
        """
        new = trigger_id not in self._parts
        known = _Mark.SEALED if new and trigger_id <= self._forgotten else self._parts.setdefault(trigger_id, part_id)
        if known is _Mark.SEALED:
            raise RefusedError(Code.TOO_LATE, f"trigger {trigger_id} is sealed: its result stays as it is")
        if known != part_id:
            raise RefusedError(Code.CONFLICT, f"trigger {trigger_id} was announced as another part")
        return new

    def withdraw(self, trigger_id: int) -> None:
        """There will be no such trigger: it was refused."""
        self._parts.pop(trigger_id, None)

    def take(self, trigger_id: int) -> str | None:
        """The part of a trigger that is being sealed; None if none was announced, and none can be any more."""
        part = self._parts.setdefault(trigger_id, _Mark.SEALED)
        self._sealed.append(trigger_id)
        return None if isinstance(part, _Mark) else part

    def forget_old(self) -> None:
        """Keeps the last KEPT triggers that are sealed, and as many that are announced. Called now and then."""
        while len(self._sealed) > KEPT:
            trigger_id = self._sealed.popleft()
            self._parts.pop(trigger_id, None)
            self._forgotten = max(self._forgotten, trigger_id)
        too_many = len(self._parts) - len(self._sealed) - KEPT
        if too_many > 0:
            sealed = set(self._sealed)
            for trigger_id in list(islice((i for i in list(self._parts) if i not in sealed), too_many)):
                del self._parts[trigger_id]
