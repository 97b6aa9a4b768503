"""Which nodes of a hybrid plan go to the CPU when not all of its host op kinds fit: the most sensitive first."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto

from edge_app.config.load import load_manifest
from edge_app.errors import ConfigError, ModelError
from edge_app.toolchain.calibration import Ranges, choose
from edge_app.toolchain.cut import cut
from edge_app.toolchain.dataset import spread
from edge_app.toolchain.graph import Index
from edge_app.toolchain.measure import Sample, Step, noise_to_signal, run_cpu, samples_of
from edge_app.toolchain.quantize import Prepared
from edge_app.toolchain.quantize_model import from_encodings
from edge_app.toolchain.remake import EDGES
from edge_app.toolchain.sensitivity import with_tensors_quantized

RANKING_PICTURES = 4
"""Enough to rank by: the errors of nodes differ far more than those of pictures do."""


@dataclass(frozen=True, slots=True)
class Group:
    """Host nodes that hang together, such as the Sigmoid and the Mul of a SiLU: they go to the CPU as one."""

    nodes: tuple[str, ...]
    error: float
    """Noise to signal of the model's outputs when only what these nodes make has 8 bits."""


def most_sensitive(
    folder: Path,
    qdq: ModelProto,
    host_ops: Sequence[str],
    most_crossings: int,
    pictures: Path | None,
    step: Step = lambda _done, _of: None,
) -> tuple[str, ...]:
    """Nodes for the CPU where not all of the host op kinds fit into the crossings; none if all do.

    Args:
        folder: of the model.
        qdq: its QDQ model with inferred shapes.
        host_ops: kinds of ops that may go to the CPU.
        most_crossings: tensors that may cross between NPU and CPU, a frame.
        pictures: a folder of them, to measure sensitivity with.
        step: called after each group.

    Raises:
        ConfigError: there are too many crossings, and no pictures.
        ModelError: not a single node fits.
    """
    every = [name for group in groups(qdq, host_ops) for name in group]
    crossings = len(cut(qdq, every).crossings)
    if crossings <= most_crossings:
        return ()
    if pictures is None:
        raise ConfigError(
            "not all host nodes fit, and which are the most sensitive must be measured",
            where=f"--most-crossings {most_crossings}",
            wanted="--pictures DIR; or fewer kinds: --host-ops; or single nodes: --host-nodes",
            got=f"{crossings} crossings with all {', '.join(host_ops)}",
        )
    samples = samples_of(spread(choose(pictures, None, 0), RANKING_PICTURES))
    prepared, ranges, _ = from_encodings(folder, load_manifest(folder))
    host = chosen(qdq, measured(qdq, host_ops, prepared, ranges, samples, step), most_crossings)
    if not host:
        raise ModelError(
            "not a single host node fits",
            wanted=f"at most {most_crossings} crossings",
            remedy="allow more with --most-crossings, or compile --plans htp",
        )
    return host


def groups(qdq: ModelProto, host_ops: Collection[str]) -> list[tuple[str, ...]]:
    """Names of the nodes of some op kinds, those together that read one another or the same value; in graph order."""
    index = Index(qdq)
    by_name = {node.name: node for node in qdq.graph.node if node.op_type in host_ops}
    root = {name: name for name in by_name}

    def top(name: str) -> str:
        return name if root[name] == name else top(root[name])

    def origin(tensor: str) -> str:
        """The tensor before Q and DQ."""
        maker = index.producer.get(tensor)
        return origin(maker.input[0]) if maker is not None and maker.op_type in EDGES else tensor

    first_reader: dict[str, str] = {}
    for name, node in by_name.items():
        for tensor in map(origin, index.dynamic_inputs(node)):
            maker = index.producer.get(tensor)
            related = maker.name if maker is not None and maker.name in by_name else first_reader.get(tensor)
            if related is not None:
                root[top(name)] = top(related)
            first_reader.setdefault(tensor, name)
    members: dict[str, list[str]] = {}
    for name in by_name:
        members.setdefault(top(name), []).append(name)
    return [tuple(names) for names in members.values()]


def measured(
    qdq: ModelProto,
    host_ops: Collection[str],
    prepared: Prepared,
    ranges: Ranges,
    samples: Sequence[Sample],
    step: Step = lambda _done, _of: None,
) -> list[Group]:
    """The groups of a model and their errors, the most sensitive first."""
    found = groups(qdq, host_ops)
    wanted = run_cpu(prepared.model.SerializeToString(), prepared.image, samples)
    makes = {node.name: list(node.output) for node in prepared.model.graph.node}
    result = []
    for done, names in enumerate(found, 1):
        tensors = [tensor for name in names for tensor in makes.get(name, [])]
        model = with_tensors_quantized(prepared.model, tensors, ranges)
        got = run_cpu(model.SerializeToString(), prepared.image, samples)
        result.append(Group(names, noise_to_signal(got, wanted)))
        step(done, len(found))
    return sorted(result, key=lambda group: -group.error)


def chosen(qdq: ModelProto, ranked: Sequence[Group], most_crossings: int) -> tuple[str, ...]:
    """Nodes for the CPU: each group in turn, the most sensitive first, that keeps the crossings within their number."""
    host: tuple[str, ...] = ()
    for group in ranked:
        more = (*host, *group.nodes)
        if len(cut(qdq, more).crossings) <= most_crossings:
            host = more
    return host
