from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import toys
from onnx import TensorProto, helper, numpy_helper

from edge_app.errors import ModelError
from edge_app.toolchain import graph


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return np.asarray(ort.InferenceSession(model.SerializeToString()).run(None, {"images": x})[0])


def test_unsharing_gives_every_conv_its_own_bias_and_changes_no_value() -> None:
    model = toys.resnet18(size=32)
    x = np.random.default_rng(0).random((1, 3, 32, 32), np.float32)
    before = run(model, x)
    assert graph.unshare_initializers(model) == 16
    biases = [node.input[2] for node in model.graph.node if node.op_type == "Conv"]
    assert len(biases) == len(set(biases)) == 20
    assert np.array_equal(run(model, x), before)
    assert graph.unshare_initializers(model) == 0


def test_dead_nodes_and_their_constants_go() -> None:
    model = toys.detector()
    model.graph.node.append(helper.make_node("Relu", ["stem0_out"], ["nobody"], name="dead"))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(3, np.float32), "unused"))
    assert graph.drop_dead(model) == 1
    assert "unused" not in {tensor.name for tensor in model.graph.initializer}


def test_nodes_get_names_of_their_own() -> None:
    model = toys.detector()
    model.graph.node[0].name = ""
    model.graph.node[1].name = model.graph.node[2].name
    assert graph.name_nodes(model) == 2
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)


def test_cut_keeps_what_the_new_outputs_need() -> None:
    model = graph.inferred(toys.detector(), "toy")
    part = graph.cut_at(model, [("stem1/act/Mul_out", "middle")])
    onnx.checker.check_model(part, full_check=True)
    assert [output.name for output in part.graph.output] == ["middle"]
    assert {node.name.split("/")[0] for node in part.graph.node} == {"stem0", "stem1"}


@pytest.mark.parametrize(
    ("content", "what"), [(b"", "empty"), (b"\x00\x01nonsense", "not a valid ONNX"), (None, "can't read")]
)
def test_damaged_files_are_told_apart(tmp_path: Path, content: bytes | None, what: str) -> None:
    file = tmp_path / "m.onnx"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ModelError, match=what):
        graph.load(file)


def test_truncated_model_is_an_error(tmp_path: Path) -> None:
    whole = toys.detector().SerializeToString()
    file = tmp_path / "m.onnx"
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="not a valid ONNX"):
        graph.load(file)


def test_two_inputs_are_an_error() -> None:
    model = toys.detector()
    model.graph.input.append(helper.make_tensor_value_info("second", TensorProto.FLOAT, [1]))
    with pytest.raises(ModelError, match="images, second"):
        graph.image_input(model, "toy")
