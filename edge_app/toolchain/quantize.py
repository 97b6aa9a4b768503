"""A float model and calibrated ranges make a QDQ model: the one source of all NPU plans.

Weights are int8, per output channel for convs, symmetric; activations are uint8 (A8) or uint16 (A16), by layer in a
mixed model. The quantised model takes and gives integers: the C kernel writes the input's bytes, the C decode reads
the outputs', and no Q or DQ is left for the host.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnx.version_converter
from onnx import ModelProto, NodeProto, numpy_helper
from onnxruntime.quantization import QuantType, quantize_static
from onnxruntime.quantization.calibrate import CalibrationMethod, TensorData, TensorsData, save_tensors_data
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config, qnn_preprocess_model

from edge_app.config.tensor import HeadSpec, InputSpec, OutputSpec
from edge_app.errors import ConfigError, ModelError
from edge_app.toolchain.calibration import Ranges, quiet
from edge_app.toolchain.graph import Index, drop_dead, inferred, name_nodes, opset, set_metadata, unshare_initializers
from edge_app.toolchain.heads import cut_head, cut_points

Activations = Literal["a8", "a16", "mixed"]
ACTIVATION_OPS = frozenset(
    {"Sigmoid", "Mul", "Relu", "LeakyRelu", "Clip", "HardSwish", "HardSigmoid", "Gelu", "Tanh", "Elu"}
)
COMPUTE_OPS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm"})


@dataclass(frozen=True, slots=True)
class Style:
    """Symmetry of each part: asymmetric activations use all 256 steps, symmetric ones a zero point in the middle."""

    activations_symmetric: bool = False
    weights_symmetric: bool = True

    @classmethod
    def parse(cls, text: str) -> Style:
        """Reads `activations=asymmetric,weights=symmetric`.

        Raises:
            ConfigError: another word.
        """
        values = {"activations": "asymmetric", "weights": "symmetric"}
        for part in filter(None, text.split(",")):
            name, _, value = part.strip().partition("=")
            if name not in values or value not in ("symmetric", "asymmetric"):
                raise ConfigError(
                    "not a quantisation style",
                    where=f"--style {text}",
                    got=part,
                    wanted="activations=symmetric|asymmetric,weights=symmetric|asymmetric",
                )
            values[name] = value
        return cls(values["activations"] == "symmetric", values["weights"] == "symmetric")

    def __str__(self) -> str:
        words = {True: "symmetric", False: "asymmetric"}
        return f"activations={words[self.activations_symmetric]},weights={words[self.weights_symmetric]}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A float model as the quantizer takes it: head cut, shapes inferred, every constant with one owner."""

    model: ModelProto
    head: HeadSpec
    image: InputSpec


@dataclass(frozen=True, slots=True)
class Recipe:
    """How precise each part is to be."""

    activations: Activations
    style: Style
    raised: tuple[str, ...] = ()
    """mixed: names of compute nodes that run, with their activation, at 16 bits."""
    equalised: bool = False
    """Cross-layer equalisation was applied to the float model first."""
    biases: dict[str, list[float]] = field(default_factory=dict)
    """Corrected biases, by initializer: they take the place of the float model's."""


def prepare(model: ModelProto, head: HeadSpec, image: InputSpec, where: str, *, cut: bool = True) -> Prepared:
    """Cuts the head off where that is wanted and known, and readies the graph for the quantizer."""
    whole = inferred(model, where)
    part = ModelProto()
    part.CopyFrom(whole)
    if cut and head.kind == "yolov8":
        branches = cut_points(whole, (image.height, image.width))
        if not branches:
            raise ModelError(
                "the YOLOv8 head can't be found in the graph, so it can't be cut off",
                where=where,
                remedy="export the model with Ultralytics' own exporter, or quantize with --no-cut",
            )
        part = cut_head(whole, branches)
        head = head.model_copy(update={"kind": "yolov8_cut"})
    set_metadata(part, {})  # onnxruntime's QNN preprocessing crashes on metadata; the manifest keeps it
    name_nodes(part)
    unshare_initializers(part)
    drop_dead(part)
    return Prepared(_preprocessed(inferred(_at_opset_of_16_bits(part), where)), head, image)


def _at_opset_of_16_bits(model: ModelProto) -> ModelProto:
    """From opset 21 on, Q and DQ of 16 bits are standard operators, whose shapes every tool can work out."""
    return model if opset(model) >= 21 else onnx.version_converter.convert_version(model, 21)


