"""Where a rung's error begins: every layer's result on that rung beside the float model's, in order."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto

from edge_app.toolchain import htp, measure
from edge_app.toolchain.calibration import tensor
from edge_app.toolchain.graph import Index
from edge_app.toolchain.measure import Sample
from edge_app.toolchain.quantize import compute_nodes, layer_tensors
from edge_app.toolchain.socs import Soc

STEEP = 0.01
"""A layer whose cosine falls by this much against the best before it is where the drift starts."""


@dataclass(frozen=True, slots=True)
class LayerDrift:
    """One layer's result: cosine to the float model's, mean over pictures."""

    layer: str
    cosine: float


def drift_by_layer(
    float_model: ModelProto,
    qdq: ModelProto,
    side: measure.Side,
    float_image: measure.Side,
    samples: Sequence[Sample],
    soc: Soc | None,
) -> list[LayerDrift]:
    """Cosine of each layer to the float model's, in graph order.

    Args:
        float_model: as it was quantised (head cut), with inferred shapes.
        qdq: made from it.
        side: how `qdq` takes pictures.
        float_image: how the float model does.
        samples: a few pictures.
        soc: on the HTP of this SoC; None: on the CPU. Extra outputs keep the HTP from fusing across them, so what
            fusion itself adds is not seen here.
    """
    pairs = layer_pairs(float_model, qdq)
    wide_float = with_outputs(float_model, [a for _, a, _ in pairs])
    wide_qdq = with_outputs(qdq, [b for _, _, b in pairs])
    skip_float, skip_qdq = len(float_model.graph.output), len(qdq.graph.output)
    sums = np.zeros(len(pairs))
    for sample in samples:
        wanted = measure.run_cpu(wide_float.SerializeToString(), float_image.image, [sample])[0][skip_float:]
        got = _run(wide_qdq, side, sample, soc)[skip_qdq:]
        sums += measure.cosine(got, wanted)
    return [LayerDrift(name, float(total / len(samples))) for (name, _, _), total in zip(pairs, sums, strict=True)]


def drift_start(layers: Sequence[LayerDrift]) -> str | None:
    """The layer where the cosine first falls steeply; None if it falls nowhere."""
    best = 1.0
    for layer in layers:
        if layer.cosine < best - STEEP:
            return f"{layer.layer} (cosine {layer.cosine:.4f})"
        best = min(best, layer.cosine)
    return None


def layer_pairs(float_model: ModelProto, qdq: ModelProto) -> list[tuple[str, str, str]]:
    """(layer, its tensor in the float model, the same dequantised in the QDQ model), for layers found in both."""
    index, other = Index(float_model), Index(qdq)
    by_name = {node.name: node for node in float_model.graph.node}
    found = []
    for name in compute_nodes(float_model):
        last = layer_tensors(index, by_name[name])[-1]
        dequantised = next(
            (n.output[0] for n in qdq.graph.node
             if n.op_type == "DequantizeLinear" and _is_of(last, n.output[0]) and n.input[0] in other.producer),
            None,
        )  # fmt: skip
        if dequantised is not None:
            found.append((name, last, dequantised))
    return found


def _is_of(tensor: str, dequantised: str) -> bool:
    """Whether onnxruntime's quantiser named it after this tensor, not after one whose name only begins alike."""
    ends = ("_DequantizeLinear", "_convert_DequantizeLinear")  # the latter where the encoding changes
    return dequantised == tensor or dequantised.startswith(tuple(f"{tensor}{end}" for end in ends))


def with_outputs(model: ModelProto, tensors: Sequence[str]) -> ModelProto:
    """The model with further outputs, float32."""
    result = ModelProto()
    result.CopyFrom(model)
    index = Index(model)
    for name in tensors:
        if name not in index.outputs:
            result.graph.output.append(
                onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, index.shape(name))
            )
    return result


def _run(model: ModelProto, side: measure.Side, sample: Sample, soc: Soc | None) -> measure.Outputs:
    if soc is None:
        return measure.run_cpu(model.SerializeToString(), side.image, [sample])[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(model, folder / "wide.onnx")
        np.save(folder / "in.npy", tensor(sample.picture, side.image)[0])
        htp.run_plan(folder / "wide.onnx", soc, [folder / "in.npy"], [folder / "out.npz"])
        with np.load(folder / "out.npz") as arrays:
            return tuple(arrays[f"o{number}"] for number in range(len(arrays.files)))
