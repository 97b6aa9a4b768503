"""QDQ model to plans for each SoC, audited, and bound by digest in the manifest."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from edge_app.config.load import load_manifest
from edge_app.config.manifest import Artifact, Manifest, Plan, PlanReport, Quantized, Toolversions
from edge_app.config.save import edit_manifest
from edge_app.engine import tensor_of
from edge_app.errors import ModelError, RuntimeFault
from edge_app.model import sha256_of
from edge_app.runtime import qnn
from edge_app.toolchain import audit, graph, htp
from edge_app.toolchain.cut import compile_cut
from edge_app.toolchain.partition import conversions_on_host, edges_can_be_pinned
from edge_app.toolchain.remake import EDGES, affinity
from edge_app.toolchain.socs import Soc
from edge_app.verdict import PlanKind

PROFILED_RUNS = 3
HYBRID_QDQ_FILE = "quantized_hybrid.onnx"
DEFAULT_HOST_OPS = ("Sigmoid", "Mul", "Softmax", "LayerNormalization", "Gelu", "HardSwish", "Tanh")
"""Op kinds that the default hybrid plan leaves to the CPU: activations and norms."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One plan to make."""

    kind: PlanKind
    soc: Soc
    host_ops: tuple[str, ...] = ()
    host_nodes: tuple[str, ...] = ()
    """Single nodes instead of kinds: the model is cut at them."""

    @property
    def file(self) -> str:
        """Relative to the model's folder."""
        return f"plans/{self.soc.name}/{self.kind}.onnx"


def wanted_plans(
    manifest: Manifest,
    qdq: onnx.ModelProto,
    socs: Sequence[Soc],
    kinds: Sequence[PlanKind],
    host_ops: Sequence[str] | None,
    host_nodes: tuple[str, ...] = (),
) -> list[Wanted]:
    """What to compile: per SoC the plans asked for; hybrid with single nodes, or with op kinds that the model has.

    Where nothing is said of host ops and the model has no activation or norm of its own (ReLU is part of its conv),
    there is no hybrid plan.

    Raises:
        ModelError: there is nothing to compile, or a named host op kind is not in the model.
    """
    if host_nodes:
        return [Wanted(kind, soc, (), host_nodes if kind is PlanKind.HYBRID else ()) for soc in socs for kind in kinds]
    present = {node.op_type for node in qdq.graph.node}
    chosen = tuple(op for op in (host_ops or _default_host_ops(present)) if op in present)
    if host_ops is None and not chosen:
        kinds = [kind for kind in kinds if kind is not PlanKind.HYBRID]
    if not kinds or (PlanKind.HYBRID in kinds and not chosen):
        raise ModelError(
            "no hybrid plan can be made: the model has none of the host op kinds",
            where=manifest.name,
            wanted=", ".join(host_ops or DEFAULT_HOST_OPS),
            got=", ".join(sorted(present)),
            remedy="choose others with --host-ops, e.g. --host-ops Gemm, or compile --plans htp",
        )
    return [Wanted(kind, soc, chosen if kind is PlanKind.HYBRID else ()) for soc in socs for kind in kinds]


def _default_host_ops(present: set[str]) -> tuple[str, ...]:
    """Activations and norms; Mul only where it is half of a SiLU."""
    return tuple(op for op in DEFAULT_HOST_OPS if op != "Mul" or "Sigmoid" in present)


def make_plan(folder: Path, quantized: Quantized, source: Path, qdq: onnx.ModelProto, wanted: Wanted) -> Plan:
    """Compiles, runs, and audits one plan; its file is in place when this returns.

    Raises:
        RuntimeFault: the compiler refuses, or a node fell to the CPU that was not planned there.
    """
    file = folder / wanted.file
    staged = file.with_name(f".{file.name}.staged")
    own = _own_source(folder, qdq, wanted)
    if own is not None:
        source, qdq = folder / own.file, with_shapes(folder / own.file)
    pinned = bool(wanted.host_ops) and edges_can_be_pinned(qdq, wanted.host_ops)
    try:
        if wanted.host_nodes:
            compile_cut(source, wanted.host_nodes, wanted.soc, staged)
        else:
            placed = htp.compile_plan(source, wanted.soc, staged, affinity(wanted.host_ops, pinned))
            _refuse_unplanned(placed, wanted, qdq)
        plan = onnx.load(staged)
        ran = _profiled(staged, quantized, wanted.soc)
        _refuse_unplanned(ran.host_nodes, wanted, qdq)
        staged.replace(file)
    finally:
        staged.unlink(missing_ok=True)
    profile = audit.read_profile(ran.rows, qdq, {name for name, _ in ran.host_nodes})
    versions = qnn.versions()
    return Plan(
        plan=wanted.kind,
        soc=wanted.soc.name,
        soc_model=wanted.soc.soc_model,
        htp_arch=wanted.soc.htp_arch,
        vtcm_mb=wanted.soc.vtcm_mb,
        artifacts=(Artifact(file=wanted.file, sha256=sha256_of(file)),),
        embedded_in_git=False,
        input=quantized.input,
        head=quantized.head,
        outputs=quantized.outputs,
        tools=Toolversions(
            onnxruntime=versions["onnxruntime"],
            onnxruntime_qnn=versions["onnxruntime_qnn"],
            qairt=audit.compiler_version(plan),
        ),
        source=own,
        host_ops=host_ops_of(ran.host_nodes, wanted),
        host_nodes=wanted.host_nodes,
        edges_pinned=pinned,
        report=_report(plan, qdq, profile),
    )


