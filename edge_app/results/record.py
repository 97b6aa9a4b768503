"""A sealed result on its way out: encoded once, by whichever thread needs it first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edge_app.results import wire
from edge_app.results.identity import NodeIdentity
from edge_app.verdict import Sealed


class Record:
    """Made on the frame thread, so it costs next to nothing there; the JSON is written later."""

    __slots__ = ("_body", "degraded", "identity", "image", "part_id", "sealed")

    def __init__(
        self,
        sealed: Sealed,
        identity: NodeIdentity,
        part_id: str | None,
        degraded: tuple[str, ...],
        image: Mapping[str, Any] | None,
    ) -> None:
        self.sealed = sealed
        self.identity = identity
        self.part_id = part_id
        self.degraded = degraded
        self.image = image
        self._body: bytes | None = None

    @property
    def seq(self) -> int:
        """Its number in the epoch."""
        return self.sealed.seq

    @property
    def body(self) -> bytes:
        """The message. Two threads that encode at once make the same bytes."""
        if self._body is None:
            self._body = wire.encode(
                wire.result(self.sealed, self.identity, self.part_id, self.degraded, self.image)
            )
        return self._body
