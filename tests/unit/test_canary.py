from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import colours
import cv2
import numpy as np
import onnx
import pytest
import toys

from edge_app.canary import Canary, difference, load_canary, record_canary
from edge_app.commands.model_canary import run_canary
from edge_app.config.load import Document, validate
from edge_app.config.pipeline import Model, Pipeline
from edge_app.config.save import set_operating
from edge_app.config.tensor import Preprocess
from edge_app.detections import Classes, Detections
from edge_app.engine import Engine
from edge_app.errors import ConfigError, InvalidOutput, ModelError
from edge_app.frame import Frame, FrameStatus, PixelFormat
from edge_app.model import ModelCard, resolve
from edge_app.placed import place_model
from edge_app.predictor import load
from edge_app.runtime.cpu import open_cpu
from edge_app.toolchain.described import Given
from edge_app.toolchain.import_ import import_model, write_folder

FIRM, LABELS = np.array([0.3, 0.8], np.float32), ("scratch", "dent")
FRAME = Frame(1, 1, 0, 0, FrameStatus.COMPLETE, PixelFormat.BGR8, 64, 64, np.zeros((64, 64, 3), np.uint8))


def found(*pairs: tuple[int, float], shift: float = 0.0) -> Detections:
    boxes = [[10 * label + shift, 0.0, 10 * label + 8 + shift, 8.0] for label, _ in pairs]
    return Detections(
        np.array(boxes, np.float32).reshape(-1, 4),
        np.array([score for _, score in pairs], np.float32),
        np.array([label for label, _ in pairs], np.int32),
    )


@pytest.mark.parametrize(
    ("expected", "now", "said"),
    [
        (found((0, 0.5)), found((0, 0.45)), None),
        (found((0, 0.5)), found(), "scratch with 0.50, box [0.0, 0.0, 8.0, 8.0]: not found again"),
        (found((0, 0.5)), found((0, 0.2)), "not found again"),
        (found((0, 0.5)), found((0, 0.5), shift=5), "not found again"),
        (found((0, 0.5), (1, 0.7)), found((0, 0.5)), None),
        (found((0, 0.5)), found((0, 0.5), (1, 0.95)), None),
        (found((0, 0.5)), found((1, 0.5), (0, 0.5)), None),
        (found((1, 0.9)), found((1, 0.9), (0, 0.55)), "not stored"),
        (found((1, 0.9)), found((1, 0.9), (0, 0.45)), None),
    ],
)
def test_each_label_is_held_to_its_own_score(expected: Detections, now: Detections, said: str | None) -> None:
    differs = difference(expected, now, FIRM, LABELS)
    assert (differs is None) if said is None else (differs is not None and said in differs)


@pytest.mark.parametrize("weak", [found(), found((0, 0.29)), found((1, 0.79)), found((1, 0.79), (0, 0.1))])
def test_a_canary_without_a_firm_detection_proves_nothing(weak: Detections) -> None:
    with pytest.raises(InvalidOutput, match="proves nothing"):
        Canary(FRAME, weak, FIRM, LABELS)
    Canary(FRAME, found((0, 0.31)), FIRM, LABELS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    given = Given("toy", "detect", labels=toys.DETECTOR_LABELS, color="RGB", fit="letterbox", scale=1 / 255)
    onnx.save(toys.detector(), tmp_path / "toy.onnx")
    folder = write_folder(import_model(toys.detector(), given, "toy"), given, tmp_path / "toy", tmp_path / "toy.onnx")
    cv2.imwrite(str(folder / "bright.png"), toys.detector_picture([(2, 3)]))
    cv2.imwrite(str(folder / "plain.png"), toys.detector_picture([]))
    return folder


def card_of(folder: Path) -> ModelCard:
    return resolve(Model(path=folder), Preprocess())


def test_what_is_recorded_is_proven_by_the_model_and_by_no_blind_one(folder: Path) -> None:
    record_canary(card_of(folder), "bright.png")
    canary = load_canary(card_of(folder))
    assert canary is not None
    predictor = load(folder)
    assert canary.prove(predictor._engine) is None
    dark = toys.detector()
    for tensor in dark.graph.initializer:
        if tensor.name == "cls8.bias":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array([-30.0, -30.0], np.float32), tensor.name))
    onnx.save(dark, folder.parent / "blind.onnx")
    blind = load_blind(folder, folder.parent / "blind.onnx")
    assert "not found again" in str(canary.prove(blind))


def load_blind(folder: Path, file: Path):  # type: ignore[no-untyped-def]
    from edge_app.engine import Engine
    from edge_app.runtime.cpu import open_cpu

    card, session = card_of(folder), open_cpu(file, None)
    return Engine(session, card.input, card.decoder(session.outputs, np.array([0.25, 0.25], np.float32), card.head))


