"""Readying a QDQ model for a split between NPU and CPU."""

from __future__ import annotations

from collections.abc import Collection

from onnx import ModelProto

from edge_app.toolchain.graph import Index, drop_dead


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
