from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import toys
from onnx import TensorProto, helper

from edge_app.errors import ModelError
from edge_app.toolchain import graph, heads


def with_output(shape: list[int]) -> onnx.ModelProto:
    node = helper.make_node("RandomNormal", [], ["y"], name="any", shape=shape)
    made = helper.make_graph(
        [node],
        "any",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 64, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    return graph.inferred(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)]), "any")


def test_cut_finds_box_and_class_convs_of_each_stride() -> None:
    branches = heads.cut_points(graph.inferred(toys.detector(), "toy"), (64, 64))
    assert [(b.kind, b.stride, b.channels, b.tensor) for b in branches] == [
        ("box", 8, 64, "box8_out"),
        ("cls", 8, 2, "cls8_out"),
        ("box", 16, 64, "box16_out"),
        ("cls", 16, 2, "cls16_out"),
    ]


def test_cut_model_gives_the_logits_that_the_whole_model_decodes() -> None:
    model = graph.inferred(toys.detector(), "toy")
    cut = heads.cut_head(model, heads.cut_points(model, (64, 64)))
    x = np.random.default_rng(0).random((1, 3, 64, 64), np.float32)
    whole = ort.InferenceSession(model.SerializeToString()).run(None, {"images": x})[0]
    box8, cls8, _, _ = ort.InferenceSession(cut.SerializeToString()).run(None, {"images": x})
    assert [output.name for output in cut.graph.output] == ["box8", "cls8", "box16", "cls16"]
    assert np.allclose(1 / (1 + np.exp(-cls8.reshape(2, 64))), whole[0, 4:, :64], atol=1e-6)
    assert box8.shape == (1, 64, 8, 8)


def test_transformer_has_a_softmax_but_no_dfl() -> None:
    assert heads.cut_points(graph.inferred(toys.transformer(), "toy"), (64, 64)) == ()


@pytest.mark.parametrize(
    ("shape", "labels", "kind"),
    [
        ([1, 6, 84], 2, "yolov8"), ([1, 252, 7], 2, "yolov5"), ([1, 84, 7], 2, "yolox"), ([1, 30, 6], 2, "end2end"),
        ([1, 84, 85], None, "yolox"),
    ],
)  # fmt: skip
def test_heads_are_told_by_shape(shape: list[int], labels: int | None, kind: str) -> None:
    assert heads.recognise(with_output(shape), (64, 64), labels, "detect", "x").kind == kind


def test_classifier_without_softmax_gives_logits() -> None:
    head = heads.recognise(graph.inferred(toys.resnet18(size=32), "x"), (32, 32), 10, "classify", "x")
    assert (head.kind, head.apply_softmax) == ("classify", True)


@pytest.mark.parametrize("shape", [[1, 9, 9], [2, 6, 84], [1, 6]])
def test_unknown_head_says_what_is_known(shape: list[int]) -> None:
    with pytest.raises(ModelError, match="YOLOX"):
        heads.recognise(with_output(shape), (64, 64), 2, "detect", "x")
