"""Plans that are built again while a line runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import toys

from edge_app.config.pipeline import Model
from edge_app.config.tensor import Preprocess
from edge_app.errors import ModelError
from edge_app.model import resolve
from edge_app.plans import open_plan
from edge_app.verdict import PlanKind

SCORES = np.array([0.5, 0.5], np.float32)


@pytest.mark.parametrize("kind", ["folder", "bare"])
def test_a_model_that_was_replaced_under_the_line_is_not_taken_for_the_one_before(
    toy_model: Path, tmp_path: Path, kind: str
) -> None:
    """A plan that faults is loaded again, after days perhaps: its results named the model that was there before."""
    shutil.copytree(toy_model, tmp_path / "toy")
    file = tmp_path / "toy" / "model.onnx"
    if kind == "folder":
        model, preprocess = Model(path=file.parent), Preprocess()
    else:
        model = Model(path=file, labels=("bright", "dark"), head="yolov8")
        preprocess = Preprocess(color="RGB", fit="letterbox", scale=1 / 255)
    card = resolve(model, preprocess)
    open_plan(card, PlanKind.CPU, None, SCORES).session.close()
    onnx.save(toys.detector(seed=1), file)
    with pytest.raises(ModelError, match="the model's file was replaced while the line runs"):
        open_plan(card, PlanKind.CPU, None, SCORES)
    file.unlink()
    with pytest.raises(ModelError):
        open_plan(card, PlanKind.CPU, None, SCORES)
