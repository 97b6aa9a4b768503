"""Two models on one frame, through the line: a toy detector finds bright squares, a toy classifier names colours."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import colours
import cv2
import numpy as np
import pytest
import toys
from hypothesis import given
from hypothesis import strategies as st
from line_bench import OFFLINE, Kept, Pictures, run

from edge_app.canary import record_canary
from edge_app.config.detector import Detector
from edge_app.config.judge import ClassRule, Judge
from edge_app.config.pipeline import Model, Pipeline
from edge_app.config.save import edit_manifest
from edge_app.config.tensor import Preprocess
from edge_app.detections import Classes, Detections
from edge_app.engine import Engine, Work
from edge_app.errors import ConfigError, InvalidOutput
from edge_app.frame import Frame, FrameStatus, PixelFormat
from edge_app.judge import judge_classes, judge_crops, make_recipe
from edge_app.line import Line
from edge_app.model import resolve
from edge_app.placed import Placed, place_model
from edge_app.plans_two_stage import detector_card
from edge_app.preprocess.geometry import Region
from edge_app.two_stage import TwoStageEngine, crop_region
from edge_app.verdict import PlanKind, PowerMode, Reason

TINTS = {"red": (180, 180, 255), "green": (180, 255, 180), "blue": (255, 180, 180)}
GREY = (252, 252, 252)


def picture(*squares: tuple[int, int, tuple[int, int, int]]) -> np.ndarray:
    """Noise, and bright 16 px squares at 8 px cells x, y, each of a BGR colour."""
    image = toys.detector_picture([])
    for x, y, colour in squares:
        image[8 * y : 8 * y + 16, 8 * x : 8 * x + 16] = colour
    return image


def frame(pixels: np.ndarray) -> Frame:
    return Frame(1, 1, 0, 0, FrameStatus.COMPLETE, PixelFormat.BGR8, pixels.shape[1], pixels.shape[0], pixels)


def pipeline(folder: Path, toy_model: Path, **sections: object) -> Pipeline:
    rules = {"red": {"max_count": 0}, "green": {"max_count": 9}, "blue": {"max_count": 9}}
    given_sections: dict[str, object] = {
        "decision": None, "gate": None, "detector": {"path": str(toy_model), "margin": 0.0},
        "judge": {"classes": rules}, **sections,
    }  # fmt: skip
    return colours.pipeline(folder, **given_sections)


def placed(made: Pipeline) -> Placed:
    return place_model(made, resolve(made.model, made.preprocess))


def found_by(made: Placed, pixels: np.ndarray) -> Detections | Classes:
    engine = made.engines[PlanKind.CPU]
    work = engine.bind()
    engine.preprocess(frame(pixels), work)
    engine.run(work, PowerMode.NONE)
    return engine.result(work)


def test_each_crop_is_named_in_its_place(tmp_path: Path, toy_model: Path) -> None:
    found = found_by(placed(pipeline(tmp_path, toy_model)), picture((1, 1, TINTS["red"]), (5, 5, TINTS["blue"])))
    assert isinstance(found, Detections)
    named = {colours.LABELS[label]: box for label, box in zip(found.labels, found.boxes_px, strict=True)}
    assert set(named) == {"red", "blue"}
    assert (named["red"][:2] < 24).all()
    assert (named["blue"][2:] > 40).all()
    assert (np.diff(found.scores) <= 0).all()
    assert found.unsure == 0


def test_through_the_line_each_frame_has_its_verdict(tmp_path: Path, toy_model: Path) -> None:
    made = pipeline(tmp_path, toy_model)
    ready, kept = placed(made), Kept()
    shown = [
        picture((2, 2, TINTS["green"])), picture((2, 2, TINTS["green"]), (5, 5, TINTS["red"])),
        picture((2, 2, GREY)), picture(),
    ]  # fmt: skip
    line = Line(
        Pictures(iter(shown)), ready.engines, ready.placer, ready.recipes.own.inspection, kept, OFFLINE, 60_000
    )  # fmt: skip
    run(line)
    ready.stop()
    assert kept.reasons == [Reason.OK, Reason.DEFECT, Reason.MARGINAL, Reason.NO_PART]
    assert [defect.label for defect in kept.results[0].defects] == ["green"]
    assert kept.results[2].detail == "1 crops without a sure label"
    assert kept.results[3].detail == "0 crops, wanted at least 1"


def test_before_a_decision_the_largest_crop_speaks(tmp_path: Path, toy_model: Path) -> None:
    made = placed(pipeline(tmp_path, toy_model, decision={}, judge={}))
    small, large = (0, 0, TINTS["red"]), (4, 4, TINTS["green"])
    pixels = picture(small, large, (5, 5, TINTS["green"]))
    pixels[0:16, 0:8] = 30  # half of the red one is covered
    found = found_by(made, pixels)
    assert isinstance(found, Classes)
    assert colours.LABELS[found.best] == "green"
    assert found.crops == 2
    assert judge_classes(found, colours.LABELS).detail == "2 are there: the largest is named"
    nobody = found_by(made, picture())
    assert judge_classes(nobody, colours.LABELS).reason is Reason.NO_PART


def test_where_the_detector_gave_not_all_it_found_the_largest_is_not_known(tmp_path: Path, toy_model: Path) -> None:
    """What was cut off had lower scores, but may be larger: naming what is left would name somebody else."""
    engine = placed(pipeline(tmp_path, toy_model, decision={}, judge={})).engines[PlanKind.CPU]
    assert isinstance(engine, TwoStageEngine)
    detector = engine.both[0]
    whole = detector.result
    detector.result = lambda work: replace(whole(work), truncated=True)  # type: ignore[method-assign]
    work = engine.bind()
    for pixels in (picture((4, 4, TINTS["green"])), picture()):
        engine.preprocess(frame(pixels), work)
        engine.run(work, PowerMode.NONE)
        assert judge_classes(engine.result(work), colours.LABELS).reason is Reason.INVALID_OUTPUT


def test_only_boxes_of_the_wanted_labels_are_cropped(tmp_path: Path, toy_model: Path) -> None:
    made = placed(pipeline(tmp_path, toy_model, detector={"path": str(toy_model), "labels": ["other"]}))
    found = found_by(made, picture((2, 2, TINTS["red"])))
    assert isinstance(found, Detections)
    assert len(found) == 0


def test_more_crops_than_allowed_are_never_cut_in_silence(tmp_path: Path, toy_model: Path) -> None:
    made = placed(pipeline(tmp_path, toy_model, detector={"path": str(toy_model), "most": 1}))
    found = found_by(made, picture((1, 1, TINTS["green"]), (5, 5, TINTS["red"])))
    assert isinstance(found, Detections)
    assert found.truncated
    rules = make_recipe(Judge(default=ClassRule(max_count=9)), colours.LABELS)
    assert judge_crops(found, rules, 1).reason is Reason.INVALID_OUTPUT


def test_a_crop_below_its_labels_score_is_not_overlooked() -> None:
    """To a detector's judge a low score is nothing; a crop is there, whatever it is."""
    rules = make_recipe(Judge(classes={"red": ClassRule(score=0.9, marginal=0.8)}), colours.LABELS)
    crop = Detections(np.zeros((1, 4), np.float32), np.array([0.7], np.float32), np.zeros(1, np.int32))
    assert judge_crops(crop, rules, 1).reason is Reason.MARGINAL
    assert judge_crops(crop, rules, 2).reason is Reason.NO_PART


