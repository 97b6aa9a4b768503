"""What a controller or an engineer may tell a running line over the wire. Handlers set or defer; they never wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from edge_app.errors import ConfigError, EdgeAppError
from edge_app.governor import Governor
from edge_app.line import Line
from edge_app.recipes import Prepared, Recipes
from edge_app.results import Code, Deferred, Handler, RefusedError, Reply, Request
from edge_app.verdict import Mode, PlanKind

SelfTest = Callable[[], str | None]
"""Runs the canary on the plan in use; None if it held, else what was wrong."""
ANY_PLAN = "any"


class Node(Protocol):
    """What commands act on."""

    line: Line

    @property
    def recipes(self) -> Recipes:
        """That the pipeline names."""

    @property
    def self_test(self) -> SelfTest | None:
        """None: the model has no canary."""

    @property
    def governor(self) -> Governor | None:
        """None: there is one plan, and nothing to choose from."""

    def prefer(self, plan: PlanKind | None, reason: str) -> None:
        """Inspects on this plan as long as it is ready; None: as the scheduler sees fit."""

    def activate(self, prepared: Prepared) -> None:
        """Judges by it from the next frame on."""

    def keep(self, prepared: Prepared) -> bool:
        """Has the next start take it too; False: it can't be written down."""


def handlers(node: Node) -> Mapping[str, Handler]:
    """Handlers for the outlet."""
    prepared: dict[tuple[str, str], tuple[Recipes, Prepared]] = {}
    return {
        "start": lambda request: _to(node.line, Mode.RUNNING, f"started by {request.client}"),
        "stop": lambda request: _to(node.line, Mode.READY, f"stopped by {request.client}"),
        "hold": lambda request: _to(node.line, Mode.HOLD, f"held by {request.client}"),
        "trigger": lambda request: _trigger(node.line, request),
        "prepare_recipe": lambda request: Deferred(lambda: _prepare(node.recipes, prepared, request)),
        "activate_recipe": lambda request: _activate(node, prepared, request),
        "self_test": lambda _request: _self_test(node.self_test),
        "prefer_plan": lambda request: _prefer(node, request),
    }


def _to(line: Line, mode: Mode, reason: str) -> Reply:
    if line.mode is not mode and not line.change_mode(mode, reason):
        raise RefusedError(Code.NOT_READY, f"there is no way from {line.mode} to {mode}")
    return Reply({"mode": line.mode.value})


def _trigger(line: Line, request: Request) -> Reply:
    args = request.args
    if not line.admission.by_command:
        raise RefusedError(Code.UNAVAILABLE, "this pipeline's camera triggers itself: wanted limits.trigger: software")
    try:
        line.admission.trigger(args["trigger_id"], args.get("part_id"), args.get("budget_us"), args.get("t_us"))
    except ConfigError as error:
        remedy = f"; {error.remedy}" if error.remedy else ""
        raise RefusedError(Code.CONFLICT, f"{error.what}: wanted {error.wanted}{remedy}") from error
    return Reply({"trigger_id": args["trigger_id"]})


def _prepare(recipes: Recipes, prepared: dict[tuple[str, str], tuple[Recipes, Prepared]], request: Request) -> Reply:
    name, rev = request.args["name"], request.args["rev"]
    if name not in recipes.names:
        raise RefusedError(Code.NOT_FOUND, f"there is no recipe {name!r}; wanted {', '.join(recipes.names)}")
    try:
        recipe = recipes.load(name)
    except EdgeAppError as error:
        raise RefusedError(Code.CONFLICT, "; ".join(error.text().splitlines())) from error
    if recipe.rev != rev:
        raise RefusedError(Code.CONFLICT, f"recipe {name} is {recipe.rev}, not {rev}")
    prepared[name, rev] = recipes, recipe
    return Reply({"name": name, "rev": rev})


def _activate(
    node: Node, prepared: dict[tuple[str, str], tuple[Recipes, Prepared]], request: Request
) -> Deferred:
    """It judges at once; the answer comes when it is also written down."""
    name, rev = request.args["name"], request.args["rev"]
    recipes, recipe = prepared.get((name, rev), (None, None))
    if recipe is None or recipes is not node.recipes:  # of another model, its scores may not be this one's
        raise RefusedError(Code.NOT_READY, f"recipe {name} {rev} was not prepared, or for another model")
    node.activate(recipe)

    def keep() -> Reply:
        prepared.pop((name, rev), None)
        return Reply({"name": name, "rev": rev, "kept": node.keep(recipe)})

    return Deferred(keep)


def _prefer(node: Node, request: Request) -> Reply:
    wanted, governor = request.args["plan"], node.governor
    if governor is None:
        raise RefusedError(Code.UNAVAILABLE, "this line has no scheduler: there is one plan, always")
    if wanted not in (*governor.plans, ANY_PLAN):
        raise RefusedError(Code.NOT_FOUND, f"this line has no plan {wanted}; wanted {', '.join(governor.plans)} or any")
    node.prefer(None if wanted == ANY_PLAN else PlanKind(wanted), f"plan {wanted} was asked for by {request.client}")
    return Reply({"plan": wanted, "ready": [plan.value for plan in governor.plans if governor.is_ready(plan)]})


def _self_test(self_test: SelfTest | None) -> Deferred:
    if self_test is None:
        raise RefusedError(Code.UNAVAILABLE, "this model has no canary: nothing can be tested")

    def work() -> Reply:
        try:
            wrong = self_test()
        except EdgeAppError as error:
            wrong = error.what
        return Reply({"held": wrong is None, "detail": wrong or "the canary gave what was stored"})

    return Deferred(work)
