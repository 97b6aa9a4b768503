"""Which part a trigger is: announced by the controller, taken when the trigger is sealed; never changed after that."""

from __future__ import annotations

from enum import Enum

from edge_app.results.commands import Code, RefusedError

KEPT = 8192


class _Mark(Enum):
    SEALED = "sealed without a part"


class Parts:
    """Announcements by trigger id.

    The frame thread (`take`) and the bus thread (`announce`) meet in one `setdefault`, which the interpreter does in
    one step: whichever comes first wins, and neither waits for the other.
    """

    def __init__(self) -> None:
        self._parts: dict[int, str | _Mark] = {}

    def announce(self, trigger_id: int, part_id: str) -> None:
        """Says which part a trigger will be. Saying the same again is harmless.

        Raises:
            RefusedError: TOO_LATE, the trigger is sealed; CONFLICT, it was announced as another part.
        """
        known = self._parts.setdefault(trigger_id, part_id)
        if known is _Mark.SEALED:
            raise RefusedError(Code.TOO_LATE, f"trigger {trigger_id} is sealed: its result stays without a part")
        if known != part_id:
            raise RefusedError(Code.CONFLICT, f"trigger {trigger_id} was announced as another part")

    def take(self, trigger_id: int) -> str | None:
        """The part of a trigger that is being sealed; None if none was announced, and none can be any more."""
        part = self._parts.setdefault(trigger_id, _Mark.SEALED)
        return None if isinstance(part, _Mark) else part

    def forget_old(self) -> None:
        """Keeps the last KEPT triggers. Called now and then by the bus thread."""
        for trigger_id in list(self._parts)[:-KEPT]:
            del self._parts[trigger_id]
