"""Readying a QDQ model for a split between NPU and CPU."""

from __future__ import annotations

from collections.abc import Collection

from onnx import ModelProto, NodeProto

from edge_app.toolchain.graph import Index, drop_dead
from edge_app.toolchain.remake import EDGES


def conversions_on_host(model: ModelProto, host_ops: Collection[str]) -> tuple[ModelProto, int]:
    """Lets what a host op makes be quantised once, to the width that is read.

    In a mixed model a tensor may be quantised to 8 bits and then widened (Q, DQ, Q). Behind a host op the widening
    would stand alone at the edge of an NPU segment, where the HTP refuses it (QNN_COMMON_ERROR_MEM_ALLOC, measured).
    The host has the value in float, so it quantises that straight to the width that is wanted: nothing is lost.

    Returns:
        The model, and how many conversions were moved.
    """
    result = ModelProto()
    result.CopyFrom(model)
    index = Index(result)
    moved = 0
    for node in result.graph.node:
        if node.op_type != "QuantizeLinear":
            continue
        widened = index.producer.get(node.input[0])
        first = None if widened is None else index.producer.get(widened.input[0])
        if (
            widened is None
            or first is None
            or widened.op_type != "DequantizeLinear"
            or first.op_type != "QuantizeLinear"
        ):
            continue
        maker = index.producer.get(first.input[0])
        if maker is not None and maker.op_type in host_ops:
            node.input[0] = first.input[0]
            moved += 1
    if moved:
        drop_dead(result)
    return result, moved


def edges_can_be_pinned(model: ModelProto, host_ops: Collection[str]) -> bool:
    """Whether every Q and DQ that stands alone is at a crossing, so that all of them may be sent to the CPU.

    A Q, an op and a DQ of one width go to one side together, and bytes cross. Where a host op takes 8 bits and gives
    16, each of the three stands alone: the HTP takes the Q and the DQ, float32 crosses, and the HTP quantises it (in
    the hybrid plan of pcb-defect: 22.5 instead of 13.7 MB a frame). Pinning Q and DQ as kinds of op keeps
    them with the host op. It must not be done where one stands alone between two NPU ops: each such would be a way to
    the host and back.
    """
    index = Index(model)
    return all(
        _at_crossing(index, node, host_ops) if node.op_type == "QuantizeLinear" else _is_quantised(index, node)
        for node in model.graph.node
        if node.op_type not in host_ops and node.op_type != "DequantizeLinear"
    )


def _at_crossing(index: Index, quantize: NodeProto, host_ops: Collection[str]) -> bool:
    """A Q right behind a DQ changes the width: true if what makes or what reads the value is not on the NPU."""
    entry = index.producer.get(quantize.input[0])
    if entry is None or entry.op_type != "DequantizeLinear":
        return True
    before = index.producer.get(entry.input[0])
    maker = None if before is None else index.producer.get(before.input[0])
    readers = [
        reader
        for exit_ in index.consumers.get(quantize.output[0], [])
        for reader in index.consumers.get(exit_.output[0], [])
    ]
    return maker is None or maker.op_type in host_ops or all(reader.op_type in host_ops for reader in readers)


def _is_quantised(index: Index, node: NodeProto) -> bool:
    """Whether all that an NPU op makes is quantised at once, or leaves the graph."""
    readers = [reader for name in node.output for reader in index.consumers.get(name, [])]
    return all(reader.op_type in EDGES for reader in readers)
