"""Plans that were not shipped are made again from the QDQ model, byte for byte. Needs no onnx: boards can do it."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path

from edge_app.config.manifest import Manifest, Plan, Quantized
from edge_app.errors import ModelError
from edge_app.model import check_digest, sha256_of
from edge_app.toolchain import htp
from edge_app.toolchain.socs import soc_named

EDGES = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Ops that follow the host ops by themselves, at the crossings."""


def quantized_of(folder: Path, manifest: Manifest) -> tuple[Path, Quantized]:
    """The QDQ model that plans are compiled from, its digest checked.

    Raises:
        ModelError: the model was not quantised yet, or the file is another one.
    """
    if manifest.quantized is None:
        raise ModelError(
            "the model is not quantised yet",
            where=str(folder),
            remedy=f"edge_app model quantize {manifest.name} --calibration DIR",
        )
    return check_digest(folder, manifest.quantized.model), manifest.quantized


def affinity_of(plan: Plan) -> tuple[str, ...]:
    """The op kinds that the compiler is told to leave to the host; those of the crossings only if they are pinned."""
    if plan.plan.value != "hybrid":
        return ()
    return affinity(tuple(op for op in plan.host_ops if op not in EDGES), plan.edges_pinned)


def affinity(host_ops: tuple[str, ...], edges_pinned: bool) -> tuple[str, ...]:
    """Host op kinds, and Q and DQ with them if they are pinned; in the order that the compiler is told them."""
    return (*host_ops, *(sorted(EDGES) if edges_pinned else ()))


def remake(folder: Path, manifest: Manifest, plan: Plan) -> bool:
    """Compiles a plan again; true if the file is, byte for byte, the one that the manifest binds.

    The file is put in place only then.

    Raises:
        RuntimeFault: the compiler refuses, the disk is full, or nothing may be written there.
        ModelError: not an NPU plan, or the QDQ model is not the one that the manifest binds.
    """
    if plan.soc is None:
        raise ModelError("only NPU plans are compiled", where=str(folder), got=str(plan.plan))
    source = quantized_of(folder, manifest)[0] if plan.source is None else check_digest(folder, plan.source)
    artifact = plan.artifacts[0]
    file = folder / artifact.file
    staged = file.with_name(f".{file.name}.staged")
    try:
        if plan.host_nodes:
            _compile_cut(source, plan, staged)
        else:
            htp.compile_plan(source, soc_named(plan.soc), staged, affinity_of(plan))
        same = sha256_of(staged) == artifact.sha256
        if same:
            staged.replace(file)
    except OSError as error:
        raise htp.cant_write(file, error) from error
    finally:
        with contextlib.suppress(OSError):  # a read-only file system refuses even where there is nothing
            staged.unlink(missing_ok=True)
    return same


def _compile_cut(source: Path, plan: Plan, out: Path) -> None:
    """A plan with single host nodes is put together of segments, which needs onnx."""
    if importlib.util.find_spec("onnx") is None:
        raise ModelError(
            "this plan has single nodes on the CPU: making it again needs the toolchain",
            where=str(out),
            remedy="pip install 'edge_app[toolchain]', or copy the plan from where it was compiled",
        )
    from edge_app.toolchain.cut import compile_cut

    compile_cut(source, plan.host_nodes, soc_named(plan.soc or ""), out)


def make_missing(folder: Path, manifest: Manifest, plan: Plan) -> Path:
    """The plan's file, made if it is not there.

    Raises:
        ModelError: what was made is not what the manifest binds: other versions are installed than compiled it.
    """
    file = folder / plan.artifacts[0].file
    if not file.is_file() and not remake(folder, manifest, plan):
        made_with = "unknown versions" if plan.tools is None else str(plan.tools.model_dump())
        raise ModelError(
            "the plan was compiled here, and came out as another one than the manifest binds",
            where=str(file),
            wanted=f"sha256 {plan.artifacts[0].sha256[:12]}..., as made with {made_with}",
            remedy=f"edge_app model compile {manifest.name} --soc {plan.soc}, then verify it",
        )
    return check_digest(folder, plan.artifacts[0])
