"""A trained .onnx or .pt becomes a model folder: fixed where exporters leave traps, described, its head recognised."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnx import ModelProto

from edge_app.config.manifest import MANIFEST_FILE
from edge_app.config.save import write_new_manifest
from edge_app.config.tensor import HeadSpec, InputSpec
from edge_app.errors import ConfigError, ModelError
from edge_app.model import sha256_of
from edge_app.toolchain import graph, heads
from edge_app.toolchain.described import Given, image_of, labels_in, origin_in, size_of
from edge_app.toolchain.fixes import (
    TARGET_OPSET,
    at_known_opset,
    check_shapes,
    folded,
    made_static,
    with_float_input,
)


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
    if not file.is_file():
        raise ModelError("can't read the model file", where=str(file), got="no such file")
    with contextlib.redirect_stdout(sys.stderr):  # Ultralytics reports on stdout
        return _exported(file, size)


def _exported(file: Path, size: tuple[int, int] | None) -> ModelProto:
    os.environ.setdefault("YOLO_AUTOINSTALL", "false")  # an import of a model installs no packages
    try:
        from ultralytics import YOLO
    except ImportError as error:
        raise ModelError(
            "a .pt file needs Ultralytics to be exported",
            where=str(file),
            remedy="pip install 'edge_app[train]', or export it to ONNX where it was trained",
        ) from error
    options: dict[str, Any] = {} if size is None else {"imgsz": [size[1], size[0]]}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(file, folder))
        try:
            exported = YOLO(copy).export(format="onnx", opset=TARGET_OPSET, simplify=True, **options)
        except Exception as error:  # torch, pickle and Ultralytics raise unrelated classes
            raise ModelError(
                "Ultralytics can't export this .pt file",
                where=str(file),
                wanted="a model trained with Ultralytics",
                got=(str(error).strip().splitlines() or [type(error).__name__])[0][:300],
                remedy="is the file whole? Try `yolo export` where it was trained",
            ) from error
        return graph.load(Path(exported))


def import_model(model: ModelProto, given: Given, where: str) -> Imported:
    """Fixes and describes a model; nothing is written.

    Raises:
        ModelError: what can't be fixed: shapes that stay open, an unknown head, an already quantised model.
        ConfigError: labels that do not fit.
    """
    metadata = graph.metadata(model)
    fixes: list[str] = []
    model = _cleaned(model, given, metadata, fixes, where)
    size = size_of(model, where)
    if given.size not in (None, (size[1], size[0])):
        raise ConfigError(
            "the model has a fixed input size, another than was asked for",
            where=where,
            wanted=f"--size {size[1]}x{size[0]}, or none",
            got=f"--size {'x'.join(map(str, given.size or ()))}",
            remedy="export it with open (dynamic) height and width",
        )
    named = given.labels or labels_in(metadata)
    classes = None if named is None else len(named)
    model, taken_off = heads.without_nms(model, size, classes, where)
    if taken_off:
        fixes.append(f"NMS taken off ({taken_off} nodes): its result has no static shape; the C decode does it")
        model = graph.inferred(model, where)
    check_shapes(model, where)
    head = heads.recognise(model, size, classes, given.task, where)
    if given.head is not None:
        head = head.model_copy(update={"kind": given.head})
    notes: list[str] = []
    labels = _labels(named, heads.label_count(model, head), notes, where)
    graph.set_metadata(model, metadata)
    image = image_of(model, size, given, metadata, head, notes, where)
    result = Imported(model, image, head, labels, metadata, fixes, notes)
    _explain_head(result, size)
    return result


def _cleaned(model: ModelProto, given: Given, metadata: dict[str, str], fixes: list[str], where: str) -> ModelProto:
    """Static, of a known opset, folded, without dead nodes and shared biases; `fixes` says what was done."""
    if any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in model.graph.node):
        raise ModelError(
            "the model is quantised already",
            where=where,
            wanted="a float model",
            got="Q and DQ nodes",
            remedy="import the float model it was made from; `edge_app model quantize` makes the QDQ model",
        )
    model = made_static(model, given, metadata, fixes, where)
    model = with_float_input(model, fixes, where)
    model = at_known_opset(model, fixes, where)
    model = folded(graph.inferred(model, where), fixes, where)
    if dead := graph.drop_dead(model):
        fixes.append(f"{dead} dead nodes removed")
    if named := graph.name_nodes(model):
        fixes.append(f"{named} nodes without a name of their own named")
    if copies := graph.unshare_initializers(model):
        fixes.append(f"{copies} shared initializers un-shared (convs that share a bias would run in float on the HTP)")
    return graph.inferred(model, where)


def _labels(named: tuple[str, ...] | None, count: int | None, notes: list[str], where: str) -> tuple[str, ...]:
    """The labels that were given or found, else made-up ones; they must be as many as the head has."""
    if named is None:
        if count is None:
            raise ConfigError(
                "the labels of this model are not known, nor how many there are",
                where=where,
                wanted="--labels FILE",
                got="none in the file",
                remedy="one label a line, in the model's order",
            )
        notes.append(f"the file names no labels: called class_0 .. class_{count - 1}; give --labels for real names")
        return tuple(f"class_{number}" for number in range(count))
    if count is not None and count != len(named):
        raise ConfigError("the labels do not fit the model", where=where, wanted=f"{count} labels", got=str(len(named)))
    return named


def write_folder(imported: Imported, given: Given, folder: Path, source: Path) -> Path:
    """Writes `model.onnx` and the manifest; the manifest last, so that a half-written folder is no model.

    Raises:
        ModelError: the folder holds a model already.
    """
    if (folder / MANIFEST_FILE).exists():
        raise ModelError(
            "there is a model of this name already", where=str(folder), remedy="choose another --name, or remove it"
        )
    graph.save(imported.model, folder / "model.onnx")
    write_new_manifest(folder, {
        "schema_version": 1, "name": given.name, "version": "1", "task": given.task,
        "origin": f"imported from {source.name}" + origin_in(imported.metadata),
        "input": imported.image.model_dump(mode="json", exclude_none=True),
        "outputs": [{"name": o.name, "shape": list(graph.Index(imported.model).shape(o.name) or ())}
                    for o in imported.model.graph.output],
        "head": imported.head.model_dump(mode="json"), "labels": list(imported.labels),
        "float_model": {"file": "model.onnx", "sha256": sha256_of(folder / "model.onnx")},
    })  # fmt: skip
    return folder


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