def test_what_a_model_gives_that_is_no_result_is_told_as_such(tmp_path: Path, toy_model: Path) -> None:
    engine = placed(pipeline(tmp_path, toy_model)).engines[PlanKind.CPU]
    assert isinstance(engine, TwoStageEngine)

    def damaged(*_arguments: object) -> Classes:
        raise InvalidOutput("NaN")

    engine._second.decode = damaged  # type: ignore[method-assign]
    work = engine.bind()
    engine.preprocess(frame(picture((2, 2, TINTS["red"]))), work)
    engine.run(work, PowerMode.NONE)
    with pytest.raises(InvalidOutput, match="NaN"):
        engine.result(work)


def thin_ones_do_not_fit(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> list[Region]:
    """The classifier takes no crop of its left edge; which crops it was given."""
    assert isinstance(engine, TwoStageEngine)
    take, regions = engine._second.preprocess, []

    def preprocess(shown: Frame, work: Work, region_px: Region | None = None) -> None:
        assert region_px is not None
        regions.append(region_px)
        if region_px[0] < 8:
            raise ConfigError("this frame can't be put into this tensor")
        take(shown, work, region_px)

    monkeypatch.setattr(engine._second, "preprocess", preprocess)
    return regions


def test_a_crop_that_does_not_fit_makes_its_frame_unsure_and_is_no_fault(
    tmp_path: Path, toy_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = placed(pipeline(tmp_path, toy_model))
    regions = thin_ones_do_not_fit(monkeypatch, made.engines[PlanKind.CPU])
    found = found_by(made, picture((0, 1, TINTS["green"]), (5, 5, TINTS["blue"])))
    assert isinstance(found, Detections)
    assert {colours.LABELS[label] for label in found.labels} == {"blue"}
    assert found.unsure == len(regions) - len(found) > 0
    rules = make_recipe(Judge(default=ClassRule(max_count=9)), colours.LABELS)
    assert judge_crops(found, rules, 1).reason is Reason.MARGINAL


@pytest.mark.parametrize(
    "box", [[-50, 10, -10, 30], [10, 64, 30, 90], [30, 30, 10, 10], [0, 0, 0, 0], [20.2, 20.2, 20.6, 20.4]]
)
def test_a_box_of_which_nothing_can_be_seen_is_never_named_by_what_stands_beside_it(
    tmp_path: Path, toy_model: Path, box: list[float]
) -> None:
    """Everything in the picture is green, and may be there nine times."""
    engine = placed(pipeline(tmp_path, toy_model)).engines[PlanKind.CPU]
    assert isinstance(engine, TwoStageEngine)
    seen = [16, 16, 32, 32]
    boxes = Detections(np.array([seen, box], np.float32), np.array([0.9, 0.8], np.float32), np.zeros(2, np.int32))
    engine.both[0].result = lambda _work: boxes  # type: ignore[method-assign]
    work = engine.bind()
    engine.preprocess(frame(np.full((64, 64, 3), TINTS["green"], np.uint8)), work)
    engine.run(work, PowerMode.NONE)
    found = engine.result(work)
    assert isinstance(found, Detections)
    assert (len(found), found.unsure) == (1, 1)
    rules = make_recipe(Judge(default=ClassRule(max_count=9)), colours.LABELS)
    assert judge_crops(found, rules, 1).reason is Reason.MARGINAL


def test_before_a_decision_a_crop_that_does_not_fit_is_somebody(
    tmp_path: Path, toy_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = placed(pipeline(tmp_path, toy_model, decision={}, judge={}))
    thin_ones_do_not_fit(monkeypatch, made.engines[PlanKind.CPU])
    told = judge_classes(found_by(made, picture((0, 1, TINTS["green"]))), colours.LABELS)
    assert (told.reason, told.classes) == (Reason.MARGINAL, None)
    assert "can't be put into the classifier" in told.detail


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"detector": {"path": "{toy}", "labels": ["purple"]}}, "purple"),
        ({"preprocess": {**colours.PREPROCESS, "method": "area"}}, "only reduces"),
        ({"runtime": {"provider": "null"}}, "two models"),
        ({"model": {"path": "{toy}"}, "preprocess": {}}, "a detector's boxes are no labels"),
    ],
)
def test_models_that_do_not_go_together_are_refused(
    tmp_path: Path, toy_model: Path, sections: dict[str, dict[str, object]], words: str
) -> None:
    filled = {
        name: {key: str(toy_model) if value == "{toy}" else value for key, value in section.items()}
        for name, section in sections.items()
    }
    with pytest.raises(ConfigError) as caught:
        placed(pipeline(tmp_path, toy_model, **filled))
    assert words in str(caught.value)


