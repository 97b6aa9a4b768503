"""A model made ready to run: its plans loaded, warm and proven, and somebody to decide between them."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from edge_app.canary import Canary, load_canary
from edge_app.clock import monotonic_us, utc_us
from edge_app.config.pipeline import Pipeline
from edge_app.config.runtime import Runtime, timeout_ms
from edge_app.engine import Engine
from edge_app.errors import ConfigError, EdgeAppError, RuntimeFault
from edge_app.governor import Governor
from edge_app.mechanic import STUCK_US, Mechanic
from edge_app.memory import resident_mb
from edge_app.model import ModelCard
from edge_app.npu_gate import NpuGate
from edge_app.npu_lock import BOARD_LOCK, hold_npu
from edge_app.npu_out import NpuOut, leave_note, note_file, standing_note, this_boot
from edge_app.placing import FixedPlacer, Placer
from edge_app.plans import Options, StartAlarm, plan_options
from edge_app.plans_two_stage import detector_canary, two_stage_options
from edge_app.recipes import Recipes
from edge_app.scheduler import build_policy, group_of
from edge_app.scheduler.policy import NPU_PLANS
from edge_app.thermal import Sampler, find_zones, thermal_root
from edge_app.two_stage import TwoStageEngine
from edge_app.verdict import PlanKind

log = logging.getLogger(__name__)
RUNS_OF_A_LOAD = 30
"""Beside the warm-up at most: those measured in each power mode, and the canary's."""
LONGER = 3
"""Times the longest that the mechanic has been at one thing: then it is stuck, not slow."""


@dataclass
class Placed:
    """What the line needs of a model."""

    recipes: Recipes
    engines: dict[PlanKind, Engine]
    placer: Placer
    mechanic: Mechanic | None
    sampler: Sampler | None
    has_canary: bool
    soc: str | None
    simulated: bool
    alarms: tuple[StartAlarm, ...] = ()
    start_degraded: frozenset[str] = field(default_factory=frozenset)
    note: Path | None = None
    """Where the next start looks whether it may use the NPU."""
    gate: NpuGate = field(default_factory=NpuGate)
    """Where runs on the NPU take turns."""

    def degraded(self) -> frozenset[str]:
        """What is not as configured at this moment."""
        if isinstance(self.placer, Governor):
            return self.start_degraded | frozenset(self.placer.decision.degraded)
        return self.start_degraded

    def mechanic_stuck(self, limit_us: int) -> str | None:
        """What the mechanic has been at for longer than it may; None: it goes round.

        It may take as long as `limit_us`, and a few times as long as the longest thing that it has done: loading takes
        what it takes on a board. A plan on the NPU that it is stuck at counts as a run that never returned.
        """
        busy = None if self.mechanic is None else self.mechanic.busy
        if self.mechanic is None or busy is None:
            return None
        since_us, plan = busy
        took_us = monotonic_us() - since_us
        if took_us <= max(limit_us, LONGER * self.mechanic.longest_us):
            return None
        at = "a decision" if plan is None else f"plan {plan}"
        text = f"the mechanic is stuck: it has been at {at} for {took_us / 1e6:.0f} s"
        if plan in NPU_PLANS and isinstance(self.placer, Governor) and self.placer.npu_hung is None:
            self.placer.npu_hung = plan, text
        return text

    def tell_next_start(self, why: str) -> None:
        """If the NPU has hung in this process, the next one keeps it out; `why` is what ended this one."""
        hung = self.placer.npu_hung if isinstance(self.placer, Governor) else None
        if hung is not None and self.note is not None:
            plan, text = hung
            leave_note(self.note, NpuOut(f"{why} ({text})", plan, utc_us(), this_boot()))

    def halt(self) -> None:
        """Ends the mechanic and the sampler; a mechanic that is stuck in a driver is not waited for."""
        if self.mechanic is not None:
            self.mechanic.stop()
        if self.sampler is not None:
            self.sampler.stop()

    def close(self) -> None:
        """Gives the sessions back. A driver that hangs does not return from this."""
        for engine in self.engines.values():
            engine.session.close()

    def retire(self) -> None:
        """Ends what is this model's own, another one having taken its place: the zones are read on."""
        if self.mechanic is not None:
            self.mechanic.stop()
        self.tell_next_start("another model took its place")
        self.close()
        if self.mechanic is not None:
            self.mechanic.forget()

    def stop(self) -> None:
        """Ends all of it."""
        self.halt()
        self.close()