def test_a_picture_without_anything_clear_is_refused_and_nothing_is_written(folder: Path) -> None:
    before = (folder / "manifest.yaml").read_bytes()
    with pytest.raises(InvalidOutput, match="proves nothing"):
        record_canary(card_of(folder), "plain.png")
    assert (folder / "manifest.yaml").read_bytes() == before
    assert not (folder / "canary.npz").exists()


def test_scores_that_were_raised_past_a_stored_canary_are_told_when_it_is_loaded(folder: Path) -> None:
    record_canary(card_of(folder), "bright.png")
    set_operating(folder, {"bright": 1.0, "dark": 0.5}, {}, "test")
    with pytest.raises(ModelError, match="edge_app model canary"):
        load_canary(card_of(folder))


def test_the_command_records_again_with_the_same_picture(folder: Path, tmp_path: Path) -> None:
    arguments = SimpleNamespace(name=str(folder), picture=None, json=True)
    with pytest.raises(ConfigError, match="--picture"):
        run_canary(arguments)  # type: ignore[arg-type]
    cv2.imwrite(str(tmp_path / "part.png"), toys.detector_picture([(4, 1)]))
    arguments.picture = str(tmp_path / "part.png")
    assert run_canary(arguments) == 0  # type: ignore[arg-type]
    digest = (folder / "canary.npz").read_bytes()
    arguments.picture = None
    assert run_canary(arguments) == 0  # type: ignore[arg-type]
    assert (folder / "canary.npz").read_bytes() == digest
    arguments.picture = str(folder / "canary.png")
    assert run_canary(arguments) == 0, "it is there already"  # type: ignore[arg-type]
    assert (folder / "canary.npz").read_bytes() == digest
    arguments.picture = "nowhere.png"
    with pytest.raises(ConfigError, match="no such picture"):
        run_canary(arguments)  # type: ignore[arg-type]


@pytest.fixture
def colour_folder(tmp_path: Path) -> Path:
    given = Given("colours", "classify", labels=colours.LABELS, **colours.PREPROCESS)  # type: ignore[arg-type]
    onnx.save(colours.classifier(), tmp_path / "colours.onnx")
    made = import_model(colours.classifier(), given, "colours")
    folder = write_folder(made, given, tmp_path / "colours", tmp_path / "colours.onnx")
    cv2.imwrite(str(folder / "green.png"), colours.picture("green"))
    cv2.imwrite(str(folder / "grey.png"), np.full((90, 90, 3), 128, np.uint8))
    return folder


def test_a_classifier_must_give_its_canary_the_same_label_as_surely(colour_folder: Path) -> None:
    record_canary(card_of(colour_folder), "green.png")
    canary = load_canary(card_of(colour_folder))
    assert canary is not None
    engine = load(colour_folder)._engine
    assert canary.prove(engine) is None
    other = "green with 1.00: now 0.10, and blue with 0.90"
    for scores, said in (([0.0, 0.1, 0.9], other), ([0.3, 0.7, 0.0], "now 0.70")):
        engine.decode = lambda _outputs, _geometry, scores=scores: Classes(np.array(scores, np.float32))  # type: ignore[misc]
        assert said in str(canary.prove(engine))
    engine.decode = lambda _outputs, _geometry: Detections.none()
    with pytest.raises(InvalidOutput, match="another kind"):
        canary.prove(engine)


def test_a_picture_that_a_classifier_is_not_sure_of_is_refused(colour_folder: Path) -> None:
    with pytest.raises(InvalidOutput, match="not sure"):
        record_canary(card_of(colour_folder), "grey.png")
    assert not (colour_folder / "canary.npz").exists()


def test_a_canary_is_seen_whole_where_the_pipeline_looks_at_a_part_of_its_frames(colour_folder: Path) -> None:
    record_canary(card_of(colour_folder), "green.png")
    card = card_of(colour_folder)
    canary = load_canary(card)
    assert canary is not None
    session = open_cpu(card.file)
    decode = card.decoder(session.outputs, np.full(3, 0.5, np.float32), card.head)
    assert canary.prove(Engine(session, card.input, decode, region_px=(600, 400, 1200, 1000))) is None


def test_a_recipe_stricter_than_the_canary_does_not_hide_it(folder: Path) -> None:
    record_canary(card_of(folder), "bright.png")
    data = {
        "camera": {"type": "folder", "path": str(folder)},
        "model": {"path": str(folder)},
        "runtime": {"provider": "cpu", "warmup_runs": 0},
        "limits": {"pacing": "offline"},
        "judge": {"default": {"score": 0.9999, "marginal": 0.9998}},
    }
    made = validate(Document(folder / "strict.yaml", data), Pipeline)
    placed = place_model(made, card_of(folder))
    assert placed.mechanic is not None
    assert placed.mechanic.self_test() is None
