"""Versions of a toy detector, as an update brings them: good ones, and those that go wrong in their own ways."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import toys

from edge_app.canary import record_canary
from edge_app.config.pipeline import Model
from edge_app.config.tensor import Preprocess
from edge_app.model import resolve

PARTS = 10
DAZZLING = PARTS - 1
"""The part that a faulty model can't see: its picture is brighter than all others."""
MANIFEST = """\
name: toy
version: "{version}"
task: detect
input: {{name: images, width: 64, height: 64}}
outputs:
  - {{name: {output}, shape: [1, 6, 80]}}
head: {{kind: yolov8, strides: [8, 16]}}
labels: {labels}
operating:
  score: {{bright: {score}, {other}: 0.9}}
float_model: {{file: model.onnx, sha256: {sha256}}}
"""


def picture(number: int) -> np.ndarray[Any, Any]:
    cells = [(0, 0), (2, 2), (4, 4), (6, 1)] if number == DAZZLING else [(2, 2)] if number % 2 else []
    return toys.detector_picture(cells, seed=number)


def blind_where_it_dazzles(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same, but NaN for a picture whose mean is above 60 of 255."""
    graph, output = model.graph, model.graph.output[0]
    for name, value in (("limit", 60 / 255), ("nothing", 0.0)):
        graph.initializer.append(onnx.numpy_helper.from_array(np.float32(value), name))
    for op, inputs, made in (
        ("ReduceMean", ["images"], "mean"),
        ("Sub", ["limit", "mean_"], "below"),
        ("Sqrt", ["below"], "root"),
        ("Mul", ["root", "nothing"], "trouble"),
        ("Add", [output.name, "trouble"], "troubled"),
    ):
        more = {"keepdims": 0} if op == "ReduceMean" else {}
        graph.node.append(onnx.helper.make_node(op, inputs, ["mean_" if made == "mean" else made], **more))
    output.name = "troubled"
    onnx.checker.check_model(model)
    return model


def never_ending(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same, but it goes round for ever before it gives its output."""
    graph, output = model.graph, model.graph.output[0]
    same, goes_on = (
        onnx.helper.make_node("Identity", [f"{name}_in"], [f"{name}_out"]) for name in ("value", "condition")
    )

    def of(kind: int, *names: str) -> list[onnx.ValueInfoProto]:
        shape = [] if kind != onnx.TensorProto.FLOAT else None
        return [onnx.helper.make_tensor_value_info(name, kind, shape) for name in names]

    body = onnx.helper.make_graph(
        [goes_on, same], "body",
        [*of(onnx.TensorProto.INT64, "turn"), *of(onnx.TensorProto.BOOL, "condition_in"),
         *of(onnx.TensorProto.FLOAT, "value_in")],
        [*of(onnx.TensorProto.BOOL, "condition_out"), *of(onnx.TensorProto.FLOAT, "value_out")],
    )  # fmt: skip
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(2**62), "turns"))
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "begin"))
    graph.node.append(onnx.helper.make_node("Loop", ["turns", "begin", output.name], ["at_last"], body=body))
    output.name = "at_last"
    onnx.checker.check_model(model)
    return model


def make_model(
    folder: Path, version: str, *, seed: int = 0, blind: bool = False, score: float = 0.5, other: str = "other"
) -> Path:
    """A version of the toy, with a canary."""
    folder.mkdir()
    model = toys.detector(seed)
    onnx.save(blind_where_it_dazzles(model) if blind else model, folder / "model.onnx")
    (folder / "manifest.yaml").write_text(MANIFEST.format(
        version=version, output=model.graph.output[0].name, labels=f"[bright, {other}]", score=score, other=other,
        sha256=digest(folder),
    ))  # fmt: skip
    cv2.imwrite(str(folder / "canary.png"), picture(1))
    record_canary(resolve(Model(path=folder), Preprocess()), "canary.png")
    return folder


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest()
