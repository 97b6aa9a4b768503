"""What is done with a frame: guard and judge of one recipe, and what the recipe is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edge_app.detections import Classes, Detections
from edge_app.frame import Frame
from edge_app.verdict import Judgement


@dataclass(frozen=True)
class Inspection:
    """A recipe at work; guard and judge are pure. A frame is judged by the one that was in force when it came."""

    guard: Callable[[Frame], Judgement | None]
    """Why nothing could be seen on this picture; None if something could."""
    judge: Callable[[Detections | Classes], Judgement]
    """Raises RuntimeFault for what its model can't have found."""
    recipe: tuple[str, str] | None = None
    """Name and revision, as results tell them."""
