"""A QDQ model cut at single nodes: some run in float on the CPU, the rest as compiled segments on the NPU.

The compiler's own way (`op_affinity`) takes whole kinds of op. Here any set of nodes can go to the host:

1. Q and DQ at a crossing go to the host side, so that integers cross; between two host nodes they are left out, so that
   the host computes in float.
2. A node's level is the largest number of changes of side on any way to it. NPU nodes of one level are one segment:
   what lies between two of them has their level too, so no way leads out of a segment and back into it.
3. Each segment is compiled by itself; the plan is one ONNX of the compiled segments and the host's nodes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import ModelProto, NodeProto, helper

from edge_app.errors import ConfigError, RuntimeFault
from edge_app.toolchain import htp
from edge_app.toolchain.graph import Index, drop_dead, inferred, load, save
from edge_app.toolchain.remake import EDGES
from edge_app.toolchain.socs import Soc

Compile = Callable[[Sequence[Path], Sequence[Path]], None]
"""Compiles segments: QDQ files to ONNX files of one EPContext node each."""


@dataclass(frozen=True)
class Cut:
    """A QDQ model with its nodes on two sides."""

    model: ModelProto
    host: frozenset[str]
    """Names of the nodes on the host, Q and DQ of the crossings among them."""
    segments: tuple[tuple[str, ...], ...]
    """Names of the nodes of each NPU segment; the DQ of weights and biases go with whoever reads them."""

    @property
    def crossings(self) -> set[str]:
        """Tensors between NPU and host."""
        index = Index(self.model)
        return {
            name
            for node in self.model.graph.node
            for name in _read(index, node)
            if name in index.producer and (node.name in self.host) != (index.producer[name].name in self.host)
        }


def cut(qdq: ModelProto, host: Collection[str]) -> Cut:
    """Puts nodes on the host.

    Args:
        qdq: a QDQ model with inferred shapes.
        host: names of the nodes; their Q and DQ follow by themselves.

    Raises:
        ConfigError: a name that the model has not, or of a Q or DQ.
    """
    known = {node.name for node in qdq.graph.node if node.op_type not in EDGES}
    if unknown := sorted(set(host) - known):
        raise ConfigError(
            "nodes to run on the CPU that the model has not",
            wanted="names of its nodes, Q and DQ apart",
            got=", ".join(unknown[:4]),
        )
    model = _without_inner_edges(qdq, frozenset(host))
    model = _own_dequantizers(model)
    model = inferred(model, "the model cut into NPU and host")
    sides = _host_side(model, frozenset(host))
    return Cut(model, sides, _segments(model, sides))


def _without_inner_edges(qdq: ModelProto, host: frozenset[str]) -> ModelProto:
    """Between host nodes, and where a host node's value is quantised twice, Q and DQ are gone past: it is in float."""
    result = ModelProto()
    result.CopyFrom(qdq)
    index = Index(result)

    def in_float(tensor: str) -> str:
        """The host node's own value behind Q and DQ; the tensor itself if there is none."""
        exit_ = index.producer.get(tensor)
        if exit_ is None or exit_.op_type != "DequantizeLinear":
            return tensor
        entry = index.producer.get(exit_.input[0])
        if entry is None or entry.op_type != "QuantizeLinear":
            return tensor
        value = in_float(entry.input[0])
        maker = index.producer.get(value)
        return value if maker is not None and maker.name in host else tensor

    for node in result.graph.node:
        if node.name in host or node.op_type == "QuantizeLinear":
            for position, name in enumerate(node.input):
                if position == 0 or node.name in host:
                    node.input[position] = in_float(name)
    drop_dead(result)
    return result


def _own_dequantizers(model: ModelProto) -> ModelProto:
    """Each reader gets a DQ of its own, so that a DQ can go wherever its reader goes and integers cross."""
    result = ModelProto()
    result.CopyFrom(model)
    index = Index(result)
    copies: list[NodeProto] = []
    for node in result.graph.node:
        if not _is_dq(node):
            continue
        readers = {reader.name: reader for reader in index.consumers.get(node.output[0], [])}
        for name, reader in list(readers.items())[0 if node.output[0] in index.outputs else 1 :]:
            copy = NodeProto()
            copy.CopyFrom(node)
            copy.name, copy.output[0] = f"{node.name}_for_{name}", f"{node.output[0]}_for_{name}"
            reader.input[:] = [copy.output[0] if value == node.output[0] else value for value in reader.input]
            copies.append(copy)
    result.graph.node.extend(copies)
    return _sorted(result)


def _host_side(model: ModelProto, host: frozenset[str]) -> frozenset[str]:
    """Host nodes with their Q and DQ; and those of a float input or output of the graph."""
    index = Index(model)

    def ours(node: NodeProto) -> bool:
        if node.op_type == "QuantizeLinear":
            maker = index.producer.get(node.input[0])
            return maker is None or maker.name in host
        if node.op_type == "DequantizeLinear":
            readers = index.consumers.get(node.output[0], [])
            return all(reader.name in host for reader in readers)
        return node.name in host

    return frozenset(node.name for node in model.graph.node if ours(node))


def _is_constant(index: Index, node: NodeProto) -> bool:
    """The DQ of a weight or bias."""
    return next(index.dynamic_inputs(node), None) is None


def _read(index: Index, node: NodeProto) -> list[str]:
    """Tensors that a node reads and that a picture changes."""
    return [
        name
        for name in index.dynamic_inputs(node)
        if name not in index.producer or not _is_constant(index, index.producer[name])
    ]


