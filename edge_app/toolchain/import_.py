"""A trained .onnx or .pt becomes a model folder: fixed where exporters leave traps, described, its head recognised."""

from __future__ import annotations

import ast
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import onnx
import onnx.version_converter
import onnxruntime as ort
from onnx import ModelProto, TensorProto

from edge_app.config.manifest import MANIFEST_FILE
from edge_app.config.save import write_new_manifest
from edge_app.config.tensor import HeadKind, HeadSpec, InputSpec, Layout
from edge_app.errors import ConfigError, ModelError
from edge_app.model import sha256_of
from edge_app.toolchain import graph, heads

OPSETS = range(13, 22)
"""13 is the first with per-channel DequantizeLinear; past 21, onnxruntime's quantizer is untested."""
TARGET_OPSET = 17
Task = Literal["detect", "classify"]


@dataclass(frozen=True, slots=True)
class Given:
    """What the caller knows of the model; None where the file is to say."""

    name: str
    task: Task
    labels: tuple[str, ...] | None = None
    head: HeadKind | None = None
    size: tuple[int, int] | None = None
    """Width, height for a model that leaves them open."""
    color: str | None = None
    fit: str | None = None
    scale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


@dataclass(slots=True)
class Imported:
    """The result, and what was done to get there."""

    model: ModelProto
    image: InputSpec
    head: HeadSpec
    labels: tuple[str, ...]
    metadata: dict[str, str]
    fixes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_source(file: Path, size: tuple[int, int] | None) -> ModelProto:
    """Reads an .onnx, or exports an Ultralytics .pt (needs the extra [train]).

    Raises:
        ModelError: absent, damaged, or of another kind.
    """
    if file.suffix != ".pt":
        return graph.load(file)
    try:
        from ultralytics import YOLO
    except ImportError as error:
        raise ModelError(
            "a .pt file needs Ultralytics to be exported",
            where=str(file),
            remedy="pip install 'edge_app[train]', or export it to ONNX where it was trained",
        ) from error
    if not file.is_file():
        raise ModelError("can't read the model file", where=str(file), got="no such file")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(file, folder))
        options: dict[str, Any] = {} if size is None else {"imgsz": [size[1], size[0]]}
        return graph.load(Path(YOLO(copy).export(format="onnx", opset=TARGET_OPSET, simplify=True, **options)))


def import_model(model: ModelProto, given: Given, where: str) -> Imported:
    """Fixes and describes a model; nothing is written.

    Raises:
        ModelError: what can't be fixed: shapes that stay open, an unknown head, an already quantised model.
        ConfigError: labels that do not fit.
    """
    metadata = graph.metadata(model)
    fixes: list[str] = []
    if any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in model.graph.node):
        raise ModelError(
            "the model is quantised already",
            where=where,
            wanted="a float model",
            got="Q and DQ nodes",
            remedy="import the float model it was made from; `edge_app model quantize` makes the QDQ model",
        )
    model = _static(model, given, metadata, fixes, where)
    model = _float_input(model, fixes, where)
    model = _opset(model, fixes, where)
    model = _folded(graph.inferred(model, where), fixes, where)
    if dead := graph.drop_dead(model):
        fixes.append(f"{dead} dead nodes removed")
    if named := graph.name_nodes(model):
        fixes.append(f"{named} nodes without a name of their own named")
    if copies := graph.unshare_initializers(model):
        fixes.append(f"{copies} shared initializers un-shared (convs that share a bias would run in float on the HTP)")
    model = graph.inferred(model, where)
    _check_shapes(model, where)
    labels = given.labels or _labels_of(metadata)
    size = _size(model, where)
    head = heads.recognise(model, size, None if labels is None else len(labels), given.task, where)
    if given.head is not None:
        head = head.model_copy(update={"kind": given.head})
    count = heads.label_count(model, head)
    notes: list[str] = []
    if labels is None:
        if count is None:
            raise ConfigError(
                "the labels of this model are not known, nor how many there are",
                where=where,
                wanted="--labels FILE",
                got="none in the file",
                remedy="one label a line, in the model's order",
            )
        labels = tuple(f"class_{number}" for number in range(count))
        notes.append(f"the file names no labels: called class_0 .. class_{count - 1}; give --labels for real names")
    if count is not None and count != len(labels):
        raise ConfigError(
            "the labels do not fit the model", where=where, wanted=f"{count} labels", got=str(len(labels))
        )
    graph.set_metadata(model, metadata)
    image = _image(model, size, given, metadata, head, notes, where)
    result = Imported(model, image, head, labels, metadata, fixes, notes)
    _explain_head(result, size)
    return result


def write_folder(imported: Imported, given: Given, folder: Path, source: Path) -> Path:
    """Writes `model.onnx` and the manifest; the manifest last, so that a half-written folder is no model.

    Raises:
        ModelError: the folder holds a model already.
    """
    if (folder / MANIFEST_FILE).exists():
        raise ModelError(
            "there is a model of this name already", where=str(folder), remedy="choose another --name, or remove it"
        )
    folder.mkdir(parents=True, exist_ok=True)
    save(imported.model, folder / "model.onnx")
    write_new_manifest(folder, {
        "schema_version": 1, "name": given.name, "version": "1", "task": given.task,
        "origin": f"imported from {source.name}" + _origin(imported.metadata),
        "input": imported.image.model_dump(mode="json", exclude_none=True),
        "outputs": [{"name": o.name, "shape": list(graph.Index(imported.model).shape(o.name) or ())}
                    for o in imported.model.graph.output],
        "head": imported.head.model_dump(mode="json"), "labels": list(imported.labels),
        "float_model": {"file": "model.onnx", "sha256": sha256_of(folder / "model.onnx")},
    })  # fmt: skip
    return folder


