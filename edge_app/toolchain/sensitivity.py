"""Which layers lose accuracy at 8 bits, and how few of them at 16 bits are enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from edge_app.toolchain.audit import macs_of
from edge_app.toolchain.calibration import Ranges
from edge_app.toolchain.graph import Index
from edge_app.toolchain.measure import Sample, Step, noise_to_signal, run_cpu
from edge_app.toolchain.quantize import Prepared, compute_nodes, layer_tensors
from edge_app.toolchain.rescue import quantized_weight, replace_constant

LEAST_SHARE = 0.002
"""MACs of a layer count as at least this share, so that tiny layers do not all look free."""


@dataclass(frozen=True, slots=True)
class LayerError:
    """What one layer at 8 bits alone does to the outputs."""

    layer: str
    error: float
    """Noise to signal of the outputs."""
    mac_share: float

    @property
    def worth(self) -> float:
        """Error removed per cost added by raising this layer to 16 bits."""
        return self.error / max(self.mac_share, LEAST_SHARE)


def layer_errors(
    prepared: Prepared, ranges: Ranges, samples: Sequence[Sample], step: Step = lambda _done, _of: None
) -> list[LayerError]:
    """The error that each layer brings alone, all others in float; in graph order."""
    index = Index(prepared.model)
    by_name = {node.name: node for node in prepared.model.graph.node}
    layers = [by_name[name] for name in compute_nodes(prepared.model)]
    total = sum(macs_of(index, node) for node in layers) or 1
    wanted = run_cpu(prepared.model.SerializeToString(), prepared.image, samples)
    result = []
    for done, node in enumerate(layers, 1):
        model = with_one_layer_quantized(prepared.model, index, node, ranges)
        measured = run_cpu(model.SerializeToString(), prepared.image, samples)
        result.append(LayerError(node.name, noise_to_signal(measured, wanted), macs_of(index, node) / total))
        step(done, len(layers))
    return result


def with_one_layer_quantized(model: ModelProto, index: Index, node: NodeProto, ranges: Ranges) -> ModelProto:
    """The float model with int8 weights and 8-bit activations in one layer."""
    result = with_tensors_quantized(model, layer_tensors(index, node), ranges)
    if node.op_type == "Conv" and len(node.input) > 1 and node.input[1] in index.initializers:
        weight = np.asarray(numpy_helper.to_array(index.initializers[node.input[1]]), np.float32)
        replace_constant(result, node.input[1], quantized_weight(weight))
    return result


def with_tensors_quantized(model: ModelProto, tensors: Sequence[str], ranges: Ranges) -> ModelProto:
    """The float model with 8 bits left of some tensors."""
    result = ModelProto()
    result.CopyFrom(model)
    for tensor in tensors:
        if tensor in ranges:
            _fake_quantize(result, tensor, *ranges[tensor])
    return result


def _fake_quantize(model: ModelProto, tensor: str, low: float, high: float) -> None:
    """Puts Q and DQ behind a tensor; its readers (and the graph's output) get what 8 bits leave of it."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = max(high - low, 1e-4) / 255
    zero = int(np.clip(round(-low / scale), 0, 255))
    exact = f"{tensor}_exact"
    for position, node in enumerate(model.graph.node):
        if tensor in node.output:
            node.output[list(node.output).index(tensor)] = exact
            at = position + 1
            break
    else:
        return
    model.graph.initializer.append(numpy_helper.from_array(np.array(scale, np.float32), f"{tensor}_s"))
    model.graph.initializer.append(helper.make_tensor(f"{tensor}_z", TensorProto.UINT8, [], [zero]))
    encoding = [f"{tensor}_s", f"{tensor}_z"]
    model.graph.node.insert(at, helper.make_node("QuantizeLinear", [exact, *encoding], [f"{tensor}_q"]))
    model.graph.node.insert(at + 1, helper.make_node("DequantizeLinear", [f"{tensor}_q", *encoding], [tensor]))


@dataclass(frozen=True, slots=True)
class Tried:
    """A set of raised layers, and the loss that was left with it."""

    raised: tuple[str, ...]
    loss: float


def fewest_raised(
    errors: Sequence[LayerError], loss_of: Callable[[tuple[str, ...]], float], target: float
) -> list[Tried]:
    """Raises layers, those first that are worth it most, until the loss is within the target.

    Doubles the number until it suffices, then halves the step back. The loss is measured at each try, since the
    errors of layers do not add up.

    Args:
        errors: of `layer_errors`.
        loss_of: loss in the task's metric with these layers at 16 bits.
        target: the most loss that is accepted.

    Returns:
        All tries, in order. The last one that is within the target has the fewest layers; if none is, the model
        needs A16 throughout, or a rescue.
    """
    order = [error.layer for error in sorted(errors, key=lambda e: -e.worth)]
    tries: list[Tried] = []

    def within(count: int) -> bool:
        raised = tuple(order[:count])
        tries.append(Tried(raised, loss_of(raised)))
        return tries[-1].loss <= target

    low, high = -1, 0
    while not within(high):
        if high == len(order):
            return tries
        low, high = high, min(len(order), max(1, high * 2))
    while high - low > max(1, high // 8):
        middle = (low + high) // 2
        low, high = (low, middle) if within(middle) else (middle, high)
    if tries[-1].loss > target:
        tries.append(next(t for t in reversed(tries) if len(t.raised) == high))
    return tries
