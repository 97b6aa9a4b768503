"""Which plans of a model are loaded at start, and what gives way when one can't be."""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edge_app.config.manifest import Artifact, Plan
from edge_app.config.pipeline import Pipeline
from edge_app.config.runtime import Runtime
from edge_app.config.tensor import InputSpec
from edge_app.engine import Engine, tensor_of
from edge_app.errors import ConfigError, EdgeAppError, ModelError, RuntimeFault
from edge_app.model import ModelCard, check_digest, plan_head, plan_input, sha256_of, with_encodings
from edge_app.qnn_errors import remedy_of
from edge_app.runtime.base import Session, TensorInfo
from edge_app.runtime.cpu import open_cpu
from edge_app.runtime.null import NullSession
from edge_app.verdict import PlanKind, SchedReason

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StartAlarm:
    """An alarm that start-up found; it stands from the beginning."""

    name: str
    text: str
    remedy: str


@dataclass
class Options:
    """The plans that this pipeline has on this machine, in the order of preference; none is loaded yet."""

    openers: dict[PlanKind, Callable[[], Engine]] = field(default_factory=dict)
    agrees: list[tuple[PlanKind, PlanKind]] = field(default_factory=list)
    reason: SchedReason = SchedReason.NORMAL
    soc: str | None = None
    simulated: bool = False
    """Any of them would not run on the board's own hardware."""
    degraded: set[str] = field(default_factory=set)
    alarms: list[StartAlarm] = field(default_factory=list)

    @property
    def on_npu(self) -> bool:
        """Whether any plan uses an NPU."""
        return PlanKind.HTP in self.openers or PlanKind.HYBRID in self.openers


def plan_options(
    pipeline: Pipeline, card: ModelCard, thresholds: npt.NDArray[np.float32], kept_out: StartAlarm | None = None
) -> Options:
    """What `runtime:` asks for, as far as this machine has it.

    Args:
        pipeline: the whole pipeline.
        card: its model.
        thresholds: [C], lowest scores that the decoders return.
        kept_out: why the NPU is not to be used, whatever `runtime:` says; see `edge_app.npu_out`.

    Raises:
        RuntimeFault: `provider: qnn` without an NPU and without `fallback: cpu` (exit 5).
        ModelError: the model has no plan for the SoC (exit 4).
    """
    runtime, region = pipeline.runtime, pipeline.preprocess.region_px
    options = Options()
    if runtime.provider == "null":
        options.openers[PlanKind.NULL] = lambda: _engine(open_null(card), card, None, thresholds, region)
        options.simulated = True
        return options
    if runtime.provider in ("auto", "qnn"):
        if kept_out is not None:
            _give_way(options, kept_out)
        else:
            _add_npu_plans(options, pipeline, card, thresholds)
    options.openers[PlanKind.CPU] = lambda: _engine(
        open_cpu_plan(card, runtime.threads), card, cpu_plan(card), thresholds, region
    )
    return options


def _add_npu_plans(options: Options, pipeline: Pipeline, card: ModelCard, thresholds: npt.NDArray[np.float32]) -> None:
    runtime, region = pipeline.runtime, pipeline.preprocess.region_px
    missing = npu_missing(runtime)
    if missing is not None:
        _without_npu(options, pipeline, missing)
        return
    from edge_app.runtime import qnn

    try:
        soc = _soc(pipeline)
        plans = npu_plans(card, soc)
    except EdgeAppError as error:
        if runtime.provider == "qnn" and runtime.fallback == "none":
            raise
        _give_way(options, npu_fault(error.what, error.remedy))
        return
    options.soc, options.simulated = soc, qnn.is_simulator()
    for plan in plans:
        options.agrees += [(plan.plan, other) for other in plan.agrees_with]
        options.openers[plan.plan] = lambda plan=plan: _engine(  # type: ignore[misc]
            open_npu_plan(card, plan, runtime.threads), card, plan, thresholds, region
        )


class Missing(NamedTuple):
    """Why there is no NPU to use."""

    text: str
    is_fault: bool
    """There should be one."""


def npu_missing(runtime: Runtime) -> Missing | None:
    """Why the NPU that `runtime.provider` may use can't be had; None: it can, or the simulator that was asked for."""
    try:
        from edge_app.runtime import qnn
    except ImportError as error:
        return Missing(f"onnxruntime-qnn can't be imported: {error}", platform.machine() in ("x86_64", "aarch64"))
    if runtime.provider == "qnn" and qnn.is_simulator():
        return None
    text = qnn.npu_missing()
    return None if text is None else Missing(text, bool(qnn.dsp_nodes()))


def _without_npu(options: Options, pipeline: Pipeline, missing: Missing) -> None:
    if pipeline.runtime.provider == "qnn" and pipeline.runtime.fallback == "none":
        raise RuntimeFault(
            "runtime.provider is qnn, but there is no NPU here",
            got=missing.text,
            remedy="run `edge_app doctor`; or set runtime.provider: auto, or runtime.fallback: cpu",
        )
    options.reason = SchedReason.NO_NPU
    if pipeline.runtime.provider == "qnn" or missing.is_fault:
        _give_way(options, npu_fault(missing.text))
    else:
        log.info("plan cpu: %s", missing.text)


def _give_way(options: Options, alarm: StartAlarm) -> None:
    log.warning("the NPU is not used: %s", alarm.text)
    options.reason = SchedReason.NO_NPU
    options.degraded.add("cpu_fallback")
    options.alarms.append(alarm)


def npu_fault(text: str, remedy: str | None = None) -> StartAlarm:
    """The alarm for an NPU that was asked for and can't be had."""
    return StartAlarm("NPU_FAULT", text, f"the line runs on the CPU; {remedy or 'run `edge_app doctor`'}")