def save(model: ModelProto, file: Path) -> None:
    """Writes a model so that it appears whole or not at all.

    Raises:
        ModelError: no space, or no permission.
    """
    partial = file.with_name(f".{file.name}.partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(model.SerializeToString(deterministic=True))
        partial.replace(file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ModelError(
            "can't write the model",
            where=str(file),
            got=error.strerror or str(error),
            remedy="free some space, or choose another folder",
        ) from error


def _static(model: ModelProto, given: Given, metadata: dict[str, str], fixes: list[str], where: str) -> ModelProto:
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
    size = given.size or _imgsz(metadata)
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


def _float_input(model: ModelProto, fixes: list[str], where: str) -> ModelProto:
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


def _opset(model: ModelProto, fixes: list[str], where: str) -> ModelProto:
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


def _folded(model: ModelProto, fixes: list[str], where: str) -> ModelProto:
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


def _check_shapes(model: ModelProto, where: str) -> None:
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


def _size(model: ModelProto, where: str) -> tuple[int, int]:
    """Height and width of the input."""
    shape = [d.dim_value for d in graph.image_input(model, where).type.tensor_type.shape.dim]
    return (shape[2], shape[3]) if shape[1] in (1, 3) else (shape[1], shape[2])


def _image(
    model: ModelProto,
    size: tuple[int, int],
    given: Given,
    metadata: dict[str, str],
    head: HeadSpec,
    notes: list[str],
    where: str,
) -> InputSpec:
    """How the input is made: as the caller says, else as the makers of the model's kind train it, and that is noted."""
    info = graph.image_input(model, where)
    shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
    layout: Layout = "NCHW" if shape[1] in (1, 3) else "NHWC"
    channels = shape[1] if layout == "NCHW" else shape[3]
    said = {key: getattr(given, key) for key in ("color", "fit", "scale", "mean", "std")}
    known: dict[str, Any] = {key: value for key, value in said.items() if value is not None}
    missing = [f"--{key}" for key in ("color", "fit", "scale") if key not in known]
    custom = _custom(given, metadata, head)
    if missing and custom is None:
        raise ConfigError(
            "the model does not say how its input is made",
            where=where,
            wanted=" ".join(missing),
            got="no metadata of a known exporter",
            remedy="state it as in training, e.g. --color RGB --fit crop --scale 0.00392157",
        )
    if missing and custom is not None:
        maker, habits = custom
        known = {**habits, **known}
        notes.append(f"{', '.join(missing)} not given: as {maker} trains, {habits}")
    if channels == 1:
        known["color"] = "GRAY"
    return InputSpec(name=info.name, width=size[1], height=size[0], layout=layout, **known)


def _custom(given: Given, metadata: dict[str, str], head: HeadSpec) -> tuple[str, dict[str, Any]] | None:
    """How a known maker's models take their pictures."""
    if "ultralytics" in metadata.get("author", "").lower():
        fit = "letterbox" if given.task == "detect" else "crop"
        return "Ultralytics", {"color": "RGB", "fit": fit, "scale": 1 / 255}
    if head.kind == "yolox":
        return "YOLOX", {"color": "BGR", "fit": "letterbox_topleft", "scale": 1.0}
    return None


def _imgsz(metadata: dict[str, str]) -> tuple[int, int] | None:
    """Width, height that Ultralytics left in the file."""
    try:
        height, width = ast.literal_eval(metadata["imgsz"])
        return int(width), int(height)
    except (KeyError, ValueError, SyntaxError, TypeError):
        return None


def _labels_of(metadata: dict[str, str]) -> tuple[str, ...] | None:
    if "names" not in metadata:
        return None
    try:
        names = ast.literal_eval(metadata["names"])
        return tuple(str(names[index]) for index in range(len(names)))
    except (ValueError, SyntaxError, KeyError, TypeError):
        return None


def _origin(metadata: dict[str, str]) -> str:
    said = [f"{key} {metadata[key]}" for key in ("description", "author", "version", "date") if key in metadata]
    return f" ({', '.join(said)})" if said else ""


def _explain_head(result: Imported, size: tuple[int, int]) -> None:
    kind = result.head.kind
    if kind != "yolov8":
        result.notes.append(f"head: {kind}, as it stands in the graph")
        return
    branches: Sequence[heads.Branch] = heads.cut_points(result.model, size)
    if branches:
        result.notes.append(
            "head: yolov8; quantize cuts it before the DFL and leaves the decode to C: boxes in pixels and scores in"
            " 0..1 under one 8-bit scale would round every score to 0. New outputs: "
            + ", ".join(f"{b.kind}{b.stride}" for b in branches)
        )
    else:
        result.notes.append("head: yolov8, but its DFL was not found: it can't be cut, and needs 16-bit activations")
