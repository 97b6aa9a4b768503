"""A line and its model, as the wire tells them."""

from __future__ import annotations

from edge_app import __version__
from edge_app.config.pipeline import Pipeline
from edge_app.deciding import DecisionSealer
from edge_app.line import Line
from edge_app.model import ModelCard
from edge_app.placed import Placed
from edge_app.recipes import Prepared, Recipes
from edge_app.results import ModelIdentity, NodeIdentity, NodeStatus, Recipe, new_epoch
from edge_app.verdict import Mode


def identify(
    pipeline: Pipeline, card: ModelCard, placed: Placed, recipe: Prepared, version: str | None, *, simulated: bool
) -> NodeIdentity:
    """Who this node is, as every result says it."""
    return NodeIdentity(
        node=pipeline.station.node,
        epoch=new_epoch(),
        software=__version__,
        recipe=Recipe(recipe.name, recipe.rev),
        model=ModelIdentity(card.name, card.sha256, placed.soc, version),
        simulated=simulated,
        recipes=recipes_told(placed.recipes),
        description=pipeline.model_dump(mode="json"),
    )


def recipes_told(recipes: Recipes) -> tuple[Recipe, ...]:
    """Recipes as `hello` lists them."""
    return tuple(Recipe(one.name, one.rev) for one in (recipes.own, *recipes.others.values()))


def status_of(line: Line) -> NodeStatus:
    """The line as heartbeats tell it."""
    counts = line.sealer.counts()
    return NodeStatus(
        mode=line.mode,
        ready=line.mode in (Mode.READY, Mode.RUNNING),
        triggers=counts.triggers,
        passed=counts.passed,
        failed=counts.failed,
        unknown=counts.unknown_by_reason,
        queue_depth=line.queue_depth,
        placement=line.placement,
        degraded=tuple(sorted(line.degraded)),
        frames=frames_of(line),
    )


def frames_of(line: Line) -> dict[str, int]:
    """Frames of a line that decides over many; nothing for a line whose frames are triggers."""
    if not isinstance(line.sealer, DecisionSealer):
        return {}
    effort = line.sealer.effort
    return {"came": effort.frames, "gated": effort.gated, "inferred": effort.inferences}