def _preprocessed(model: ModelProto) -> ModelProto:
    """onnxruntime's fusions for QNN (LayerNormalization and Gelu written out as small ops)."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        given, made = Path(folder, "given.onnx"), Path(folder, "made.onnx")
        onnx.save(model, given)
        result = onnx.load(made) if qnn_preprocess_model(given, made) else model
    name_nodes(result)
    unshare_initializers(result)
    return result


def compute_nodes(model: ModelProto) -> list[str]:
    """Names of the nodes that multiply: the layers of the sensitivity analysis, in graph order."""
    return [node.name for node in model.graph.node if node.op_type in COMPUTE_OPS]


def layer_tensors(index: Index, node: NodeProto) -> list[str]:
    """The tensors of a layer: what a compute node makes, and what the activation right behind it makes of that."""
    found = [node.output[0]]
    for tensor in found:
        found += [
            reader.output[0]
            for reader in index.consumers.get(tensor, [])
            if reader.op_type in ACTIVATION_OPS
            and reader.output[0] not in found
            and all(name in found for name in index.dynamic_inputs(reader))
        ]
    return found


def pixel_range(image: InputSpec) -> tuple[float, float]:
    """Lowest and highest value that a pixel can become."""
    ends = [
        (pixel * image.scale - mean) / std
        for pixel in (0, 255)
        for mean, std in zip(image.mean, image.std, strict=True)
    ]
    return min(*ends, 0.0), max(*ends, 0.0)


def quantized(prepared: Prepared, ranges: Ranges, recipe: Recipe, workdir: Path) -> ModelProto:
    """The QDQ model with float input and outputs; the same inputs give the same bytes."""
    model, image = prepared.model, prepared.image
    ranges = {**ranges, image.name: pixel_range(image)}
    overrides = dict(_overrides(prepared, recipe))
    default = QuantType.QUInt16 if recipe.activations == "a16" else QuantType.QUInt8
    source, target, cache = workdir / "float.onnx", workdir / "qdq.onnx", workdir / "ranges.json"
    onnx.save(model, source)
    save_tensors_data(TensorsData(CalibrationMethod.MinMax, {
        name: TensorData(lowest=np.float32(low), highest=np.float32(high)) for name, (low, high) in ranges.items()
    }), cache)  # fmt: skip
    with quiet():
        config = get_qnn_qdq_config(
            model,
            None,
            activation_type=default,
            weight_type=QuantType.QInt8,
            per_channel=True,
            init_overrides=overrides,
            activation_symmetric=recipe.style.activations_symmetric,
            weight_symmetric=recipe.style.weights_symmetric,
        )
        quantize_static(
            source,
            target,
            None,
            quant_format=config.quant_format,
            per_channel=config.per_channel,
            activation_type=config.activation_type,
            weight_type=config.weight_type,
            op_types_to_quantize=sorted(config.op_types_to_quantize),
            extra_options=config.extra_options,
            calibration_cache_path=cache,
        )
    result = onnx.load(target)
    name_nodes(result)
    return result


def _overrides(prepared: Prepared, recipe: Recipe) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for node in prepared.model.graph.node:
        if node.op_type == "LayerNormalization":
            # Of 16 bits like the activations, as onnxruntime would have it, the HTP does not take the scale.
            yield node.input[1], [{"quant_type": QuantType.QUInt8}]
    if recipe.activations == "a16":
        # A picture has 8 bits: it crosses to the NPU as bytes and is widened there.
        yield prepared.image.name, [{"quant_type": QuantType.QUInt8, "convert": {"quant_type": QuantType.QUInt16}}]
        return
    index = Index(prepared.model)
    for tensor in _tail_tensors(prepared, index):
        yield tensor, [{"quant_type": QuantType.QUInt16}]
    if recipe.activations == "a8":
        return
    by_name = {node.name: node for node in prepared.model.graph.node}
    if unknown := [name for name in recipe.raised if name not in by_name]:
        raise ConfigError("layers to raise that the model has not", got=", ".join(unknown))
    for tensor in _raised_tensors(index, [by_name[name] for name in recipe.raised]):
        yield tensor, [{"quant_type": QuantType.QUInt16}]


def _raised_tensors(index: Index, layers: list[NodeProto]) -> Iterator[str]:
    """Tensors of raised layers that stay at 16 bits for all who read them.

    A layer's last tensor is read by other layers: if one of those runs at 8 bits it is left out here, and
    onnxruntime's fixer puts the conversion behind the layer. Were it not, all its readers would be raised as well.
    """
    raised = {node.name for node in layers}
    inside = {tensor for node in layers for tensor in layer_tensors(index, node)}
    for node in layers:
        tensors = layer_tensors(index, node)
        for tensor in tensors:
            readers = index.consumers.get(tensor, [])
            own = [r for r in readers if r.name in raised or set(r.output) & inside]
            if len(own) == len(readers) or len(tensors) == 1:
                yield tensor


def _tail_tensors(prepared: Prepared, index: Index) -> list[str]:
    """Detectors whose head stays in the graph: all that lies behind the last convs, their results included.

    There, boxes and scores meet under one scale: 16 bits keep both, and so little is computed there that it is cheap.
    """
    if prepared.head.kind in ("yolov8_cut", "classify"):
        return []
    found: dict[str, None] = {}
    waiting = [output.name for output in prepared.model.graph.output]
    while waiting:
        tensor = waiting.pop()
        node = index.producer.get(tensor)
        if node is None or tensor in found:
            continue
        found[tensor] = None
        if node.op_type not in COMPUTE_OPS:
            waiting.extend(index.dynamic_inputs(node))
    return list(found)


def with_integer_io(
    model: ModelProto, image: InputSpec, *, nhwc: bool = True, integer_outputs: bool = True
) -> tuple[ModelProto, InputSpec, tuple[OutputSpec, ...]]:
    """Drops the Q of the input and the DQ of the outputs, so that integers cross between host and NPU.

    Args:
        model: QDQ with float input and outputs.
        image: the float input.
        integer_outputs: also for the outputs; the C decode takes integers from cut heads and classifiers only.
        nhwc: take the picture as NHWC, the HTP's own layout: saves a transpose of it (9 of 350 M cycles measured).

    Returns:
        The model, and what its input and outputs are now.
    """
    result = ModelProto()
    result.CopyFrom(model)
    graph, index = result.graph, Index(result)
    readers = index.consumers.get(image.name, [])
    if len(readers) != 1 or readers[0].op_type != "QuantizeLinear":
        raise ModelError("the picture is not quantised where it enters", got=f"read by {[n.op_type for n in readers]}")
    entry = readers[0]
    scale, zero = _encoding(index, entry)
    turn = nhwc and image.layout == "NCHW"
    for node in index.consumers[entry.output[0]]:
        for position, name in enumerate(node.input):
            if name == entry.output[0]:
                node.input[position] = f"{image.name}_nchw" if turn else image.name
    graph.node.remove(entry)
    info = next(i for i in graph.input if i.name == image.name)
    info.type.tensor_type.elem_type = index.initializers[entry.input[2]].data_type
    if turn:
        turning = onnx.helper.make_node(
            "Transpose", [image.name], [f"{image.name}_nchw"], "input_nhwc", perm=[0, 3, 1, 2]
        )
        graph.node.insert(0, turning)
        for dim, size in zip(
            info.type.tensor_type.shape.dim, (1, image.height, image.width, _channels(image)), strict=True
        ):
            dim.dim_value = size
    outputs = tuple(_integer_output(result, index, output, integer_outputs) for output in graph.output)
    drop_dead(result)
    dtype: Literal["uint8", "uint16"] = "uint8" if isinstance(zero, np.uint8) else "uint16"
    spec = image.model_copy(update={
        "dtype": dtype, "layout": "NHWC" if turn else image.layout, "quant_scale": float(scale),
        "quant_zero_point": int(zero),
    })  # fmt: skip
    return result, spec, outputs


def _integer_output(model: ModelProto, index: Index, output: onnx.ValueInfoProto, wanted: bool) -> OutputSpec:
    last = index.producer[output.name]
    shape = index.shape(output.name)
    if not wanted or last.op_type != "DequantizeLinear" or shape is None:
        return OutputSpec(name=output.name, shape=shape or (), dtype="float32")
    scale, zero = _encoding(index, last)
    source = index.producer[last.input[0]]
    others = [node for node in index.consumers[last.input[0]] if node is not last]
    for node in (source, *others):
        names = node.output if node is source else node.input
        for position, name in enumerate(names):
            if name == last.input[0]:
                names[position] = output.name
    model.graph.node.remove(last)
    output.type.tensor_type.elem_type = index.initializers[last.input[2]].data_type
    dtype: Literal["uint8", "uint16"] = "uint8" if isinstance(zero, np.uint8) else "uint16"
    return OutputSpec(name=output.name, shape=shape, dtype=dtype, quant_scale=float(scale), quant_zero_point=int(zero))


def _encoding(index: Index, node: NodeProto) -> tuple[np.float32, np.uint8 | np.uint16]:
    scale = numpy_helper.to_array(index.initializers[node.input[1]]).reshape(-1)
    zero = numpy_helper.to_array(index.initializers[node.input[2]]).reshape(-1)
    return scale[0], zero[0]


def _channels(image: InputSpec) -> int:
    return 1 if image.color == "GRAY" else 3


def encodings_document(ranges: Ranges, recipe: Recipe, tensors: Iterable[str]) -> dict[str, Any]:
    """What is committed instead of the pictures: with it and the float model, the same QDQ model is made again."""
    wanted = set(tensors)
    return {
        "format": 1,
        "activations": recipe.activations,
        "style": str(recipe.style),
        "raised": list(recipe.raised),
        "equalised": recipe.equalised,
        "biases": recipe.biases,
        "ranges": {name: [low, high] for name, (low, high) in sorted(ranges.items()) if name in wanted},
    }


def read_encodings(document: dict[str, Any], where: str) -> tuple[Ranges, Recipe]:
    """Ranges and recipe of an encodings file.

    Raises:
        ConfigError: not such a file.
    """
    try:
        if document["format"] != 1:
            raise ValueError(f"format {document['format']}, wanted 1")
        ranges = {name: (float(low), float(high)) for name, (low, high) in document["ranges"].items()}
        return ranges, Recipe(
            document["activations"],
            Style.parse(document["style"]),
            tuple(document["raised"]),
            bool(document["equalised"]),
            dict(document["biases"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError("not an encodings file", where=where, got=str(error)) from error