def test_the_detectors_half_is_proven_by_its_canary(tmp_path: Path, toy_model: Path) -> None:
    detector = shutil.copytree(toy_model, tmp_path / "detector")
    cv2.imwrite(str(detector / "canary.png"), toys.detector_picture([(2, 3)], seed=6))
    record_canary(resolve(Model(path=detector), Preprocess()), "canary.png")
    section = {"path": str(detector), "margin": 0.0}
    made = placed(pipeline(tmp_path, toy_model, detector=section))
    assert made.has_canary
    assert made.mechanic is not None
    assert made.mechanic.self_test() is None
    engine = made.engines[PlanKind.CPU]
    assert isinstance(engine, TwoStageEngine)
    engine.both[0].decode = lambda _outputs, _geometry: Detections.none()
    assert "not found again" in (made.mechanic.self_test() or "")
    for without in ({**section, "score": 0.999}, {"path": str(toy_model)}):
        assert not placed(pipeline(tmp_path, toy_model, detector=without)).has_canary


def test_a_canary_of_lower_scores_than_the_line_decodes_is_left_out(tmp_path: Path, toy_model: Path) -> None:
    """Without scores in the manifest it is recorded down to 0.25, and the line asks for 0.5."""
    detector = shutil.copytree(toy_model, tmp_path / "detector")
    edit_manifest(detector, lambda tree: tree.pop("operating"))
    cv2.imwrite(str(detector / "canary.png"), toys.detector_picture([(2, 3)], seed=6))
    record_canary(resolve(Model(path=detector), Preprocess()), "canary.png")
    assert not placed(pipeline(tmp_path, toy_model, detector={"path": str(detector), "margin": 0.0})).has_canary


def test_a_classifier_finds_no_boxes(tmp_path: Path, toy_model: Path) -> None:
    made = pipeline(tmp_path, toy_model)
    text = (toy_model / "manifest.yaml").read_text()
    other = tmp_path / "classifier"
    other.mkdir()
    (other / "manifest.yaml").write_text(text.replace("task: detect", "task: classify"))
    (other / "model.onnx").write_bytes((toy_model / "model.onnx").read_bytes())
    assert made.detector is not None
    with pytest.raises(ConfigError, match="finds no boxes"):
        detector_card(made.detector.model_copy(update={"path": other}))


@given(
    st.tuples(*[st.floats(-20, 120, width=32)] * 4), st.floats(0, 2), st.integers(1, 100), st.integers(1, 100)
)  # fmt: skip
def test_a_crop_is_always_inside_the_frame(corners: tuple[float, ...], margin: float, width: int, height: int) -> None:
    x0, x1 = sorted((corners[0], corners[2]))
    y0, y1 = sorted((corners[1], corners[3]))
    shown = Frame(1, 1, 0, 0, FrameStatus.COMPLETE, PixelFormat.GRAY8, width, height)
    left, top, right, bottom = crop_region(np.array([x0, y0, x1, y1], np.float32), margin, shown)
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    if x0 >= 0 and x1 <= width:
        assert left <= x0
        assert right >= x1


def test_the_section_says_what_it_takes() -> None:
    assert Detector(path=Path("models/person")).fewest == 1, "finding nothing is no good part, unless it is said to be"
