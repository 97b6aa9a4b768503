"""`edge_app eval --choose-thresholds` says what it wrote, and what it could not measure."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edge_app.cli import main

MODEL = Path(__file__).parents[3] / "models" / "pcb-defect"


def test_scores_chosen_without_good_parts_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = tmp_path / "mine", tmp_path / "data"
    model.mkdir()
    for name in ("manifest.yaml", "model.onnx"):
        shutil.copy(MODEL / name, model)
    for folder in ("images", "labels"):
        (data / folder).mkdir(parents=True)
    shutil.copy(MODEL / "canary.png", data / "images" / "a.png")
    (data / "labels" / "a.txt").write_text("1 0.5 0.5 0.1 0.1\n")
    names = "[open, short, mousebite, spur, copper, pin-hole]"
    (data / "data.yaml").write_text(f"path: .\nval: images\nnames: {names}\n")
    before = (model / "manifest.yaml").read_text()
    assert main(["eval", "--model", str(model), "--data", str(data), "--choose-thresholds"]) in (0, 1)
    told = " ".join(capsys.readouterr().err.split())
    assert "no defect-free picture was looked at (--good DIR)" in told
    assert "manifest.yaml; a new recipe.rev" in told
    assert (model / "manifest.yaml").read_text() != before
