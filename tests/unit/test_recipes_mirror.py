"""The recipe of a pipeline that decides over many frames: guard, gate, and one frame's scores."""

from __future__ import annotations

from pathlib import Path

import colours
import numpy as np
import pytest

from edge_app.detections import Classes, Detections
from edge_app.errors import ConfigError, RuntimeFault
from edge_app.frame import Frame, FrameStatus, PixelFormat
from edge_app.model import resolve
from edge_app.motion import Look
from edge_app.recipes import Recipes
from edge_app.verdict import Reason, Verdict


def recipes(folder: Path, **sections: object) -> Recipes:
    pipeline = colours.pipeline(folder, **sections)
    return Recipes(pipeline, "colours", resolve(pipeline.model, pipeline.preprocess))


def frame(pixels: np.ndarray, second: float) -> Frame:
    now = round(second * 1e6)
    return Frame(1, 1, now, now, FrameStatus.COMPLETE, PixelFormat.BGR8, pixels.shape[1], pixels.shape[0], pixels)


def room(person: str | None = None) -> np.ndarray:
    image = np.full((160, 120, 3), 90, np.uint8)
    image[:, ::20] = 200  # a striped wall
    if person is not None:
        image[20:140, 15:105] = colours.picture(person)
    return np.ascontiguousarray(image)


def test_the_gate_stands_behind_the_guard(tmp_path: Path) -> None:
    made = recipes(tmp_path)
    guard = made.own.inspection.guard
    nobody = guard(frame(room(), 0.0))
    assert nobody is not None
    assert (nobody.reason, nobody.gated) == (Reason.NO_PART, False)
    assert guard(frame(room("red"), 0.1)) is None
    paced = guard(frame(room("red"), 0.12))
    assert paced is not None
    assert paced.gated
    assert paced.verdict is Verdict.UNKNOWN
    dark = guard(frame(np.zeros((160, 120, 3), np.uint8), 0.2))
    assert dark is not None
    assert dark.reason is Reason.BAD_IMAGE
    assert made.gate is not None
    assert made.gate.counts == {Look.EMPTY: 1, Look.MOVING: 1, Look.PACED: 1}, "the dark frame never came to the gate"


def test_without_a_gate_every_frame_is_inferred(tmp_path: Path) -> None:
    made = recipes(tmp_path, gate=None)
    assert made.gate is None
    assert [made.own.inspection.guard(frame(room(), k / 10)) for k in range(3)] == [None] * 3


def test_one_frames_scores_are_unknown_by_themselves(tmp_path: Path) -> None:
    judgement = recipes(tmp_path).own.inspection.judge(Classes(np.array([0.25, 0.5, 0.25], np.float32)))
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.classes == (("red", 0.25), ("green", 0.5), ("blue", 0.25))


BOX = Detections(np.zeros((1, 4), np.float32), np.ones(1, np.float32), np.zeros(1, np.int32))


@pytest.mark.parametrize("found", [BOX, Classes(np.array([1.0], np.float32))])
def test_what_no_such_classifier_finds_is_a_fault(tmp_path: Path, found: Detections | Classes) -> None:
    with pytest.raises(RuntimeFault, match="something else"):
        recipes(tmp_path).own.inspection.judge(found)


def test_the_revision_covers_decision_and_gate(tmp_path: Path) -> None:
    revisions = {
        recipes(tmp_path, **sections).own.rev
        for sections in ({}, {"decision": {"dwell_s": 0.6}}, {"gate": {"step": 9}}, {"gate": None})
    }
    assert len(revisions) == 4


def test_the_revision_covers_where_the_line_looks(tmp_path: Path) -> None:
    stated = {"color": "RGB", "fit": "stretch", "scale": 1 / 255}
    regions = [None, [0, 0, 64, 64], [0, 0, 64, 60]]
    revisions = {recipes(tmp_path, preprocess={**stated, "region_px": region}).own.rev for region in regions}
    assert len(revisions) == 3


def test_a_guard_file_that_is_not_there_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.json"):
        recipes(tmp_path, judge={"guard": str(tmp_path / "absent.json")})
