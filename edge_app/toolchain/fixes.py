"""What import changes in a model's graph so that it can be quantised and compiled; each says what it fixed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx
import onnx.version_converter
import onnxruntime as ort
from onnx import ModelProto, TensorProto

from edge_app.errors import ModelError
from edge_app.toolchain import graph
from edge_app.toolchain.described import Given, size_in

OPSETS = range(13, 22)
"""13 is the first with per-channel DequantizeLinear; past 21, onnxruntime's quantizer is untested."""
TARGET_OPSET = 17


def made_static(model: ModelProto, given: Given, metadata: dict[str, str], fixes: list[str], where: str) -> ModelProto:
    """Batch of one, and the size that the caller or the exporter names where it was left open."""
    result = ModelProto()
    result.CopyFrom(model)
    info = graph.image_input(result, where)
    dims = info.type.tensor_type.shape.dim
    if len(dims) != 4:
        raise ModelError(
            "the input is no picture",
            where=where,
            wanted="[1, 3, H, W] or [1, H, W, 3]",
            got=str([d.dim_value or d.dim_param for d in dims]),
        )
    before = [d.dim_value or d.dim_param or "?" for d in dims]
    if dims[0].dim_value != 1:
        dims[0].dim_value = 1
    nhwc = dims[3].dim_value in (1, 3) and dims[1].dim_value not in (1, 3)
    height, width = (1, 2) if nhwc else (2, 3)
    if not dims[1 if not nhwc else 3].dim_value:
        dims[1].dim_value = 3
    size = given.size or size_in(metadata)
    for place, side in ((height, 1), (width, 0)):
        if not dims[place].dim_value:
            if size is None:
                raise ModelError(
                    "the model leaves its input size open",
                    where=where,
                    wanted="static shapes",
                    got=str(before),
                    remedy="say which: --size 640x640",
                )
            dims[place].dim_value = size[side]
    after = [d.dim_value for d in dims]
    if after == before:
        return result
    fixes.append(f"input shape {before} made static: {after}")
    del result.graph.value_info[:]
    for output in result.graph.output:
        output.type.tensor_type.ClearField("shape")
    return result


def with_float_input(model: ModelProto, fixes: list[str], where: str) -> ModelProto:
    """A uint8 input with a Cast behind it becomes a float input: the C kernel writes what the model wants."""
    info = graph.image_input(model, where)
    kind = info.type.tensor_type.elem_type
    if kind == TensorProto.FLOAT:
        return model
    readers = graph.Index(model).consumers.get(info.name, [])
    casts = [node for node in readers if node.op_type == "Cast" and graph.attribute(node, "to") == TensorProto.FLOAT]
    if kind != TensorProto.UINT8 or len(casts) != len(readers):
        raise ModelError(
            "the input has a type that can't be fed",
            where=where,
            wanted="float32, or uint8 that is cast to float",
            got=TensorProto.DataType.Name(kind),
            remedy="export the model in float32",
        )
    for cast in casts:
        graph.rename_tensor(model, cast.output[0], info.name)
        model.graph.node.remove(cast)
    info.type.tensor_type.elem_type = TensorProto.FLOAT
    fixes.append("uint8 input made float (its Cast removed); pixels go in as 0..255")
    return model


def at_known_opset(model: ModelProto, fixes: list[str], where: str) -> ModelProto:
    """An opset that the quantizer knows."""
    version = graph.opset(model)
    if version in OPSETS:
        return model
    try:
        converted = onnx.version_converter.convert_version(model, TARGET_OPSET)
    except Exception as error:  # the converter raises RuntimeError and ValueError alike
        raise ModelError(
            f"opset {version} can't be brought to {TARGET_OPSET}",
            where=where,
            got=str(error)[:300],
            remedy=f"export the model with opset {TARGET_OPSET}",
        ) from error
    fixes.append(f"opset {version} brought to {TARGET_OPSET}")
    return converted


def folded(model: ModelProto, fixes: list[str], where: str) -> ModelProto:
    """BatchNormalization folded into convs, constants folded, identities removed: by onnxruntime's basic optimiser."""
    before = len(model.graph.node)
    norms = sum(node.op_type == "BatchNormalization" for node in model.graph.node)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder, "folded.onnx"))
        try:
            ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises a dozen unrelated classes
            raise ModelError(
                "onnxruntime can't load the model",
                where=where,
                got=str(error).strip().splitlines()[0][:300],
                remedy="an operator may be unknown to it, or the file be damaged: export it again",
            ) from error
        folded = onnx.load(options.optimized_model_filepath)
    left = sum(node.op_type == "BatchNormalization" for node in folded.graph.node)
    graph.keep(
        folded.opset_import, lambda entry: entry.domain in {node.domain for node in folded.graph.node} | {"", "ai.onnx"}
    )
    if norms > left:
        fixes.append(f"{norms - left} BatchNormalization folded into their convs")
    if removed := before - len(folded.graph.node) - (norms - left):
        fixes.append(f"{removed} constant or identity nodes folded")
    return folded


def check_shapes(model: ModelProto, where: str) -> None:
    """Every tensor has a static shape.

    Raises:
        ModelError: one depends on what is in the picture.
    """
    index = graph.Index(model)
    for node in model.graph.node:
        for name in node.output:
            if name and index.shape(name) is None:
                raise ModelError(
                    f"the shape of tensor {name} depends on the picture's content",
                    where=where,
                    wanted="static shapes",
                    got=f"made by {node.name} ({node.op_type})",
                    remedy="export without data-dependent parts, e.g. without NMS inside",
                )
