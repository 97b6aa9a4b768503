"""What all tests share: where real data is, and the toy model as files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import onnx
import pytest
import toys

import edge_app  # noqa: F401 - before any test imports onnxruntime: it switches that one's telemetry off


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--data", type=Path, default=None, metavar="DIR",
        help="folder with deeppcb/, neu-det/, video/, models/: tests on real pictures run only with it",
    )  # fmt: skip


@pytest.fixture(scope="session")
def data_folder(pytestconfig: pytest.Config) -> Path:
    """Real pictures, video and models; without `--data` the test is skipped."""
    folder: Path | None = pytestconfig.getoption("--data")
    if folder is None:
        pytest.skip("needs real data: pytest tests --data=DIR")
    if not (folder / "deeppcb").is_dir():
        pytest.fail(f"--data {folder}: there is no deeppcb/ in it")
    return folder.resolve()


MANIFEST = """\
name: toy
task: detect
input: {{name: images, width: 64, height: 64}}
outputs:
  - {{name: {output}, shape: {shape}}}
head: {{kind: yolov8, strides: [8, 16]}}
labels: [bright, other]
operating:
  score: {{bright: 0.5, other: 0.9}}
  marginal: {{bright: 0.25, other: 0.9}}
float_model: {{file: model.onnx, sha256: {sha256}}}
"""


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with the toy detector: it finds white squares, and says so with label `bright`."""
    folder = tmp_path_factory.mktemp("models") / "toy"
    folder.mkdir()
    model = toys.detector()
    onnx.save(model, folder / "model.onnx")
    sha256 = hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest()
    shape = [dimension.dim_value for dimension in model.graph.output[0].type.tensor_type.shape.dim]
    (folder / "manifest.yaml").write_text(
        MANIFEST.format(output=model.graph.output[0].name, shape=shape, sha256=sha256)
    )
    return folder
