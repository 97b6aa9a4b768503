"""Wiring: from a checked pipeline to a running line, and down again in the right order.

Start: model and plans, warm-up, camera, wire, line. Stop: frames in flight, line, wire, camera, sessions.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edge_app.camera import Camera, open_camera
from edge_app.clock import monotonic_us
from edge_app.config.pipeline import Pipeline
from edge_app.config.places import told_with_line
from edge_app.config.runtime import timeout_ms
from edge_app.deciding import DecisionSealer
from edge_app.errors import CameraError, EdgeAppError
from edge_app.governor import Governor
from edge_app.idling import IdlingPlacer
from edge_app.in_force import Fitted, InForce
from edge_app.line import Line, MakeSealer
from edge_app.model import ModelCard
from edge_app.model_at_start import model_at_start
from edge_app.npu_gate import NpuGate
from edge_app.placed import Placed, place_model, stuck_us
from edge_app.placing import Placer
from edge_app.plans import npu_missing
from edge_app.plans_two_stage import detector_card
from edge_app.recipe_kept import ALARM as RECIPE_ALARM
from edge_app.recipe_kept import KeptRecipe
from edge_app.recipes import Prepared, Recipes
from edge_app.remote import handlers
from edge_app.remote_models import model_handlers
from edge_app.results import Outlet, Recipe
from edge_app.scheduler import Alarm, Decision
from edge_app.sealing import Sealer
from edge_app.store import store_of
from edge_app.summary import Summary, summarise
from edge_app.told import identify, recipes_told, status_of
from edge_app.update import Running, Updates
from edge_app.verdict import Mode, PlanKind

if TYPE_CHECKING:
    from edge_app.monitor import Monitor

log = logging.getLogger(__name__)
STUCK_US = 10_000_000
"""A frame that is in its slot for so long, and longer than all others ahead of it may hang, is stuck."""


class App:
    """One pipeline, running. Made by `build`; `start`, `wait`, then `close`."""

    def __init__(
        self,
        pipeline: Pipeline,
        name: str,
        version: str | None,
        card: ModelCard,
        placed: Placed,
        camera: Camera,
        max_frames: int | None,
    ) -> None:
        """Joins what was loaded and connected; see `build`. `version`: of the model, if it was pushed."""
        self.pipeline, self.name, self.camera = pipeline, name, camera
        self.simulated = camera.simulated or placed.simulated or pipeline.limits.pacing == "offline"
        self._started_us = monotonic_us()
        self._told_stuck = False
        self.line: Line
        self._alarms: dict[str, Alarm] = {}
        self._preferred: PlanKind | None = None
        self._changing = threading.Lock()  # of recipe or model: one after the other
        self.running: Running
        store = store_of(pipeline, name)
        self.updates, self._kept = Updates(self, store), KeptRecipe(store.folder / "recipe.json")
        recipe, alarms = self._kept.at_start(placed.recipes)
        placed.alarms += alarms
        identity = identify(pipeline, card, placed, recipe, version, simulated=self.simulated)
        commands = {**handlers(self), **model_handlers(self.updates)}
        self.outlet = Outlet(pipeline.results, identity, lambda: status_of(self.line), commands)
        self.monitor = make_monitor(pipeline, self.outlet)
        self.line = Line(
            camera,
            placed.engines,
            placer_of(placed),
            recipe.inspection,
            self.outlet if self.monitor is None else self.monitor.feed,
            pipeline.limits,
            timeout_ms(pipeline.runtime, placed.simulated),
            max_frames,
            lambda: self.placed.degraded(),
            sealer_of(pipeline, placed),
            identity.model,
            placed.gate,
            pipeline.station.node,
        )
        self.line.sealer.saw = self.updates.saw
        self.running = Running(version, card, placed, self.line.in_force.model)
        self._connect(placed, self.running.fitted)

    def _connect(self, placed: Placed, fitted: Fitted) -> None:
        if placed.mechanic is not None:
            placed.mechanic.install = fitted.install
            placed.mechanic.on_decision = partial(self._tell_decision, placed)
            placed.mechanic.idle = lambda: self.line.queue_depth == 0

    def start(self) -> None:
        """Opens the wire and starts the line; results flow from here on. Raises BusError."""
        with told_with_line(self.pipeline):
            self.outlet.start()
        for alarm in self.placed.alarms:
            self.outlet.alarm(alarm.name, True, alarm.text, alarm.remedy)
        if self.placed.mechanic is not None:
            self.placed.mechanic.start()
        if self.monitor is not None:
            deadline_ms = self.pipeline.limits.deadline_ms
            self.monitor.start(self.line, lambda: self.placed, deadline_ms, lambda: self.camera.trouble)
        self._started_us = monotonic_us()
        self.line.start()
        if isinstance(self.line.sealer, DecisionSealer):
            self.line.sealer.start()

    def stop(self) -> None:
        """Asks for the end; returns at once. For signal handlers."""
        self.line.stop()

    @property
    def placed(self) -> Placed:
        """The model that is in force."""
        return self.running.placed

    @property
    def recipes(self) -> Recipes:
        """That the pipeline names, for the model that is in force."""
        return self.placed.recipes

    @property
    def self_test(self) -> Callable[[], str | None] | None:
        """Runs the canary on the plan in use; None: the model in force has none."""
        placed = self.placed
        return placed.mechanic.self_test if placed.mechanic is not None and placed.has_canary else None

    @property
    def governor(self) -> Governor | None:
        """The scheduler of the model in force; None: there is one plan, always."""
        placer = self.placed.placer
        return placer if isinstance(placer, Governor) else None

    def prefer(self, plan: PlanKind | None, reason: str) -> None:
        """Inspects on this plan as long as it is ready, also after an update; None: as the scheduler sees fit."""
        with self._changing:
            self._preferred = plan
            if self.governor is not None:
                self.governor.prefer(plan)
        log.info("%s", reason)
        self.outlet.state(self.line.mode, self.line.mode, self.line.placement, reason)

    def activate(self, prepared: Prepared) -> None:
        """Judges by another recipe from the next frame on; frames in flight keep theirs."""
        with self._changing:
            self.line.inspect_with(replace(self.line.in_force, inspection=prepared.inspection))
            self.outlet.identify(recipe=Recipe(prepared.name, prepared.rev))
        log.info("recipe %s %s is in force", prepared.name, prepared.rev[:19])

    def keep(self, prepared: Prepared) -> bool:
        """Has the next start take this recipe, or raises the alarm that it will not. Waits for the disk."""
        failure = self._kept.keep(prepared)
        try:
            self.updates.store.hold()  # it may have been made just now
        except EdgeAppError as error:
            failure = error.brief
        then = "also at the next start" if failure is None else f"but the next start may take another one: {failure}"
        text = f"recipe {prepared.name} is in force, {then}"
        self.outlet.alarm(RECIPE_ALARM, failure is not None, text, "free some space, then activate it again")
        return failure is None

    def take_over(self, running: Running) -> None:
        """Inspects with another model from the next frame on; frames in flight keep theirs, the recipe its name."""
        self._connect(running.placed, running.fitted)
        with self._changing:
            recipe = running.placed.recipes.ready(self.outlet.identity.recipe.name)
            self.running = running
            if self.governor is not None:
                self.governor.prefer(self._preferred)
            self.line.inspect_with(InForce(recipe.inspection, running.fitted))
            self.outlet.identify(
                recipe=Recipe(recipe.name, recipe.rev),
                recipes=recipes_told(running.placed.recipes),
                model=running.fitted.identity or self.outlet.identity.model,
            )
        reason = f"model {running.name} inspects from here on"
        log.info("%s; recipe %s %s", reason, recipe.name, recipe.rev[:19])
        self.outlet.state(self.line.mode, self.line.mode, self.line.placement, reason)

    def reload(self) -> None:
        """Reads the list of clients again (SIGHUP)."""
        self.outlet.reload()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the end of the source, a stop or an error; True if it has come."""
        return self.line.wait(timeout_s)

    def close(self) -> None:
        """Ends everything in order; raises what ended the line, if that was an error.

        Whatever fails on the way, all the rest is closed. The sessions are last: a driver that hangs must not keep
        results from the journal, nor the word STOPPED from the wire.
        """
        error = failure_of(self.line.close)
        reason = "clean stop" if error is None else error.what if isinstance(error, EdgeAppError) else repr(error)
        self.placed.mechanic_stuck(self._mechanic_limit_us)
        self.placed.tell_next_start(reason)
        steps: list[Callable[[], None]] = [self.updates.stop, self.placed.halt]
        if isinstance(self.line.sealer, DecisionSealer):
            steps.append(self.line.sealer.stop)
        if self.monitor is not None:
            steps.append(self.monitor.close)
        steps += [partial(self.outlet.close, reason), self.camera.close, self.placed.close]
        for step in steps:
            failure = failure_of(step)
            if failure is not None:
                log.error("closing: %r", failure, exc_info=failure)
            error = error or failure
        if error is not None:
            raise error

    def stuck(self) -> str | None:
        """What does not go round any more, for the watchdog; None: all does.

        It takes the locks that frames take: if one of them is never given back, this does not return either.
        """
        found = self._stuck()
        if found is not None and not self._told_stuck:
            self._told_stuck = True
            self.placed.tell_next_start(found)  # now: the watchdog leaves no time for it
        return found

    def _stuck(self) -> str | None:
        self.line.sealer.counts()
        self.placed.placer.is_ready(self.line.placement.plan)
        limits = self.pipeline.limits
        limit_us = max(STUCK_US, (limits.slots + 2) * timeout_ms(self.pipeline.runtime, self.placed.simulated) * 1000)
        oldest_us = self.line.oldest_us()
        if oldest_us > limit_us:
            return f"the frame loop is stuck: a frame has been in its slot for {oldest_us / 1e6:.0f} s"
        mechanic = self.placed.mechanic_stuck(self._mechanic_limit_us)
        if mechanic is not None:
            return mechanic
        return None if self.outlet.healthy() else "the bus is stuck"

    @property
    def _mechanic_limit_us(self) -> int:
        return stuck_us(self.pipeline.runtime, self.placed.simulated)

    def summary(self) -> Summary:
        """The run so far."""
        energy = None if self.pipeline.decision is None else self.pipeline.decision.energy
        seconds = (monotonic_us() - self._started_us) / 1e6
        return summarise(self.line, seconds, simulated=self.simulated, gate=self.recipes.gate, energy=energy)

    def _tell_decision(self, placed: Placed, decision: Decision) -> None:
        """Changes of plan go out as `state`, the scheduler's alarms when they come, say something else, and go."""
        if placed is not self.placed:
            return
        governor = placed.placer
        if isinstance(governor, Governor):
            for placement, detail in governor.take_changes():
                log.info("plan %s, power mode %s: %s", placement.plan, placement.power_mode, detail)
                self.outlet.state(self.line.mode, self.line.mode, placement, detail)
        self._follow_plans(decision)
        standing = {alarm.name: alarm for alarm in decision.alarms}
        for name, alarm in {**self._alarms, **standing}.items():
            if standing.get(name) != self._alarms.get(name):
                self.outlet.alarm(name, name in standing, alarm.text, alarm.remedy)
        self._alarms = standing


    def _follow_plans(self, decision: Decision) -> None:
        """FAULT while no plan is left to inspect on, and RUNNING again as soon as there is one."""
        if decision.placement is None:
            self.line.change_mode(Mode.FAULT, decision.detail, only_from=Mode.RUNNING)
        else:
            self.line.change_mode(Mode.RUNNING, decision.detail, only_from=Mode.FAULT)