def _segments(model: ModelProto, host: frozenset[str]) -> tuple[tuple[str, ...], ...]:
    index = Index(model)
    levels: dict[str, int] = {}
    for node in model.graph.node:
        if not _is_dq(node):
            makers = _makers(index, node)
            levels[node.name] = max(
                (levels[maker.name] + ((maker.name in host) != (node.name in host)) for maker in makers), default=0
            )
    found: dict[int, list[str]] = {}
    for node in model.graph.node:
        if node.name in host or _is_constant(index, node):
            continue
        placed = index.consumers[node.output[0]][0] if _is_dq(node) else node
        found.setdefault(levels[placed.name], []).append(node.name)
    return tuple(tuple(names) for _, names in sorted(found.items()))


def _makers(index: Index, node: NodeProto) -> list[NodeProto]:
    """The nodes that make what a node reads, seen through its DQs."""
    names = [
        index.producer[name].input[0] if name in index.producer and _is_dq(index.producer[name]) else name
        for name in _read(index, node)
    ]
    return [index.producer[name] for name in names if name in index.producer]


def _is_dq(node: NodeProto) -> bool:
    return node.op_type == "DequantizeLinear"


def segment_models(parts: Cut) -> list[ModelProto]:
    """Each NPU segment as a model of its own: integers in, integers out."""
    return [_segment(parts.model, frozenset(names), f"part{number}") for number, names in enumerate(parts.segments)]


def _segment(model: ModelProto, names: frozenset[str], title: str) -> ModelProto:
    index = Index(model)
    own = {name for node in model.graph.node if node.name in names for name in node.input}
    nodes = [
        node for node in model.graph.node if node.name in names or (_is_constant(index, node) and node.output[0] in own)
    ]
    made = {name for node in nodes for name in node.output}
    read = dict.fromkeys(name for node in nodes for name in index.dynamic_inputs(node))
    inputs = [name for name in read if name not in made]
    outside = {name for node in model.graph.node if node.name not in names for name in node.input} | index.outputs
    outputs = [name for node in nodes if node.name in names for name in node.output if name in outside]
    constants = [tensor for tensor in model.graph.initializer if any(tensor.name in node.input for node in nodes)]
    graph = helper.make_graph(
        nodes, title, [index.info(name) for name in inputs], [index.info(name) for name in outputs], constants
    )
    return helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)


def compiled(parts: Cut, compile_segments: Compile, folder: Path) -> ModelProto:
    """The whole plan: compiled segments and host nodes in one model.

    Args:
        parts: of `cut`.
        compile_segments: does so.
        folder: an empty one to work in; files have the same names each time, since the compiler's bytes depend on them.

    Raises:
        RuntimeFault: a segment did not compile to one NPU part.
    """
    sources, targets = [], []
    for number, model in enumerate(segment_models(parts)):
        sources.append(folder / f"part{number}.onnx")
        targets.append(folder / f"part{number}.plan.onnx")
        onnx.save(model, sources[-1])
    compile_segments(sources, targets)
    index = Index(parts.model)
    plan = ModelProto()
    plan.CopyFrom(parts.model)
    del plan.graph.node[:]
    del plan.graph.value_info[:]
    plan.graph.node.extend(node for node in parts.model.graph.node if node.name in parts.host)
    for number, target in enumerate(targets):
        made = onnx.load(target)
        if [node.op_type for node in made.graph.node] != ["EPContext"]:
            raise RuntimeFault(
                f"segment {number} of the cut did not become one NPU part",
                got=", ".join(sorted({node.op_type for node in made.graph.node})),
                remedy="put other nodes on the CPU",
            )
        node = made.graph.node[0]
        node.name = f"npu{number}"
        plan.graph.node.append(node)
        present = {entry.domain for entry in plan.opset_import}
        plan.opset_import.extend(entry for entry in made.opset_import if entry.domain not in present)
    made_here = [name for node in plan.graph.node for name in node.output if name not in index.outputs]
    plan.graph.value_info.extend(index.info(name) for name in made_here if name in index.types)
    used = {name for node in plan.graph.node for name in node.input}
    kept = [tensor for tensor in plan.graph.initializer if tensor.name in used]
    del plan.graph.initializer[:]
    plan.graph.initializer.extend(kept)
    return _sorted(plan)


def compile_cut(source: Path, host: Collection[str], soc: Soc, out: Path) -> None:
    """Cuts a QDQ file, compiles its segments for a SoC, and writes the plan: whole or not at all.

    Raises:
        RuntimeFault: the compiler refuses, or the disk is full.
        ConfigError: see `cut`.
    """
    parts = cut(inferred(load(source), str(source)), host)
    with tempfile.TemporaryDirectory() as folder:
        plan = compiled(parts, lambda models, plans: htp.compile_all(models, soc, plans), Path(folder))
    save(plan, out)


def _sorted(model: ModelProto) -> ModelProto:
    """Nodes in an order in which each comes after those it reads from; otherwise as they were."""
    made = {name for node in model.graph.node for name in node.output}
    ready = {tensor.name for tensor in model.graph.initializer} | {info.name for info in model.graph.input} | {""}
    waiting, placed = list(model.graph.node), []
    while waiting:
        left = []
        for node in waiting:
            if all(name in ready or name not in made for name in node.input):
                placed.append(node)
                ready.update(node.output)
            else:
                left.append(node)
        if len(left) == len(waiting):
            raise RuntimeFault("the cut made a circle of segments", got=", ".join(node.name for node in left[:4]))
        waiting = left
    result = ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    result.graph.node.extend(placed)
    return result
