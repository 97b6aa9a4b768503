"""What exporters leave in files: NMS behind the head, pictures as bytes, pictures with their channels last."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import toys
from onnx import TensorProto, helper, numpy_helper

from edge_app.errors import ModelError
from edge_app.toolchain.described import Given
from edge_app.toolchain.import_ import Imported, import_model, write_folder

GIVEN = Given("toy", "detect", toys.DETECTOR_LABELS, color="RGB", fit="letterbox", scale=1 / 255)
PICTURE = toys.detector_picture([(2, 3)])[..., ::-1]
AS_FLOAT = (PICTURE.astype(np.float32) / 255).transpose(2, 0, 1)[None]


def outputs(model: onnx.ModelProto, data: np.ndarray) -> list[np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {session.get_inputs()[0].name: data}))


def with_nms(model: onnx.ModelProto) -> onnx.ModelProto:
    """[K, 3] of the boxes that are left, as exporters put it behind [1, 4 + C, N]."""
    graph, head = model.graph, model.graph.output[0].name
    for name, value in (("four", [4, 2]), ("most", 10), ("iou", np.float32(0.5)), ("least", np.float32(0.25))):
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    graph.node.extend([
        helper.make_node("Split", [head, "four"], ["nms/boxes", "nms/scores"], "nms/split", axis=1),
        helper.make_node("Transpose", ["nms/boxes"], ["nms/rows"], "nms/turn", perm=[0, 2, 1]),
        helper.make_node("NonMaxSuppression", ["nms/rows", "nms/scores", "most", "iou", "least"], ["kept"], "nms",
                         center_point_box=1),
    ])  # fmt: skip
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("kept", TensorProto.INT64, ["boxes", 3]))
    onnx.checker.check_model(model, full_check=True)
    return model


def test_an_nms_inside_is_taken_off_and_the_head_before_it_is_found() -> None:
    imported = import_model(with_nms(toys.detector()), GIVEN, "toy")
    assert imported.head.kind == "yolov8"
    assert any("NMS taken off (3 nodes)" in fix for fix in imported.fixes)
    assert [output.name for output in imported.model.graph.output] == ["predictions"]
    (wanted,) = outputs(toys.detector(), AS_FLOAT)
    (got,) = outputs(imported.model, AS_FLOAT)
    np.testing.assert_allclose(got, wanted, atol=1e-4)


def test_an_nms_behind_no_known_head_is_an_error() -> None:
    three = Given("toy", "detect", ("a", "b", "c"), color="RGB", fit="letterbox", scale=1 / 255)
    with pytest.raises(ModelError, match="no known head before it"):
        import_model(with_nms(toys.detector()), three, "toy")


def in_bytes(model: onnx.ModelProto, *, channels_last: bool = False, cast: bool = True) -> onnx.ModelProto:
    """Takes uint8, casts it, and divides by 255 itself."""
    graph = model.graph
    graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8 if cast else TensorProto.INT8
    for node in graph.node:
        node.input[:] = ["scaled" if name == "images" else name for name in node.input]
    graph.initializer.append(numpy_helper.from_array(np.float32(255), "levels"))
    first = [
        helper.make_node("Cast", ["images"], ["real"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Div", ["planes" if channels_last else "real", "levels"], ["scaled"], "divide"),
    ]
    if channels_last:
        first.insert(1, helper.make_node("Transpose", ["real"], ["planes"], "turn", perm=[0, 3, 1, 2]))
        for dim, size in zip(graph.input[0].type.tensor_type.shape.dim, (1, 64, 64, 3), strict=True):
            dim.dim_value = size
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*first, *rest])
    onnx.checker.check_model(model, full_check=True)
    return model


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_model_that_takes_bytes_is_fed_the_same_pixels(channels_last: bool) -> None:
    given = Given("toy", "detect", toys.DETECTOR_LABELS, color="RGB", fit="letterbox", scale=1.0)
    imported: Imported = import_model(in_bytes(toys.detector(), channels_last=channels_last), given, "toy")
    image = imported.image
    assert (image.dtype, image.layout) == ("float32", "NHWC" if channels_last else "NCHW")
    assert any("uint8 input made float" in fix for fix in imported.fixes)
    pixels = PICTURE.astype(np.float32)[None]
    (got,) = outputs(imported.model, pixels if channels_last else pixels.transpose(0, 3, 1, 2).copy())
    (wanted,) = outputs(toys.detector(), AS_FLOAT)
    np.testing.assert_allclose(got, wanted, atol=1e-4)


def test_other_integers_are_refused() -> None:
    with pytest.raises(ModelError, match="a type that can't be fed"):
        import_model(in_bytes(toys.detector(), cast=False), GIVEN, "toy")


def test_a_folder_that_can_not_be_made_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    imported = import_model(toys.detector(), GIVEN, "toy")
    with pytest.raises(ModelError, match=r"can't write the model\n.*got: Not a directory"):
        write_folder(imported, GIVEN, tmp_path / "file" / "toy", Path("toy.onnx"))
