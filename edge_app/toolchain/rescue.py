"""What brings accuracy back at no cost at run time: clipped ranges, bias correction, cross-layer equalisation.

Bias correction and equalisation are those of Nagel et al., "Data-Free Quantization Through Weight Equalization and
Bias Correction" (ICCV 2019); the bias is corrected empirically, from the calibration pictures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import ModelProto, NodeProto, helper, numpy_helper

from edge_app.config.tensor import InputSpec
from edge_app.toolchain.calibration import Ranges, Step, tensors
from edge_app.toolchain.graph import Index, keep

Weights = npt.NDArray[np.float32]
HOMOGENEOUS = frozenset({"Relu", "LeakyRelu", "PRelu"})
"""f(s x) = s f(x) for s > 0: a channel's scale can be moved through these."""


def clip_before_silu(model: ModelProto, ranges: Ranges, bits: int = 8) -> Ranges:
    """Ranges in which what goes into a SiLU does not reach further down than can be seen in what comes out.

    SiLU(x) = x * sigmoid(x) is all but 0 for low x. Steps spent there are lost, so the range ends where SiLU is within
    half a step of the output's own encoding of 0.
    """
    index = Index(model)
    result = dict(ranges)
    for node in model.graph.node:
        if node.op_type != "Sigmoid" or node.input[0] not in ranges:
            continue
        source = node.input[0]
        readers = index.consumers[source]
        products = [reader for reader in readers if reader.op_type == "Mul" and node.output[0] in reader.input]
        if len(readers) != 2 or len(products) != 1 or products[0].output[0] not in ranges or source in index.outputs:
            continue
        low, high = ranges[products[0].output[0]]
        half_step = (high - min(low, 0.0)) / (2**bits - 1) / 2
        result[source] = (max(ranges[source][0], -_silu_reaches(half_step)), ranges[source][1])
    return result


def _silu_reaches(value: float) -> float:
    """The largest x > 1.28 with x * sigmoid(-x) >= value; SiLU falls below -1.28 all the way, so by bisection."""
    low, high = 1.2785, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        if middle / (1 + np.exp(middle)) >= value:
            low = middle
        else:
            high = middle
    return high


def quantized_weight(weight: Weights, axis: int = 0) -> Weights:
    """A weight as int8 keeps it: symmetric, a scale for each output channel."""
    other = tuple(d for d in range(weight.ndim) if d != axis)
    scale = np.maximum(np.abs(weight).max(axis=other, keepdims=True), 1e-12) / 127
    return np.asarray(np.clip(np.rint(weight / scale), -127, 127) * scale, np.float32)


def correct_biases(
    model: ModelProto, files: Sequence[Path], image: InputSpec, step: Step = lambda _done, _of: None
) -> tuple[ModelProto, int]:
    """Takes the mean error that int8 weights bring to each conv's output off the conv's bias.

    One pass over the pictures: next to each conv runs one with the weight's rounding error alone, and its mean per
    channel is what the bias is corrected by. Inputs are the float model's, so no layer corrects another's error.

    Returns:
        The model with corrected biases, and how many convs were corrected.
    """
    convs = list(_convs_with_bias(model))
    probe = ModelProto()
    probe.CopyFrom(model)
    del probe.graph.output[:]
    for number, (node, weight, _) in enumerate(convs):
        error = f"probe{number}"
        probe.graph.initializer.append(numpy_helper.from_array(weight - quantized_weight(weight), f"{error}_w"))
        twin = NodeProto()
        twin.CopyFrom(node)
        twin.name = error
        del twin.input[:], twin.output[:]
        twin.input.extend([node.input[0], f"{error}_w"])
        twin.output.append(f"{error}_y")
        axes = numpy_helper.from_array(np.array([0, 2, 3], np.int64), f"{error}_axes")
        probe.graph.initializer.append(axes)
        mean = helper.make_node("ReduceMean", [f"{error}_y", axes.name], [f"{error}_mean"], keepdims=0)
        probe.graph.node.extend([twin, mean])
        probe.graph.output.append(helper.make_tensor_value_info(f"{error}_mean", onnx.TensorProto.FLOAT, None))
    sums: list[Weights] = [np.zeros(len(bias), np.float32) for _, _, bias in convs]
    session = ort.InferenceSession(probe.SerializeToString(), _plain_options(), providers=["CPUExecutionProvider"])
    for done, data in enumerate(tensors(files, image), 1):
        for total, mean_error in zip(sums, session.run(None, {image.name: data}), strict=True):
            total += mean_error
        step(done, len(files))
    result = ModelProto()
    result.CopyFrom(model)
    for (node, _, bias), total in zip(convs, sums, strict=True):
        replace_constant(result, node.input[2], bias + total / len(files))
    return result, len(convs)


