"""What the compiler really made of a model: counted from its graph, and read from the profile of a run."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto

from edge_app.toolchain.graph import Index
from edge_app.toolchain.worker import CYCLES_EVENT

BITS: dict[int, int] = {TensorProto.UINT8: 8, TensorProto.INT8: 8, TensorProto.UINT16: 16, TensorProto.INT16: 16}
FUSIBLE = frozenset({"Sigmoid", "Relu", "Clip", "Tanh", "HardSwish", "HardSigmoid", "LeakyRelu"})


@dataclass(frozen=True, slots=True)
class Macs:
    """Multiply-adds of one inference, by the precision of the activations that go in."""

    a8: int
    a16: int
    in_float: int

    @property
    def cost(self) -> int:
        """As if all were at 8 bits: 16 bits count twice (as on the HTP), float four times."""
        return self.a8 + 2 * self.a16 + 4 * self.in_float


@dataclass(frozen=True, slots=True)
class Profile:
    """Cycles of the simulated HTP, read from a run's profile."""

    cycles: int
    """Of one inference, all segments, median of the runs."""
    by_node: dict[str, int]
    """ONNX node (or the compiler's own) -> cycles of one inference, median."""
    float_ops: tuple[str, ...]
    fused_ops: dict[str, int]
    transposes: int


def count_macs(model: ModelProto) -> Macs:
    """Multiply-adds of a QDQ (or float) model with inferred shapes, batch of one."""
    index = Index(model)
    sums = Counter[int]()
    for node in model.graph.node:
        sums[_bits(index, node)] += macs_of(index, node)
    return Macs(sums[8], sums[16], sums[0])


def macs_of(index: Index, node: NodeProto) -> int:
    """Multiply-adds of one node; 0 for those that do not multiply."""
    out = index.shape(node.output[0])
    if out is None:
        return 0
    if node.op_type in ("Conv", "ConvTranspose"):
        weight, image = index.shape(_behind_dq(index, node.input[1])), index.shape(node.input[0])
        if weight is None or image is None:
            return 0
        places = out if node.op_type == "Conv" else image
        return math.prod(places[2:]) * math.prod(weight)
    if node.op_type in ("MatMul", "Gemm"):
        inner = index.shape(node.input[0])
        return 0 if inner is None else math.prod(out) * inner[-1]
    return 0


def _behind_dq(index: Index, tensor: str) -> str:
    node = index.producer.get(tensor)
    return node.input[0] if node is not None and node.op_type == "DequantizeLinear" else tensor


def _bits(index: Index, node: NodeProto) -> int:
    """Bits of a node's first input, 0 for float."""
    entry = index.producer.get(node.input[0]) if node.input else None
    if entry is None or entry.op_type != "DequantizeLinear" or len(entry.input) < 3:
        return 0
    zero = index.initializers.get(entry.input[2])
    return 0 if zero is None else BITS.get(zero.data_type, 0)


def read_profile(
    rows: Sequence[tuple[str, str, int]], model: ModelProto, host: Collection[str] = frozenset()
) -> Profile:
    """Cycles by node, what stayed float, and what was fused.

    Args:
        rows: (level, event, cycles) of a run's profile, in order; each inference begins again.
        model: the QDQ model that was compiled, for its node names.
        host: names of the nodes that ran on the CPU: theirs is no float on the NPU, even where what they make crosses
            in float and is quantised by the NPU.
    """
    per_run = cycles_by_run(rows)
    nodes: dict[str, list[int]] = {}
    for level, event, cycles in rows:
        if level == "NODE":
            nodes.setdefault(_node_name(event), []).append(cycles)
    by_node = {name: _median_per_run(values, max(1, len(per_run))) for name, values in nodes.items()}
    return Profile(
        cycles=int(statistics.median(per_run)) if per_run else 0,
        by_node=by_node,
        float_ops=tuple(sorted(_float_ops(by_node, model, host))),
        fused_ops=_fused(by_node, model),
        transposes=sum(1 for name, cycles in by_node.items() if cycles and "Transpose" in name),
    )


def cycles_by_run(rows: Sequence[tuple[str, str, int]]) -> list[int]:
    """Cycles of each inference, its segments added up."""
    totals = [cycles for _, event, cycles in rows if event == CYCLES_EVENT]
    segments = _segments(rows)
    return [sum(totals[start : start + segments]) for start in range(0, len(totals), segments)]


