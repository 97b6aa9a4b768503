"""pcb-defect on the simulated HTP of one SoC, on ten parts of the synthetic line: the shipped files, as shipped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def model(*arguments: object) -> dict[str, object]:
    command = [sys.executable, "-P", "-m", "edge_app", "model", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    return document


def test_quantised_model_is_made_again_from_its_encodings() -> None:
    assert model("quantize", "pcb-defect", "--from-encodings")["ok"] is True


@pytest.mark.slow
def test_htp_plan_holds_every_gate_and_no_verdict_flips(tmp_path: Path) -> None:
    # On ten parts one box that is a few pixels off is worth two points of mAP: 100 pictures hold 1.5 % (the manifest).
    ten = ("--limit", 10, "--loss", "3%")
    report = model("verify", "pcb-defect", "--soc", "qcs8550", "--plans", "htp", *ten, "--cache", tmp_path)
    assert report["ok"] is True
    rungs = report["rungs"]
    assert isinstance(rungs, list)
    assert [(rung["rung"], rung["images"]) for rung in rungs] == [
        ("float", 10),
        ("qdq on cpu", 10),
        ("htp qcs8550", 10),
    ]
    assert rungs[2]["cosine"] > 0.99
    assert rungs[2]["verdicts_flipped"] == []