def failure_of(step: Callable[[], None]) -> Exception | None:
    """What a step raised; None: it did not."""
    try:
        step()
    except Exception as error:
        return error
    return None


def placer_of(placed: Placed) -> Placer:
    """The placer of the line: behind a motion gate the NPU idles while nobody moves."""
    gate = placed.recipes.gate
    return placed.placer if gate is None else IdlingPlacer(placed.placer, lambda: gate.idle)


def sealer_of(pipeline: Pipeline, placed: Placed) -> MakeSealer:
    """What makes results: of each frame, or of a decision over many."""
    if pipeline.decision is None:
        return Sealer
    return partial(DecisionSealer, pipeline.decision, placed.recipes.labels)


def build(
    pipeline: Pipeline, name: str = "pipeline", max_frames: int | None = None, gate: NpuGate | None = None
) -> App:
    """Loads and connects everything but the wire; nothing runs yet.

    Args:
        pipeline: checked.
        name: of the recipe, told in results: the YAML's name.
        max_frames: end after so many.
        gate: of the process, where several lines take turns on the NPU.

    Raises:
        EdgeAppError: whatever can't be had, with its exit code.
    """
    with told_with_line(pipeline):
        return _built(pipeline, name, max_frames, gate)


def _built(pipeline: Pipeline, name: str, max_frames: int | None, gate: NpuGate | None) -> App:
    card, version, alarms = model_at_start(pipeline, name)
    if version is None:
        make_missing_plans(pipeline, card)
    if pipeline.detector is not None:
        make_missing_plans(pipeline, detector_card(pipeline.detector))
    placed = place_model(pipeline, card, name, gate=gate)
    placed.alarms += alarms
    camera = open_camera(pipeline.camera)
    try:
        refuse_waiting_for_live(pipeline, camera)
        if pipeline.limits.pacing == "realtime" and (unguarded := without_guard(pipeline)) is not None:
            log.warning("%s", unguarded)
        return App(pipeline, name, version, card, placed, camera, max_frames)
    except BaseException:
        camera.close()
        raise


