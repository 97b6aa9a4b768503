"""A sealed result on its way out: encoded once, by whichever thread needs it first."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from edge_app.results import wire
from edge_app.results.identity import NodeIdentity
from edge_app.verdict import Reason, Sealed

log = logging.getLogger(__name__)


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
        """The message. Two threads that encode at once make the same bytes.

        A result that can't be encoded (a bug) goes out as UNKNOWN/INTERNAL: `sealed` is that one from then on.
        """
        if self._body is None:
            try:
                self._body = self._encoded()
            except Exception as error:
                log.critical("result %d (%s) can't be encoded", self.seq, self.sealed.reason, exc_info=True)
                self.sealed = _without_content(self.sealed, f"not encoded: {type(error).__name__}: {error}")
                self._body = self._encoded()
        return self._body

    def _encoded(self) -> bytes:
        return wire.encode(wire.result(self.sealed, self.identity, self.part_id, self.degraded, self.image))


def _without_content(sealed: Sealed, detail: str) -> Sealed:
    """What is left of a result if nothing that a model or a sensor gave can be trusted to be sendable."""
    return replace(
        sealed, reason=Reason.INTERNAL, detail=detail, stage_us={}, placement=replace(sealed.placement, zones_c={}),
        defects=(), classes=None if sealed.classes is None else (), label=None, stable_since_us=None,
    )  # fmt: skip
