from __future__ import annotations

import numpy as np
import onnx
import pytest
import toys

from edge_app.toolchain import audit
from edge_app.toolchain.partition import conversions_on_host, edges_can_be_pinned

CYCLES = 1000


def chain(*kinds: str, conversions: int, quantised: bool = True) -> onnx.ModelProto:
    """Ops in a row, each between Q and DQ of 8 bits; behind the op number `conversions` the value is widened to 16."""
    g = toys.Graph(0)
    tensor = "images"

    def through(tensor: str, name: str, bits: int) -> str:
        zero = g.constant(f"{name}.zero", 0, {8: np.uint8, 16: np.uint16}[bits])
        quantised = g.node("QuantizeLinear", f"{name}.q", [tensor, g.constant(f"{name}.scale", 0.01), zero])
        return g.node("DequantizeLinear", f"{name}.dq", [quantised, f"{name}.scale", zero])

    tensor = through(tensor, "in", 8)
    for number, kind in enumerate(kinds):
        tensor = g.node(kind, f"{kind}{number}", [tensor])
        if quantised or number + 1 == len(kinds):
            tensor = through(tensor, f"{kind}{number}", 8)
        if number == conversions:
            tensor = through(tensor, "wide", 16)
    return g.model([1, 1, 2, 2], tensor, [1, 1, 2, 2], opset=21)


@pytest.mark.parametrize(
    ("model", "host_ops", "can"),
    [
        (chain("Relu", "Sigmoid", "Relu", conversions=9), ["Sigmoid"], True),
        (chain("Relu", "Sigmoid", "Relu", conversions=1), ["Sigmoid"], True),  # behind the host op
        (chain("Relu", "Sigmoid", "Relu", conversions=0), ["Sigmoid"], True),  # before it
        (chain("Relu", "Abs", "Sigmoid", conversions=0), ["Sigmoid"], False),  # between two NPU ops
        (chain("Relu", "Abs", "Sigmoid", conversions=9, quantised=False), ["Sigmoid"], False),  # in float on the NPU
    ],
)
def test_edges_are_pinned_where_all_of_them_are_at_crossings(
    model: onnx.ModelProto, host_ops: list[str], can: bool
) -> None:
    assert edges_can_be_pinned(model, host_ops) is can


def test_what_a_host_op_makes_is_quantised_once() -> None:
    model, moved = conversions_on_host(chain("Relu", "Sigmoid", "Relu", conversions=1), ["Sigmoid"])
    assert moved == 1
    quantizer = next(node for node in model.graph.node if node.op_type == "QuantizeLinear" and "wide" in node.name)
    assert quantizer.input[0] == "Sigmoid1_out"
    assert not any(node.name == "Sigmoid1.q" for node in model.graph.node)


def test_a_q_behind_a_host_op_is_no_float_op_of_the_npu() -> None:
    model = chain("Relu", "Sigmoid", "Relu", conversions=9)
    rows = [
        ("ROOT", audit.CYCLES_EVENT, CYCLES),
        ("NODE", "Sigmoid1.q (cycles)", CYCLES),
        ("NODE", "Relu2 (cycles)", CYCLES),
    ]
    assert audit.read_profile(rows, model).float_ops == ("Sigmoid1 (Sigmoid)",)
    assert audit.read_profile(rows, model, {"Sigmoid1"}).float_ops == ()
    rows[1] = ("NODE", "Relu0.dq (cycles)", CYCLES)
    assert audit.read_profile(rows, model).float_ops == ("Sigmoid1 (Sigmoid)",)
    assert audit.read_profile(rows, model, {"Sigmoid1"}).float_ops == ()
    rows[1] = ("NODE", "Relu2.q (cycles)", CYCLES)
    assert audit.read_profile(rows, model, {"Sigmoid1"}).float_ops == ("Relu2 (Relu)",)


