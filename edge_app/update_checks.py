"""What a version of a model must be to take the running one's place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edge_app.config.pipeline import Model, Pipeline
from edge_app.errors import ConfigError, ModelError, RuntimeFault
from edge_app.governor import Governor
from edge_app.model import ModelCard
from edge_app.placed import Placed
from edge_app.verdict import PlanKind


def model_in(folder: Path, own: Model) -> Model:
    """A pipeline's `model:` with a stored folder in place of its own model; how boxes are thinned out stays."""
    bare = dict.fromkeys(("size", "task", "head", "labels", "labels_file"))
    return own.model_copy(update={**bare, "path": folder})


def refuse_other_lines(pipeline: Pipeline) -> None:
    """Raises ConfigError unless the line is one whose first frames tell how a model does."""
    if pipeline.decision is not None or pipeline.runtime.provider == "null":
        raise ConfigError(
            "this line's model can't be changed while it runs",
            wanted="a line that judges each part by itself",
            got="`decision`" if pipeline.decision is not None else "runtime.provider null, which replays a recording",
            remedy="stop the line, change model.path, start it",
        )


def refuse_hung(placed: Placed) -> None:
    """Raises RuntimeFault if the NPU has hung in this process: nothing new can be proven on it."""
    hung = placed.placer.npu_hung if isinstance(placed.placer, Governor) else None
    if hung is not None or placed.gate.out is not None:
        raise RuntimeFault(
            "the NPU has hung, so no plan can be proven on it",
            got=placed.gate.out if hung is None else hung[1],
            remedy="start the board again before the update",
        )


def refuse_without_canary(card: ModelCard) -> None:
    """Raises ModelError if nothing proves the model's plans."""
    if card.manifest is None or card.manifest.canary is None:
        raise ModelError(
            "this version has no canary, so nothing would prove it", wanted="`canary` in its manifest",
            remedy=f"edge_app model canary {card.name} --picture P, then push it again",
        )  # fmt: skip


AXES: dict[str, Callable[[ModelCard], object]] = {
    "task": lambda card: card.task,
    "labels": lambda card: ", ".join(card.labels),
    "input width": lambda card: card.input.width,
    "input height": lambda card: card.input.height,
    "input fit": lambda card: card.input.fit,
    "input shorter_side": lambda card: card.input.shorter_side,
}
"""What recipes and the frame's geometry rest on."""


def refuse_other_shape(running: ModelCard, new: ModelCard) -> None:
    """Raises ModelError where a model differs in what recipes rest on; says in what."""
    other = [axis for axis, of in AXES.items() if of(running) != of(new)]
    if other:
        raise ModelError(
            f"this model differs from the running one in {', '.join(other)}",
            wanted="; ".join(f"{axis}: {AXES[axis](running)}" for axis in other),
            got="; ".join(f"{axis}: {AXES[axis](new)}" for axis in other),
            remedy="recipes rest on them: stop the line, change pipeline and recipes, start it",
        )


def refuse_lesser(running: Placed, new: Placed) -> None:
    """Raises EdgeAppError unless every plan of the running model is there, loaded and proven."""
    assert running.mechanic is not None
    assert new.mechanic is not None
    for plan, error in new.mechanic.errors.items():
        raise RuntimeFault(f"plan {plan}: {error.what}", where=error.where, wanted=error.wanted, got=error.got,
                           remedy=error.remedy)  # fmt: skip
    lacking = [plan for plan in running.mechanic.plans if plan not in new.mechanic.engines]
    if lacking or new.simulated != running.simulated:
        raise RuntimeFault(
            "this version can't take the running one's place here", wanted=f"plans {words(running.mechanic.plans)}",
            got=f"plans {words(tuple(new.mechanic.engines))}; {governor_says(new)}",
            remedy="make what is missing before it is pushed: edge_app model compile; a cold NPU must warm up first",
        )  # fmt: skip
    new.mechanic.prove_all()


def words(plans: tuple[PlanKind, ...]) -> str:
    """Plans in a row."""
    return ", ".join(plans) or "none"


def governor_says(placed: Placed) -> str:
    """Why the scheduler has loaded what it has."""
    return placed.placer.decision.detail if isinstance(placed.placer, Governor) else ""
