"""What frames are inspected with: a recipe, a model and its plans. Another one comes in between two frames.

A frame takes what is in force at its admission and keeps it to its seal, so a change is one assignment: nothing waits,
and no frame is looked at by one model and judged by the scores of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_app.engine import Engine, Work
from edge_app.inspection import Inspection
from edge_app.placing import Placer
from edge_app.verdict import ModelIdentity, PlanKind


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model's plans with buffers for every slot, and who chooses among them."""

    placer: Placer
    works: Mapping[int, dict[PlanKind, Work]] = field(default_factory=dict)
    """By slot number: made once and used again and again."""
    identity: ModelIdentity | None = None
    """As results tell it; None: the node's."""

    def install(self, engine: Engine) -> None:
        """A plan was built (again): every slot gets buffers for it. Frames in flight keep the buffers they have."""
        for works in self.works.values():
            works[engine.plan] = engine.bind()


def fit(
    engines: Mapping[PlanKind, Engine], placer: Placer, slots: int, identity: ModelIdentity | None = None
) -> Fitted:
    """Buffers of loaded plans, for so many slots."""
    works = {number: {kind: engine.bind() for kind, engine in engines.items()} for number in range(slots)}
    return Fitted(placer, works, identity)


@dataclass(frozen=True, eq=False)
class InForce:
    """Replaced as a whole, never changed."""

    inspection: Inspection
    model: Fitted

    @property
    def placer(self) -> Placer:
        """Of the model."""
        return self.model.placer