def place_model(
    pipeline: Pipeline,
    card: ModelCard,
    name: str = "pipeline",
    beside: Placed | None = None,
    gate: NpuGate | None = None,
) -> Placed:
    """Loads the plans that this pipeline has on this machine.

    `name` is what its recipe is called; `gate` that of the process, where several lines take turns on the NPU.

    `beside`: the model whose place it is to take, and whose thermal zones and turns on the NPU it shares.

    A plan on the NPU is proven with the model's canary before it is used; of two models, with each one's. A model
    without one is trusted as it was built, also after a fault: the log says so.

    Raises:
        RuntimeFault: `provider: qnn`, and the NPU can't be had, or another process has it (exit 5).
        EdgeAppError: no plan at all could be loaded; the first plan's own error.
    """
    refuse_other_task(pipeline, card)
    recipes = Recipes(pipeline, name, card)
    gate = gate or (NpuGate() if beside is None else beside.gate)
    note = note_file(pipeline, name)
    out = kept_out(note) or hung_here(gate)
    if pipeline.detector is None:
        options = plan_options(pipeline, card, recipes.thresholds, out)
    else:
        options = two_stage_options(pipeline, card, recipes.thresholds, out)
    alarms, degraded = tuple(options.alarms), frozenset(options.degraded)
    if PlanKind.NULL in options.openers:
        engines = {PlanKind.NULL: options.openers[PlanKind.NULL]()}
        return Placed(
            recipes, engines, FixedPlacer(PlanKind.NULL), None, None, False, None, options.simulated, alarms, degraded
        )
    hold_lock(pipeline, options)
    sampler = watch_zones(pipeline, options) if beside is None else beside.sampler
    canaries = [load_canary(card)]
    if pipeline.detector is not None:
        canaries.insert(0, detector_canary(pipeline.detector))
    if None in canaries and options.on_npu:
        log.warning("a model without a canary: its part of a plan is used again unproven after a fault")
    mechanic, governor = _with_scheduler(pipeline, options, sampler, canaries, gate)
    mechanic.prepare()
    _refuse_without_plan(pipeline, options, mechanic, governor)
    log.info("plans loaded: %s; %.0f MB resident", ", ".join(mechanic.engines), resident_mb(os.getpid()))
    return Placed(
        recipes,
        mechanic.engines,
        governor,
        mechanic,
        sampler,
        any(canaries),
        options.soc,
        options.simulated,
        alarms,
        degraded,
        note,
        gate,
    )


def stuck_us(runtime: Runtime, simulated: bool) -> int:
    """How long the mechanic may be at one thing, whatever it is."""
    return max(STUCK_US, (runtime.warmup_runs + RUNS_OF_A_LOAD) * timeout_ms(runtime, simulated) * 1000)


def hold_lock(pipeline: Pipeline, options: Options) -> None:
    """Keeps other processes from the NPU; of the simulated one each has its own, unless the pipeline names a lock."""
    file = pipeline.runtime.npu_lock or (None if options.simulated else BOARD_LOCK)
    if options.on_npu and file is not None:
        hold_npu(file)


def hung_here(gate: NpuGate) -> StartAlarm | None:
    """The alarm of a line that is built while the NPU is out for its process; None: it is not."""
    if gate.out is None:
        return None
    return StartAlarm("NPU_LOST", f"the NPU is out for this process: {gate.out}", "restart the service")


def kept_out(note: Path) -> StartAlarm | None:
    """The alarm of a start that may not use the NPU; None: it may."""
    standing = standing_note(note)
    if standing is None:
        return None
    remedy = f"start the board again; or see to the NPU, then `edge_app doctor --pipeline FILE --allow-npu` ({note})"
    return StartAlarm("NPU_LOST", standing.text, remedy)