def _report(plan: onnx.ModelProto, qdq: onnx.ModelProto, profile: audit.Profile) -> PlanReport:
    macs, crossings = audit.count_macs(qdq), audit.count_crossings(plan)
    return PlanReport(
        segments=crossings.segments,
        crossings=crossings.count,
        crossing_bytes=crossings.size_bytes,
        io_bytes=audit.io_bytes(qdq),
        simulated_cycles=profile.cycles if qnn.is_simulator() else None,
        macs_a8=macs.a8,
        macs_a16=macs.a16,
        macs_float=macs.in_float,
        transposes=profile.transposes,
        float_ops=profile.float_ops,
        fused_ops=profile.fused_ops,
    )


def _own_source(folder: Path, qdq: onnx.ModelProto, wanted: Wanted) -> Artifact | None:
    """A mixed model's hybrid plan is compiled from a QDQ model of its own; see partition.conversions_on_host."""
    if not wanted.host_ops:
        return None
    model, moved = conversions_on_host(qdq, wanted.host_ops)
    if not moved:
        return None
    graph.save(model, folder / HYBRID_QDQ_FILE)
    return Artifact(file=HYBRID_QDQ_FILE, sha256=sha256_of(folder / HYBRID_QDQ_FILE))


def host_ops_of(placed: Sequence[tuple[str, str]], wanted: Wanted) -> tuple[str, ...]:
    """Op kinds that were read back on the CPU, Q and DQ of the crossings among them, single nodes not."""
    return tuple(sorted({op for name, op in placed if name not in wanted.host_nodes}))


def record_compiled(folder: Path, before: Sequence[Plan], plans: Sequence[Plan]) -> None:
    """Writes new plans into the manifest. What was verified holds for the same bytes, and for no others.

    Args:
        folder: of the model.
        before: plans of the manifest until now.
        plans: what was compiled.
    """
    of_before = {(old.plan, old.soc): old for old in before}
    of_new = {(new.plan, new.soc): new for new in plans}
    other_bytes = {key for key, new in of_new.items() if key in of_before and not _same_bytes(of_before[key], new)}
    recorded = []
    for key, plan in (of_before | of_new).items():
        old = of_before.get(key)
        if key in of_new and (old is None or key in other_bytes):
            recorded.append(plan)
        elif old is not None:
            agreements = tuple(one for one in old.agreements if (one.plan, old.soc) not in other_bytes)
            agrees_with = tuple(kind for kind in old.agrees_with if (kind, old.soc) not in other_bytes)
            known = {"verified": old.verified, "agreements": agreements, "agrees_with": agrees_with}
            recorded.append(plan.model_copy(update=known))
    record_plans(folder, recorded)


def _same_bytes(one: Plan, other: Plan) -> bool:
    return [a.sha256 for a in one.artifacts] == [a.sha256 for a in other.artifacts]


def record_plans(folder: Path, plans: Sequence[Plan]) -> None:
    """Writes plans into the manifest in place of those of the same kind and SoC; the others stay."""

    def edit(tree: Any) -> None:
        new = {(str(plan.plan), plan.soc): plain(plan) for plan in plans}
        kept = [old for old in tree.get("plans") or [] if (old["plan"], old.get("soc")) not in new]
        tree["plans"] = kept + list(new.values())

    edit_manifest(folder, edit)
    load_manifest(folder)


def plain(section: Any) -> dict[str, Any]:
    """A section as YAML writes it: no nulls, no empty lists."""
    data: dict[str, Any] = section.model_dump(mode="json", exclude_none=True)
    return {key: value for key, value in data.items() if value not in ([], {}, "")}


def _refuse_unplanned(placed: Sequence[tuple[str, str]], wanted: Wanted, qdq: onnx.ModelProto) -> None:
    edges = set(EDGES)
    split = bool(wanted.host_ops or wanted.host_nodes)
    allowed = set(wanted.host_ops) | (edges if split or _has_float_edge(qdq) else set())
    unplanned = [f"{name} ({op})" for name, op in placed if op not in allowed and name not in wanted.host_nodes]
    if unplanned:
        kinds = ",".join(sorted({op for _, op in placed} - EDGES))
        raise RuntimeFault(
            f"{wanted.soc.name}: {len(unplanned)} nodes of plan {wanted.kind} stay on the CPU, unplanned",
            wanted=f"on the CPU only: {', '.join(wanted.host_ops) or 'nothing'}",
            got=", ".join(unplanned[:8]),
            remedy=f"plan them there: --plans hybrid --host-ops {kinds}; or change the model",
        )
    lost = set(wanted.host_ops) - {op for _, op in placed} | set(wanted.host_nodes) - {name for name, _ in placed}
    if lost:
        raise RuntimeFault(f"{wanted.soc.name}: planned for the CPU, and ran on the NPU", got=", ".join(sorted(lost)))


def _has_float_edge(qdq: onnx.ModelProto) -> bool:
    return any(i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT for i in (*qdq.graph.input, *qdq.graph.output))


def _profiled(plan: Path, quantized: Quantized, soc: Soc) -> htp.Ran:
    """A few runs on a drawn picture, with cycles."""
    shape, dtype = tensor_of(quantized.input).shape, np.dtype(quantized.input.dtype)
    picture = np.random.default_rng(0).integers(0, 256, shape)
    with tempfile.TemporaryDirectory() as name:
        image = Path(name, "in.npy")
        np.save(image, picture.astype(dtype) if dtype != np.float32 else (picture / 255).astype(dtype))
        return htp.run_plan(
            plan, soc, [image] * PROFILED_RUNS, [Path(name, f"out{n}.npz") for n in range(PROFILED_RUNS)], profile=True
        )


def with_shapes(file: Path) -> onnx.ModelProto:
    """A QDQ model with the shape of every tensor."""
    return graph.inferred(graph.load(file), str(file))
