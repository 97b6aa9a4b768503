from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
import toys

from edge_app.commands.model import add_arguments
from edge_app.config.load import load_manifest
from edge_app.config.pipeline import Model
from edge_app.config.tensor import InputSpec, Preprocess
from edge_app.detections import Classes
from edge_app.engine import fit_of, tensor_of
from edge_app.errors import ConfigError
from edge_app.frame import PixelFormat
from edge_app.model import resolve
from edge_app.predictor import load
from edge_app.preprocess import Plan, Source
from edge_app.toolchain.calibration import tensor
from edge_app.toolchain.described import Given
from edge_app.toolchain.import_ import import_model, write_folder

LABELS = tuple(f"class{n}" for n in range(10))
GIVEN = Given(
    "r", "classify", LABELS, color="RGB", fit="crop", method="antialias", shorter_side=72, scale=1 / 255,
    mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225),
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(toys.transformer(), tmp_path / "r.onnx")
    imported = import_model(toys.transformer(), GIVEN, "r.onnx")
    return write_folder(imported, GIVEN, tmp_path / "r", tmp_path / "r.onnx")


def test_a_classifiers_resize_and_crop_goes_from_import_to_the_input_tensor(folder: Path) -> None:
    image = load_manifest(folder).input
    assert (image.fit, image.method, image.shorter_side) == ("crop", "antialias", 72)
    picture = np.random.default_rng(0).integers(0, 256, (96, 128, 3)).astype(np.uint8)
    got, geometry = tensor(picture, image)
    assert (geometry.resized_width, geometry.resized_height) == (96, 72)
    # What is cut out is the middle 64 x 64 px of the picture shrunk to 96 x 72 px, in RGB, normalised.
    whole = image.model_copy(update={"width": 96, "height": 72, "fit": "stretch", "shorter_side": None})
    resized, _ = tensor(picture, whole)
    np.testing.assert_array_equal(got[0], resized[0, :, 4:68, 16:80])
    near = cv2.resize(picture, (96, 72), interpolation=cv2.INTER_AREA)[..., ::-1].astype(np.float32) / 255
    wanted = (near - np.array(GIVEN.mean)) / np.array(GIVEN.std)
    assert np.abs(resized[0].transpose(1, 2, 0) - wanted).mean() < 0.15


def test_the_line_makes_the_same_input_as_calibration(folder: Path) -> None:
    predictor = load(folder)
    picture = np.random.default_rng(1).integers(0, 256, (100, 80, 3)).astype(np.uint8)
    found = predictor(picture)
    assert isinstance(found, Classes)
    wanted, _ = tensor(picture, predictor.card.input)
    np.testing.assert_array_equal(predictor._work.binding.input, wanted)


def test_a_pipeline_that_says_another_shorter_side_is_refused(folder: Path) -> None:
    assert resolve(Model(path=folder), Preprocess(shorter_side=72)).input.shorter_side == 72
    with pytest.raises(ConfigError, match=r"preprocess\.shorter_side contradicts"):
        resolve(Model(path=folder), Preprocess(shorter_side=80))


def test_a_bare_onnx_takes_it_from_the_pipeline(tmp_path: Path) -> None:
    onnx.save(toys.transformer(), tmp_path / "r.onnx")
    model = Model(path=tmp_path / "r.onnx", task="classify", labels=LABELS)
    card = resolve(model, Preprocess(color="RGB", fit="crop", scale=1 / 255, shorter_side=80))
    plan = Plan(Source(200, 100, PixelFormat.BGR8), tensor_of(card.input), fit_of(card.input))
    assert (plan.geometry.resized_width, plan.geometry.resized_height, plan.geometry.crop_x) == (160, 80, 48)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fit": "letterbox"}, "goes with fit: crop"),
        ({"shorter_side": 63}, "does not cover 64 x 64"),
        ({"scale": 0.0}, "scale"),
        ({"pad_value": 300}, "pad_value"),
    ],
)
def test_what_does_not_go_together_is_one_clear_error(change: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        import_model(toys.transformer(), replace(GIVEN, **change), "r.onnx")  # type: ignore[arg-type]


def test_ultralytics_classifiers_are_cropped_and_antialiased_as_trained() -> None:
    model = toys.transformer()
    for key, value in (("author", "Ultralytics"), ("names", str(dict(enumerate(LABELS))))):
        model.metadata_props.add(key=key, value=value)
    image = import_model(model, Given("r", "classify"), "r.onnx").image
    assert (image.color, image.fit, image.method, image.scale) == ("RGB", "crop", "antialias", 1 / 255)


def test_manifests_without_it_are_as_before() -> None:
    assert "shorter_side" not in InputSpec(name="x", width=8, height=8).model_dump(exclude_none=True)


def test_the_command_takes_it() -> None:
    import argparse

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = "import f.onnx --name n --task classify --fit crop --shorter-side 256 --method antialias --pad-value 0"
    args = parser.parse_args(words.split())
    assert (args.shorter_side, args.method, args.pad_value) == (256, "antialias", 0)