def equalise(model: ModelProto) -> tuple[ModelProto, int]:
    """Cross-layer equalisation of conv pairs with a homogeneous activation (or none) between them.

    Scales each middle channel so that both convs' weights of it span the same range; the float model computes the
    same. With one scale per output channel the first conv gains nothing, but the tensor between them, which has one
    scale for all channels, does.

    Returns:
        The model, and how many pairs were equalised.
    """
    result = ModelProto()
    result.CopyFrom(model)
    index = Index(result)
    pairs = 0
    for first, second in _pairs(index):
        w1, w2 = _constant(index, first.input[1]), _constant(index, second.input[1])
        bias = _constant(index, first.input[2]) if len(first.input) > 2 else None
        range1 = np.abs(w1).reshape(len(w1), -1).max(axis=1)
        range2 = np.abs(w2).transpose(1, 0, 2, 3).reshape(w2.shape[1], -1).max(axis=1)
        scale = np.where(
            (range1 > 0) & (range2 > 0), np.sqrt(np.maximum(range1 * range2, 1e-20)) / np.maximum(range2, 1e-10), 1
        )
        scale = np.clip(scale, 1e-2, 1e2).astype(np.float32)
        replace_constant(result, first.input[1], w1 / scale[:, None, None, None])
        replace_constant(result, second.input[1], w2 * scale[None, :, None, None])
        if bias is not None:
            replace_constant(result, first.input[2], bias / scale)
        index = Index(result)
        pairs += 1
    return result, pairs


def replace_constant(model: ModelProto, name: str, value: npt.NDArray[np.floating]) -> None:
    """Gives an initializer another value."""
    keep(model.graph.initializer, lambda tensor: tensor.name != name)
    model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value, np.float32), name))


def changed_biases(before: ModelProto, after: ModelProto) -> dict[str, list[float]]:
    """The constants of a corrected model that differ, as plain numbers (float32 values survive JSON exactly)."""
    old = {tensor.name: tensor for tensor in before.graph.initializer}
    return {
        tensor.name: [float(value) for value in numpy_helper.to_array(tensor)]
        for tensor in after.graph.initializer
        if len(tensor.dims) == 1
        and numpy_helper.to_array(tensor).tobytes() != numpy_helper.to_array(old[tensor.name]).tobytes()
    }


def as_float32(values: Sequence[float]) -> Weights:
    """The other way round."""
    return np.array(values, np.float32)


def _convs_with_bias(model: ModelProto) -> Iterator[tuple[NodeProto, Weights, Weights]]:
    index = Index(model)
    for node in model.graph.node:
        if node.op_type == "Conv" and len(node.input) == 3 and node.input[1] in index.initializers:
            weight = _constant(index, node.input[1])
            if weight.ndim == 4 and node.input[2] in index.initializers:
                yield node, weight, _constant(index, node.input[2])


def _pairs(index: Index) -> list[tuple[NodeProto, NodeProto]]:
    """(conv, conv) where the first one's result goes to the second alone, unsplit, ungrouped."""
    found = []
    for node in index.model.graph.node:
        if node.op_type != "Conv" or node.output[0] in index.outputs or not _plain_conv(index, node):
            continue
        readers = index.consumers.get(node.output[0], [])
        if len(readers) == 1 and readers[0].op_type in HOMOGENEOUS and readers[0].output[0] not in index.outputs:
            readers = index.consumers.get(readers[0].output[0], [])
        if len(readers) == 1 and readers[0].op_type == "Conv" and _plain_conv(index, readers[0]):
            found.append((node, readers[0]))
    return found


def _plain_conv(index: Index, node: NodeProto) -> bool:
    groups = next((a.i for a in node.attribute if a.name == "group"), 1)
    return groups == 1 and node.input[1] in index.initializers and len(index.initializers[node.input[1]].dims) == 4


def _constant(index: Index, name: str) -> Weights:
    return np.asarray(numpy_helper.to_array(index.initializers[name]), np.float32)


def _plain_options() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return options
