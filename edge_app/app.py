"""Wiring: from a checked pipeline to a running line, and down again in the right order.

Start: model and plans, warm-up, camera, wire, line. Stop: camera, frames in flight, line, wire, sessions.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from edge_app import __version__
from edge_app.camera import Camera, open_camera
from edge_app.clock import monotonic_us
from edge_app.config.pipeline import Pipeline
from edge_app.detections import Detections
from edge_app.errors import CameraError, ConfigError
from edge_app.frame_guard import make_guard
from edge_app.judge import judge, make_recipe
from edge_app.line import Inspection, Line
from edge_app.model import ModelCard, resolve
from edge_app.placing import ConfiguredPlacer
from edge_app.plans import Loaded, load_plans
from edge_app.results import ModelIdentity, NodeIdentity, NodeStatus, Outlet, Recipe, new_epoch
from edge_app.summary import Summary, summarise
from edge_app.verdict import Judgement, Mode

log = logging.getLogger(__name__)


class App:
    """One pipeline, running. Made by `build`; `start`, `wait`, then `close`."""

    def __init__(
        self, pipeline: Pipeline, card: ModelCard, loaded: Loaded, camera: Camera, line: Line, outlet: Outlet
    ) -> None:
        self.pipeline, self.card, self.loaded = pipeline, card, loaded
        self.camera, self.line, self.outlet = camera, line, outlet
        self._started_us = monotonic_us()

    @property
    def simulated(self) -> bool:
        """Whether anything is not the plant's own: camera, session or time."""
        return is_simulated(self.pipeline, self.camera, self.loaded)

    def start(self) -> None:
        """Starts the line; results flow from here on."""
        self._started_us = monotonic_us()
        self.line.start()

    def stop(self) -> None:
        """Asks for the end; returns at once. For signal handlers."""
        self.line.stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the end of the source, a stop or an error; True if it has come."""
        return self.line.wait(timeout_s)

    def close(self) -> None:
        """Ends everything in order; raises what ended the line, if that was an error."""
        try:
            self.line.close()
        finally:
            self.outlet.close()
            self.camera.close()
            self.loaded.close()

    def summary(self) -> Summary:
        """The run so far."""
        return summarise(self.line, (monotonic_us() - self._started_us) / 1e6, simulated=self.simulated)


def is_simulated(pipeline: Pipeline, camera: Camera, loaded: Loaded) -> bool:
    """As protocol v1 defines it; offline pacing has no deadline, so its results are never for a plant either."""
    return camera.simulated or loaded.simulated or pipeline.limits.pacing == "offline"


def build(pipeline: Pipeline, name: str = "pipeline", max_frames: int | None = None) -> App:
    """Loads and connects everything; nothing runs yet.

    Args:
        pipeline: checked.
        name: of the recipe, told in results: the YAML's name.
        max_frames: end after so many.

    Raises:
        EdgeAppError: whatever can't be had, with its exit code.
    """
    card = resolve(pipeline.model, pipeline.preprocess)
    if card.task != "detect":
        raise ConfigError(
            "a classifier can't judge defects",
            where=str(card.file),
            wanted="a model with task: detect",
            got=f"task: {card.task}",
        )
    recipe = make_recipe(pipeline.judge, card.labels, card.score, card.marginal)
    guard = make_guard(pipeline.judge.guard)
    loaded = load_plans(pipeline, card, recipe.thresholds)
    warm_up(loaded, pipeline.runtime.warmup_runs)
    camera = open_camera(pipeline.camera)
    try:
        refuse_waiting_for_live(pipeline, camera)
        identity = identify(pipeline, name, card, loaded, camera)
        outlet = Outlet(pipeline.results, identity, status=lambda: status_of(app.line), handlers={})

        def judged(found: Detections) -> Judgement:
            return judge(found, recipe)

        line = Line(
            camera, loaded.engines, ConfiguredPlacer(tuple(loaded.engines), loaded.reason),
            Inspection(guard, judged), outlet, pipeline.limits, pipeline.runtime.timeout_ms, max_frames,
            frozenset(loaded.degraded),
        )  # fmt: skip
        app = App(pipeline, card, loaded, camera, line, outlet)
        outlet.start()
    except BaseException:
        camera.close()
        loaded.close()
        raise
    for alarm in loaded.alarms:
        outlet.alarm(alarm.name, True, alarm.text, alarm.remedy)
    return app


def refuse_waiting_for_live(pipeline: Pipeline, camera: Camera) -> None:
    """A live camera does not wait, whatever the YAML could tell before it was opened."""
    if pipeline.limits.pacing == "offline" and camera.live:
        raise CameraError(
            "limits.pacing is offline, but this camera is live and does not wait",
            where="limits.pacing",
            wanted="realtime, with deadline_ms",
            got="offline",
        )


def warm_up(loaded: Loaded, runs: int) -> None:
    """Runs every plan before the node is ready: first runs are slow, and a plan that can't run is told now."""
    for kind, engine in loaded.engines.items():
        times = engine.warm_up(engine.bind(), runs)
        if times:
            log.info("plan %s: warm, last run %.1f ms", kind, times[-1] / 1000)


def identify(pipeline: Pipeline, name: str, card: ModelCard, loaded: Loaded, camera: Camera) -> NodeIdentity:
    """Who this node is, as every result says it."""
    document = pipeline.model_dump_json()
    revision = "sha256:" + hashlib.sha256(document.encode()).hexdigest()
    return NodeIdentity(
        node=pipeline.station.node,
        epoch=new_epoch(),
        software=__version__,
        recipe=Recipe(name, revision),
        model=ModelIdentity(card.name, card.sha256, loaded.soc),
        simulated=is_simulated(pipeline, camera, loaded),
        description=pipeline.model_dump(mode="json"),
    )


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
    )


def recipe_name(file: Path) -> str:
    """What a pipeline is called in results: the YAML's name without its ending."""
    return file.stem
