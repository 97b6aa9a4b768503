"""The figures of a classifier, on scores whose figures are known; and the command on the toy classifier."""

from __future__ import annotations

import json
from pathlib import Path

import colours
import numpy as np
import onnx
import pytest

from edge_app.cli import main
from edge_app.errors import ConfigError, ExitCode
from edge_app.evaluate_classes import LookedAt, calibration_error, paired_interval, read_lists, report, wilson


def looked(*rows: tuple[int, int, float]) -> LookedAt:
    """Rows of true label, found label and its probability, of two labels."""
    scores = np.array([[p if k == found else 1 - p for k in range(2)] for _, found, p in rows], np.float32)
    return LookedAt(scores, np.array([true for true, _, _ in rows], np.int64))


def test_accuracy_and_confusion() -> None:
    told = report(looked((0, 0, 0.9), (0, 1, 0.8), (1, 1, 0.7), (1, 1, 0.6)), None, ("a", "b"))
    assert (told["pictures"], told["top1"]) == (4, 0.75)
    assert told["confusion"] == {"a": [1, 1], "b": [0, 2]}
    assert "loss" not in told


def test_calibration_error() -> None:
    """Ten answers at 0.75 of which nine are right, ten at 0.95 of which all are."""
    low = [(0, 0, 0.75)] * 9 + [(1, 0, 0.75)]
    assert calibration_error(looked(*low)) == pytest.approx(0.15, abs=1e-6)
    assert calibration_error(looked(*low, *[(0, 0, 0.95)] * 10)) == pytest.approx((0.15 + 0.05) / 2, abs=1e-6)
    assert calibration_error(looked((0, 0, 1.0))) == 0.0


def test_loss_against_the_float_model() -> None:
    floats = looked((0, 0, 0.9), (0, 0, 0.9), (1, 1, 0.9), (1, 0, 0.9))
    quantised = looked((0, 0, 0.9), (0, 1, 0.9), (1, 1, 0.9), (1, 1, 0.9))
    told = report(quantised, floats, ("a", "b"))
    assert (told["float_top1"], told["top1"], told["loss"]) == (0.75, 0.75, 0.0)
    assert told["top1_agreement"] == 0.5
    assert told["loss_95"][0] < 0 < told["loss_95"][1]


def test_intervals() -> None:
    low, high = wilson(92, 100)
    assert (low, high) == (pytest.approx(0.8501, abs=1e-3), pytest.approx(0.9590, abs=1e-3))
    assert wilson(10, 10)[0] == pytest.approx(0.7225, abs=1e-3)
    assert paired_interval(np.zeros(50, np.int64)) == (0.0, 0.0)
    assert paired_interval(np.array([1])) == (0.0, 2.0), "one picture says nothing"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The toy classifier as the toolchain makes a model folder of it."""
    onnx.save(colours.classifier(), tmp_path / "colours.onnx")
    (tmp_path / "labels.txt").write_text("\n".join(colours.LABELS))
    command = ["model", "import", str(tmp_path / "colours.onnx"), "--name", "colours", "--task", "classify"]
    command += ["--labels", str(tmp_path / "labels.txt"), "--color", "RGB", "--fit", "stretch", "--scale", "0.00392157"]
    assert main([*command, "--method", "antialias", "--models", str(tmp_path / "models"), "--no-ops"]) == ExitCode.OK
    return tmp_path / "models" / "colours"


def test_the_command(tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures = colours.write_pictures(tmp_path / "pictures", 2)
    capsys.readouterr()
    assert main(["eval-classes", "--model", str(model), "--pictures", str(pictures), "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert (told["pictures"], told["top1"]) == (6, 1.0)
    assert told["confusion"] == {"red": [2, 0, 0], "green": [0, 2, 0], "blue": [0, 0, 2]}
    assert told["top1_95"] == [pytest.approx(0.6097, abs=1e-3), 1.0]
    assert main(["eval-classes", "--model", str(model), "--pictures", str(pictures.parent), "--limit", "2"]) == 0
    assert "Confusion" in capsys.readouterr().out
    asked = ["eval-classes", "--model", str(model), "--pictures", str(pictures), "--runtime", "quantized"]
    assert main(asked) == ExitCode.MODEL
    assert "model quantize" in capsys.readouterr().err


def test_lists_are_read_together_and_thinned_evenly(tmp_path: Path) -> None:
    pictures = colours.write_pictures(tmp_path / "pictures", 3)
    assert len(read_lists([pictures, pictures], colours.LABELS, None)) == 18
    assert [label for _, label in read_lists([pictures], colours.LABELS, 3)] == ["red", "green", "blue"]
    with pytest.raises(ConfigError, match="labels that the model has not"):
        read_lists([pictures], ("red", "green"), None)
