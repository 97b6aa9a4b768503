from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import colours
import cv2
import numpy as np
import onnx
import pytest
import toys

from edge_app.app import build
from edge_app.commands.check import check
from edge_app.commands.model_make import run_import
from edge_app.config.load import load_pipeline
from edge_app.config.pipeline import Model
from edge_app.config.tensor import Preprocess
from edge_app.detections import Classes
from edge_app.errors import ConfigError, ModelError
from edge_app.family import member, members
from edge_app.model import model_folder, resolve
from edge_app.predictor import load

SIZES = ["32x32", "64x48", "96x96"]


def any_size() -> onnx.ModelProto:
    """A classifier that takes pictures of any size: a conv, the mean of all places, three classes."""
    g = toys.Graph(0)
    pooled = g.node("GlobalAveragePool", "pool", [g.conv("conv", "images", 3, 4, 3)])
    weight = g.constant("fc.weight", g.random.normal(0, 1, (4, 3)))
    classes = g.node("Gemm", "fc", [g.node("Flatten", "flat", [pooled]), weight, g.constant("fc.bias", np.zeros(3))])
    model = g.model([1, 3, 32, 32], classes, [1, 3])
    for place, name in ((2, "height"), (3, "width")):
        model.graph.input[0].type.tensor_type.shape.dim[place].dim_param = name
    return model


def imported(folder: Path, size: str | None, **more: Any) -> Path:
    onnx.save(any_size(), folder / "any.onnx")
    (folder / "labels.txt").write_text("a\nb\nc\n")
    given: dict[str, Any] = {
        "file": folder / "any.onnx", "name": "net", "task": "classify", "labels": folder / "labels.txt", "head": None,
        "size": size, "color": "RGB", "fit": "stretch", "method": None, "pad_value": None, "shorter_side": None,
        "scale": 1 / 255, "mean": None, "std": None, "models": folder / "models", "soc": None, "no_ops": True,
        "json": True,
    }  # fmt: skip
    assert run_import(Namespace(**{**given, **more})) == 0
    return folder / "models/net"


@pytest.fixture
def family(tmp_path: Path) -> Path:
    return imported(tmp_path, ",".join(reversed(SIZES)))


def test_one_import_makes_a_model_of_each_size(family: Path) -> None:
    found = members(family)
    assert [path.name for path in found.values()] == SIZES
    for (width, height), path in found.items():
        card = resolve(Model(path=path), Preprocess())
        assert (card.name, card.input.width, card.input.height) == (f"net-{path.name}", width, height)


@pytest.mark.parametrize(
    ("size", "region_px", "taken"),
    [
        ((64, 48), None, "64x48"),
        ((64, 48), (0, 0, 900, 900), "64x48"),
        (None, (10, 10, 42, 42), "32x32"),
        (None, (0, 0, 33, 32), "64x48"),
        (None, (0, 0, 64, 49), "96x96"),
        (None, (0, 0, 1000, 20), "96x96"),
    ],
)
def test_the_size_is_chosen_when_the_line_starts(family: Path, size: Any, region_px: Any, taken: str) -> None:
    card = resolve(Model(path=family, size=size), Preprocess(region_px=region_px))
    assert (card.folder or Path()).name == taken
    assert f"{card.input.width}x{card.input.height}" == taken


def test_without_a_region_the_camera_s_frame_chooses(tmp_path: Path) -> None:
    for px in (64, 96):
        onnx.save(toys.detector(size=px), tmp_path / "toy.onnx")
        more = {"task": "detect", "fit": "letterbox", "labels": None, "models": tmp_path / "net"}
        imported(tmp_path, None, file=tmp_path / "toy.onnx", name=f"{px}x{px}", **more)
    video = cv2.VideoWriter(str(tmp_path / "v.avi"), cv2.VideoWriter.fourcc(*"MJPG"), 10, (80, 40))
    for level in (30, 60, 90):
        video.write(np.full((40, 80, 3), level, np.uint8))
    video.release()
    file = tmp_path / "line.yaml"
    file.write_text(f"""\
camera: {{type: video, path: {tmp_path}/v.avi}}
model: {{path: {tmp_path}/net}}
runtime: {{provider: cpu, threads: 1}}
limits: {{pacing: offline, slots: 1}}
results: {{publish: "tcp://127.0.0.1:*", commands: null, journal: {{path: {tmp_path}/results.db}}}}
""")
    app = build(load_pipeline(file, []), "line")
    assert (app.running.card.folder or Path()).name == "96x96"
    app.start()
    assert app.wait(60)
    app.close()
    assert app.summary().frames == 3


def test_from_python_a_size_is_named(family: Path) -> None:
    predictor = load(family, size=(96, 96))
    found = predictor(np.random.default_rng(0).integers(0, 256, (50, 70, 3)).astype(np.uint8))
    assert isinstance(found, Classes)
    assert predictor.card.input.width == 96


def test_what_is_not_there_or_not_said_is_an_error(family: Path) -> None:
    with pytest.raises(ConfigError, match="32x32, 64x48, 96x96"):
        resolve(Model(path=family, size=(64, 64)), Preprocess())
    with pytest.raises(ConfigError, match=r"model\.size"):
        resolve(Model(path=family), Preprocess())
    with pytest.raises(ConfigError, match="not the size of this model's input"):
        resolve(Model(path=family / "32x32", size=(64, 64)), Preprocess())
    with pytest.raises(ModelError, match="name one of them"):
        model_folder(str(family))
    assert model_folder(str(family / "64x48")) == family / "64x48"


def test_a_folder_of_other_things_is_no_family(tmp_path: Path) -> None:
    (tmp_path / "64x64").mkdir()
    assert members(tmp_path) == {}
    assert member(tmp_path, None, None) == tmp_path
    assert members(tmp_path / "nowhere") == {}


@pytest.mark.parametrize("wrong", [{"mean": [0.5]}, {"std": [1.0, 0.0, 1.0]}])
def test_a_normalisation_that_does_not_fit_the_channels_is_refused_at_import(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="the model's input can't be made so") as told:
        imported(tmp_path, "32x32", **wrong)
    assert next(iter(wrong)) in (told.value.got or "")
    assert not (tmp_path / "models/net/manifest.yaml").exists()


def test_a_model_of_fixed_size_takes_no_other(tmp_path: Path) -> None:
    model = any_size()
    for place in (2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[place].dim_value = 32
    onnx.save(model, tmp_path / "fixed.onnx")
    with pytest.raises(ConfigError, match="a fixed input size"):
        imported(tmp_path, "64x64", file=tmp_path / "fixed.onnx")


def test_check_takes_the_member_that_the_line_takes(family: Path, tmp_path: Path) -> None:
    made = colours.pipeline(
        tmp_path, camera={"type": "synthetic"}, model={"path": str(family)}, preprocess={}, gate=None
    )
    assert check(made, Path("mine.yaml"))["model"] == "net-96x96"