def _soc(pipeline: Pipeline) -> str:
    if pipeline.runtime.soc is None:
        raise ConfigError(
            "which SoC the plans are for is not known",
            where="runtime.soc",
            wanted="a name such as qcs8550",
            got="null",
            remedy="set runtime.soc; `edge_app model show` lists a model's SoCs",
        )
    return pipeline.runtime.soc


def npu_plans(card: ModelCard, soc: str) -> list[Plan]:
    """The plans that a model has for the NPU of a SoC; raises ModelError if there are none."""
    plans = card.manifest.plans if card.manifest else ()
    found = [p for kind in (PlanKind.HTP, PlanKind.HYBRID) for p in plans if p.plan is kind and p.soc == soc]
    if not found:
        known = sorted({p.soc for p in plans if p.soc is not None})
        raise ModelError(
            f"{card.name} has no plan for {soc}",
            where=str(card.folder or card.file),
            wanted=f"one of {', '.join(known)}" if known else "a compiled plan",
            got=soc,
            remedy=f"edge_app model compile {card.name} --soc {soc}",
        )
    return found


def _engine(
    session: Session,
    card: ModelCard,
    plan: Plan | None,
    thresholds: npt.NDArray[np.float32],
    region_px: tuple[int, int, int, int] | None,
) -> Engine:
    image = plan_input(card, plan)
    _check_input(session.input, image, card)
    outputs = with_encodings(session.outputs, plan.outputs if plan is not None else None)
    return Engine(session, image, card.decoder(outputs, thresholds, plan_head(card, plan)), region_px)


def _check_input(tensor: TensorInfo, image: InputSpec, card: ModelCard) -> None:
    wanted = tensor_of(image)
    if tensor.shape != wanted.shape or tensor.dtype != np.dtype(wanted.dtype):
        raise ModelError(
            "the model's input is not that of its manifest",
            where=str(card.folder or card.file),
            wanted=f"{wanted.dtype} {list(wanted.shape)}",
            got=f"{tensor.dtype} {list(tensor.shape)}",
            remedy="the file is another model's; import or compile it again",
        )


def open_plan(card: ModelCard, kind: PlanKind, soc: str | None, thresholds: npt.NDArray[np.float32]) -> Engine:
    """One plan by itself, as tools use it. Raises what the line would raise."""
    if kind is PlanKind.CPU:
        return _engine(open_cpu_plan(card, None), card, cpu_plan(card), thresholds, None)
    plan = card.manifest.plan(kind, soc) if card.manifest else None
    if plan is None:
        raise ModelError(
            f"{card.name} has no plan {kind} for {soc}",
            where=str(card.folder or card.file),
            remedy=f"edge_app model compile {card.name} --soc {soc}",
        )
    return _engine(open_npu_plan(card, plan, None), card, plan, thresholds, None)


def cpu_plan(card: ModelCard) -> Plan | None:
    """The manifest's cpu plan, if it names one of its own."""
    return card.manifest.plan(PlanKind.CPU, None) if card.manifest else None


def open_cpu_plan(card: ModelCard, threads: int | None) -> Session:
    """The cpu plan's session: the manifest's file for it, else the float model."""
    plan = cpu_plan(card)
    file = unchanged(card) if plan is None or card.folder is None else check_digest(card.folder, plan.artifacts[0])
    return open_cpu(file, threads)


def unchanged(card: ModelCard) -> Path:
    """The float model's file, if it is still what was resolved: a plan may be built again after days.

    Raises:
        ModelError: it was replaced since; results would name the one before, whose scores are in force.
    """
    digest = sha256_of(card.file) if card.file.is_file() else None
    if digest not in (None, card.sha256):  # of none that is there, who opens it tells
        raise ModelError(
            "the model's file was replaced while the line runs",
            where=str(card.file),
            wanted=f"sha256 {card.sha256}",
            got=f"sha256 {digest}",
            remedy="start the line again to take the new one, or put the old one back",
        )
    return card.file


def open_npu_plan(card: ModelCard, plan: Plan, threads: int | None) -> Session:
    """An htp or hybrid plan's session; every file is checked against its digest first."""
    from edge_app.runtime.qnn import HtpTarget, open_qnn

    if plan.soc is None or plan.soc_model is None or plan.htp_arch is None:
        raise ModelError(
            f"the manifest does not say for which SoC plan {plan.plan} is",
            where=str(card.folder),
            wanted="soc, soc_model and htp_arch",
            remedy="compile it again",
        )
    folder = card.folder or Path()
    files = [check_digest(folder, artifact) for artifact in plan.artifacts]
    return open_qnn(
        files[0], plan.plan, HtpTarget(plan.soc, plan.soc_model, plan.htp_arch),
        host_ops=frozenset(plan.host_ops), host_nodes=frozenset(plan.host_nodes), threads=threads,
        explain=remedy_of,
    )  # fmt: skip


def open_null(card: ModelCard) -> Session:
    """The null session: replays the manifest's canary."""
    if card.manifest is None or card.manifest.canary is None or card.folder is None:
        raise ModelError(
            "the null session has no recorded output to replay",
            where=str(card.folder or card.file),
            wanted="a canary in the model's manifest",
            got="none",
            remedy="use a model folder with a canary, or another runtime.provider",
        )
    canary = card.manifest.canary
    recording = check_digest(card.folder, Artifact(file=canary.file, sha256=canary.sha256))
    tensor = tensor_of(card.input)
    return NullSession(TensorInfo(card.input.name, tensor.shape, np.dtype(tensor.dtype)), recording)
