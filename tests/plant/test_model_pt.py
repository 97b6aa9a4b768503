"""An Ultralytics .pt by one command. Needs the extra [train], which CI does without."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

SIZE = 64


def imported(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "edge_app", "model", "import", "net.pt", "--name", "net"]
    command += ["--task", "detect", "--no-ops", "--json", *more]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600, check=False)


def test_a_trained_pt_becomes_a_model_folder(tmp_path: Path) -> None:
    ultralytics = pytest.importorskip("ultralytics", reason="the extra [train] is not installed")
    ultralytics.YOLO("yolov8n.yaml").save(tmp_path / "net.pt")
    done = imported(tmp_path, "--size", f"{SIZE}x{SIZE}")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["head"] == "yolov8"
    assert (document["input"]["width"], document["input"]["color"]) == (SIZE, "RGB")
    assert len(document["labels"]) == 80
    assert document["metadata"]["stride"] == "32"
    assert any("quantize cuts it before the DFL" in note for note in document["notes"])
    model = onnx.load(tmp_path / "models/net/model.onnx")
    assert [d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim] == [1, 84, 64 + 16 + 4]
    assert not any(node.op_type == "BatchNormalization" for node in model.graph.node)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["models", "net.pt"]


def test_a_pt_that_is_none_is_one_clear_error(tmp_path: Path) -> None:
    pytest.importorskip("ultralytics", reason="the extra [train] is not installed")
    (tmp_path / "net.pt").write_bytes(b"not a checkpoint")
    done = imported(tmp_path)
    assert done.returncode == 4
    assert "can't export this .pt file" in done.stderr
    assert "Traceback" not in done.stderr.split("Ultralytics can't export")[-1]


def test_without_ultralytics_the_remedy_is_told(tmp_path: Path) -> None:
    try:
        import ultralytics  # noqa: F401
    except ImportError:
        (tmp_path / "net.pt").write_bytes(b"")
        done = imported(tmp_path)
        assert (done.returncode, "edge_app[train]" in done.stderr) == (4, True)
    else:
        pytest.skip("Ultralytics is installed")
    (tmp_path / "net.pt").unlink()
    assert "no such file" in imported(tmp_path).stderr
