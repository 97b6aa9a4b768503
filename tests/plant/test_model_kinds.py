"""`edge_app model` on classifiers and transformers, and on files that are damaged or no detector."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pytest
import toys
from model_command import CLASSIFIES, DETECTS, LABELS, document, draw, in_folder
from onnx import numpy_helper


def test_resnet_with_shared_biases_comes_out_fully_int8(tmp_path: Path) -> None:
    draw(tmp_path / "pictures", 34)
    onnx.save(toys.resnet18(size=64), tmp_path / "resnet.onnx")
    (tmp_path / "labels.txt").write_text("\n".join(f"class{n}" for n in range(10)))
    model = in_folder(tmp_path)
    imported = document(model("import", "resnet.onnx", "--name", "resnet", *CLASSIFIES, *LABELS, "--no-ops", "--json"))
    assert any("16 shared initializers" in fix for fix in imported["fixed"])
    document(model("quantize", "resnet", "--calibration", "pictures", "--json"))
    plan = document(model("compile", "resnet", "--soc", "qcs8550", "--plans", "htp", "--json"))["plans"][0]
    assert plan["report"]["float_ops"] == []
    assert plan["report"]["macs_float"] == 0
    assert plan["report"]["macs_a8"] > 100e6
    assert plan["host_ops"] == []


def test_transformer_norms_run_on_the_cpu_in_the_hybrid(tmp_path: Path) -> None:
    draw(tmp_path / "pictures", 34)
    onnx.save(toys.transformer(), tmp_path / "t.onnx")
    (tmp_path / "labels.txt").write_text("\n".join(f"class{n}" for n in range(10)))
    model = in_folder(tmp_path)
    document(model("import", "t.onnx", "--name", "t", *CLASSIFIES, *LABELS, "--no-ops", "--json"))
    document(model("quantize", "t", "--calibration", "pictures", "--activations", "a16", "--json"))
    done = model("compile", "t", "--soc", "qcs8550", "--host-ops", "LayerNormalization,Gelu,Softmax", "--json")
    htp, hybrid = document(done)["plans"]
    assert (htp["report"]["segments"], htp["host_ops"]) == (1, [])
    assert {"LayerNormalization", "Gelu", "Softmax"} <= set(hybrid["host_ops"])
    assert hybrid["report"]["segments"] > 1
    report = document(model("verify", "t", "--data", "pictures", "--limit", "4", "--json", "--cache", "cache"))
    assert report["ok"] is True


def open_shape(model: onnx.ModelProto) -> onnx.ModelProto:
    for place in (2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[place].dim_param = f"side{place}"
    return model


def unknown_op(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.node[0].domain = "my.own"
    model.opset_import.append(onnx.helper.make_opsetid("my.own", 1))
    return model


@pytest.mark.parametrize(
    ("change", "more", "code", "said"),
    [
        (open_shape, (), 4, "--size"),
        (unknown_op, (), 4, "my.own"),
        (lambda m: m.SerializeToString()[:3000], (), 4, "not a valid ONNX"),
        (lambda _m: b"", (), 4, "empty"),
        (lambda m: m, ("--labels", "three.txt"), 4, "head"),
    ],
)
def test_bad_models_are_refused_with_one_clear_error(
    tmp_path: Path, change: Callable[[onnx.ModelProto], Any], more: tuple[str, ...], code: int, said: str
) -> None:
    changed = change(toys.detector())
    (tmp_path / "bad.onnx").write_bytes(changed if isinstance(changed, bytes) else changed.SerializeToString())
    (tmp_path / "three.txt").write_text("a\nb\nc\n")
    done = in_folder(tmp_path)("import", "bad.onnx", "--name", "bad", *DETECTS, *more)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "models/bad/manifest.yaml").exists()


def test_model_whose_outputs_never_move_is_found_out(tmp_path: Path) -> None:
    draw(tmp_path / "pictures", 33)
    blind = toys.detector()
    for tensor in blind.graph.initializer:
        if tensor.name == "stem0.weight":
            tensor.CopyFrom(numpy_helper.from_array(np.zeros(tuple(tensor.dims), np.float32), tensor.name))
    onnx.save(blind, tmp_path / "blind.onnx")
    (tmp_path / "labels.txt").write_text("bright\ndark\n")
    model = in_folder(tmp_path)
    document(model("import", "blind.onnx", "--name", "blind", *DETECTS, *LABELS, "--no-ops", "--json"))
    document(model("quantize", "blind", "--calibration", "pictures", "--json"))
    document(model("compile", "blind", "--soc", "qcs8550", "--plans", "htp", "--json"))
    (tmp_path / "labelled/images").mkdir(parents=True)
    (tmp_path / "labelled/labels").mkdir()
    for number in range(4):
        cv2.imwrite(str(tmp_path / f"labelled/images/{number}.png"), toys.detector_picture([(number, 2)], seed=number))
        (tmp_path / f"labelled/labels/{number}.txt").write_text("0 0.5 0.5 0.25 0.25\n")
    (tmp_path / "labelled/data.yaml").write_text("val: images\nnames: [bright, dark]\n")
    report = document(model("verify", "blind", "--data", "labelled", "--json", "--cache", "cache"), code=1)
    assert report["ok"] is False
    assert "the same for every picture" in report["rungs"][0]["problems"][0]