def _node_name(event: str) -> str:
    """`/model.0/conv/Conv_token_17:OpId_25 (cycles)` -> `/model.0/conv/Conv`."""
    return re.sub(r"(_token_\d+)?(:OpId_\d+| OpId_\d+)? \(cycles\)$", "", event)


def _segments(rows: Sequence[tuple[str, str, int]]) -> int:
    """Segments of a plan: executions until the nodes of the first one come again."""
    groups: list[list[str]] = []
    for level, event, _ in rows:
        if event == CYCLES_EVENT:
            groups.append([])
        elif level == "NODE" and groups:
            groups[-1].append(event)
    for number, group in enumerate(groups[1:], 1):
        if group == groups[0]:
            return number
    return max(1, len(groups))


def _median_per_run(values: list[int], runs: int) -> int:
    share = max(1, len(values) // runs)
    return int(statistics.median(sum(values[i : i + share]) for i in range(0, len(values), share)))


def _float_ops(by_node: dict[str, int], model: ModelProto, host: Collection[str]) -> Iterable[str]:
    """Q and DQ nodes with cycles of their own: the op behind them runs in float.

    A Q right behind a DQ only changes the width (8 to 16 bits and back): no float op. At the graph's own edge a DQ or Q
    is a float input or output, which is no float op either.
    """
    index = Index(model)
    for node in model.graph.node:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or not by_node.get(node.name):
            continue
        if node.op_type == "DequantizeLinear":
            readers = index.consumers.get(node.output[0], [])
            others = [r for r in readers if r.op_type != "QuantizeLinear" and r.name not in host]
            if others:
                yield f"{others[0].name} ({others[0].op_type})"
        else:
            maker = index.producer.get(node.input[0])
            if maker is not None and maker.op_type != "DequantizeLinear" and maker.name not in host:
                yield f"{maker.name} ({maker.op_type})"


def _fused(by_node: dict[str, int], model: ModelProto) -> dict[str, int]:
    """Activations that cost nothing because their neighbour does their work, by kind; SiLU counts as one."""
    index = Index(model)
    counts = Counter[str]()
    for node in model.graph.node:
        if node.op_type in FUSIBLE and by_node.get(node.name) == 0:
            counts["SiLU" if node.op_type == "Sigmoid" and _is_silu(index, node) else node.op_type] += 1
    return dict(sorted(counts.items()))


def _is_silu(index: Index, sigmoid: NodeProto) -> bool:
    def after_qdq(tensor: str) -> list[NodeProto]:
        readers = index.consumers.get(tensor, [])
        return [
            far
            for reader in readers
            for far in (
                after_qdq(reader.output[0]) if reader.op_type in ("QuantizeLinear", "DequantizeLinear") else [reader]
            )
        ]

    return any(reader.op_type == "Mul" for reader in after_qdq(sigmoid.output[0]))


@dataclass(frozen=True, slots=True)
class Crossings:
    """What passes between NPU and host inside a compiled plan, a frame."""

    segments: int
    count: int
    size_bytes: int


def count_crossings(plan: ModelProto) -> Crossings:
    """Counts the NPU segments of a compiled plan and the tensors between them and host nodes."""
    index = Index(plan)
    contexts = [node for node in plan.graph.node if node.op_type == "EPContext"]
    crossing: set[str] = set()
    for node in contexts:
        crossing |= {
            name for name in node.input if name in index.producer and index.producer[name].op_type != "EPContext"
        }
        crossing |= {
            name for name in node.output if any(r.op_type != "EPContext" for r in index.consumers.get(name, []))
        }
    return Crossings(len(contexts), len(crossing), sum(tensor_bytes(index, name) for name in crossing))


def tensor_bytes(index: Index, tensor: str) -> int:
    """Bytes of a tensor whose type and static shape are known; else 0."""
    kind, shape = index.types.get(tensor), index.shape(tensor)
    if kind is None or shape is None:
        return 0
    return int(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)).itemsize) * math.prod(shape)


def io_bytes(model: ModelProto) -> int:
    """Bytes of a model's inputs and outputs."""
    index = Index(model)
    return sum(tensor_bytes(index, info.name) for info in (*model.graph.input, *model.graph.output))


def compiler_version(plan: ModelProto) -> str:
    """QAIRT version that a compiled plan names."""
    for node in plan.graph.node:
        for attribute in node.attribute:
            if attribute.name == "ep_sdk_version":
                return str(attribute.s.decode())
    return ""
