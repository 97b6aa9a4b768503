"""Imports run one way, and what only one place may know is known only there."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "edge_app"

ALLOWED = {
    "onnxruntime_qnn": {"runtime/qnn.py"},
    "zmq": {"results", "client", "commands", "bench"},
    "aiohttp": {"monitor"},
    "prometheus_client": {"monitor"},
    "torch": set(),
    "ultralytics": {"toolchain"},
    "onnx": {"toolchain"},
    "matplotlib": {"toolchain", "simulation", "bench"},
}


def imported(file: Path) -> set[str]:
    """Top-level names that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("module", sorted(ALLOWED))
def test_only_its_own_place_knows_it(module: str) -> None:
    users = {str(f.relative_to(PACKAGE)) for f in PACKAGE.rglob("*.py") if module in imported(f)}
    strangers = {u for u in users if not any(u == a or u.startswith(f"{a}/") for a in ALLOWED[module])}
    assert strangers == set()


def test_only_video_opens_captures() -> None:
    texts = {str(file.relative_to(PACKAGE)): file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py")}
    users = {name for name, text in texts.items() if "VideoCapture" in text}
    assert users <= {"camera/video.py"}


def test_layers_hold() -> None:
    script = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([script], capture_output=True, text=True, check=False, cwd=PACKAGE.parent)
    assert result.returncode == 0, result.stdout


def test_a_running_line_imports_no_training_or_graph_package() -> None:
    code = (
        "import sys, edge_app.app, edge_app.commands.run_pipeline, edge_app.camera.synthetic, edge_app.camera.folder;"
        "print([m for m in ('torch', 'onnx', 'ultralytics', 'matplotlib', 'pycocotools') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_line_without_pages_loads_no_web_server() -> None:
    code = (
        "import sys, edge_app.app, edge_app.commands.run_pipeline;"
        "print([m for m in ('aiohttp', 'prometheus_client', 'edge_app.monitor') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_nothing_is_told_to_the_maker_of_the_inference_library(toy_model: Path, tmp_path: Path) -> None:
    """Its telemetry leaves an identifier and a queue in the home folder of whoever does not switch it off."""
    code = f"import edge_app, numpy; edge_app.load({str(toy_model)!r})(numpy.zeros((64, 64, 3), numpy.uint8))"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("ORT_", "XDG_"))}
    subprocess.run([sys.executable, "-P", "-c", code], env=environment | {"HOME": str(tmp_path)}, check=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