def refuse_other_task(pipeline: Pipeline, card: ModelCard) -> None:
    """A classifier names what stands before it, over many frames; a detector judges parts, each by its frame."""
    wanted = "detect" if pipeline.decision is None and pipeline.detector is None else "classify"
    if card.task == wanted:
        return
    raise ConfigError(
        "a classifier can't judge defects" if wanted == "detect" else "a detector's boxes are no labels to decide on",
        where=str(card.file),
        wanted=f"a model with task: {wanted}",
        got=f"task: {card.task}",
        remedy="add `decision` (a label over many frames) or `detector` (crops to name)"
        if wanted == "detect"
        else "remove `decision` and `detector`, or name a classifier under `model`",
    )


def watch_zones(pipeline: Pipeline, options: Options) -> Sampler | None:
    """Starts reading the thermal zones, where `scheduler.thermal` wants them watched."""
    config = pipeline.scheduler
    on_board = options.on_npu and not options.simulated
    if config.thermal == "never" or (config.thermal == "auto" and not on_board and config.sysfs_root is None):
        return None
    root = thermal_root(config.sysfs_root, "scheduler.sysfs_root")
    sampler = Sampler(partial(find_zones, root, partial(group_of, config)), config.sample_s, config.frozen_s)
    sampler.start()
    return sampler


def _with_scheduler(
    pipeline: Pipeline, options: Options, sampler: Sampler | None, canaries: list[Canary | None], gate: NpuGate
) -> tuple[Mechanic, Governor]:
    policy = build_policy(
        pipeline.scheduler,
        tuple(options.openers),
        options.agrees,
        zones=None if sampler is None else sampler.zones,
        canaries=any(canaries),
        alike=pipeline.detector is None,  # else the classifier runs once for each crop
    )
    deadline_ms = pipeline.limits.deadline_ms
    governor = Governor(
        policy,
        deadline_us=None if deadline_ms is None else round(deadline_ms * 1000),
        zones=(lambda: None) if sampler is None else (lambda: sampler.latest),
        found=(lambda: None) if sampler is None else (lambda: sampler.zones),
        normal=options.reason,
    )
    turn = partial(gate.turn, pipeline.station.node, timeout_ms(pipeline.runtime, options.simulated) * 1000)
    prove, runs = partial(_prove, canaries), pipeline.runtime.warmup_runs
    stuck = stuck_us(pipeline.runtime, options.simulated)
    self_test_s = pipeline.runtime.self_test_s if any(canaries) else None
    mechanic = Mechanic(
        governor, options.openers, prove, runs, npu_turn=turn, stuck_us=stuck, self_test_s=self_test_s
    )
    return mechanic, governor


def _prove(canaries: list[Canary | None], engine: Engine) -> str | None:
    engines = engine.both if isinstance(engine, TwoStageEngine) else (engine,)
    for canary, one in zip(canaries, engines, strict=True):
        if canary is not None and (wrong := canary.prove(one)) is not None:
            return wrong
    return None


def _refuse_without_plan(pipeline: Pipeline, options: Options, mechanic: Mechanic, governor: Governor) -> None:
    errors = [mechanic.errors[plan] for plan in options.openers if plan in mechanic.errors]
    npu_ready = any(plan in mechanic.engines for plan in (PlanKind.HTP, PlanKind.HYBRID))
    runtime = pipeline.runtime
    if options.on_npu and errors and not npu_ready and runtime.provider == "qnn" and runtime.fallback == "none":
        raise RuntimeFault(
            "no NPU plan could be loaded",
            where=errors[0].where,
            got=errors[0].brief,
            remedy=f"{errors[0].remedy or 'see the messages above'}; or set runtime.fallback: cpu",
        )
    if governor.place() is None:
        raise errors[0] if errors else EdgeAppError("no plan is ready to run", got=governor.decision.detail)