def make_monitor(pipeline: Pipeline, outlet: Outlet) -> Monitor | None:
    """Pages over HTTP, if they are wanted: a line without them does not load a web server."""
    if pipeline.monitor.http is None:
        return None
    from edge_app.monitor import Monitor

    wanted = pipeline.monitor.pictures
    return Monitor(pipeline.monitor, outlet, pictures=pipeline.decision is None if wanted is None else wanted)


def make_missing_plans(pipeline: Pipeline, card: ModelCard) -> None:
    """Compiles plans of this SoC that were not shipped: context binaries are reproducible, their digests prove them.

    A plan that can't be made is told and left out; loading it then gives way to the next one.
    """
    runtime = pipeline.runtime
    if runtime.provider not in ("auto", "qnn") or runtime.soc is None or card.manifest is None or card.folder is None:
        return
    if npu_missing(runtime) is not None:
        return
    plans = [plan for plan in card.manifest.plans if plan.soc == runtime.soc]
    missing = [plan for plan in plans if not (card.folder / plan.artifacts[0].file).is_file()]
    if not missing:
        return
    from rich.console import Console
    from rich.progress import track

    from edge_app.toolchain.remake import make_missing

    for plan in track(missing, f"making the plans for {runtime.soc}", console=Console(stderr=True), transient=True):
        try:
            make_missing(card.folder, card.manifest, plan)
        except EdgeAppError as error:
            log.error("plan %s: %s", plan.plan, error)


def refuse_waiting_for_live(pipeline: Pipeline, camera: Camera) -> None:
    """A live camera does not wait, whatever the YAML could tell before it was opened."""
    if pipeline.limits.pacing == "offline" and camera.live:
        raise CameraError(
            "limits.pacing is offline, but this camera is live and does not wait",
            where="limits.pacing",
            wanted="realtime, with deadline_ms",
            got="offline",
        )


def without_guard(pipeline: Pipeline) -> str | None:
    """What a line of parts without a frame guard lets pass; None: it has one, or decides over many frames."""
    if pipeline.judge.guard is not None or pipeline.decision is not None:
        return None
    return "judge.guard is not set: another part, or one out of its place, may PASS; see edge_app calibration guard"


def recipe_name(file: Path) -> str:
    """What a pipeline is called in results: the YAML's name without its ending."""
    return file.stem
