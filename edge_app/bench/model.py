"""What a frame of the model costs the NPU, beside the same network as an exporter and onnxruntime's defaults make it.

Cycles are the simulated HTP's: they compare plans, they are no board's time. Needs the extra [toolchain].
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2

from edge_app.bench.figures import Figures, Options
from edge_app.camera.pcb import DEFAULT_PRODUCT, draw, examining_seed
from edge_app.config.load import load_pipeline
from edge_app.config.manifest import Manifest
from edge_app.errors import ConfigError
from edge_app.model import resolve

SOC = "qcs8550"
PICTURES = 8


def figures(options: Options) -> Iterator[Figures]:
    """A row for each recipe, the shipped one last."""
    from edge_app.toolchain.compare import compare
    from edge_app.toolchain.measure import samples_of
    from edge_app.toolchain.socs import soc_named

    folder, manifest = model_of(options)
    with tempfile.TemporaryDirectory() as name:
        files = []
        for seed in range(PICTURES):
            files.append(Path(name, f"{seed}.png"))
            cv2.imwrite(str(files[-1]), draw(DEFAULT_PRODUCT, examining_seed(seed)).image)
        rows = compare(folder, manifest, samples_of(files), files, [soc_named(SOC)], silent)
    naive, shipped = rows[0], rows[-1]
    for row in rows:
        key = "".join(c if c.isalnum() else "_" for c in row.recipe.lower().replace("'", ""))
        yield Figures(f"model_{key}", f"{manifest.name}, {row.recipe}, simulated {SOC}", {
            "cycles": row.cycles[SOC],
            "bytes_in_and_out": row.io_bytes,
            "transposes": row.transposes[SOC],
            "macs_8bit": row.macs.a8,
            "macs_16bit": row.macs.a16,
            "macs_float": row.macs.in_float,
            row.metric: round(row.value, 4),
        })  # fmt: skip
    yield Figures("model", f"{manifest.name}, the naive export over the shipped plan", {
        "ratio_cycles": round(naive.cycles[SOC] / shipped.cycles[SOC], 3),
        "ratio_bytes": round(naive.io_bytes / shipped.io_bytes, 3),
    })  # fmt: skip


def model_of(options: Options) -> tuple[Path, Manifest]:
    """The pipeline's model. Raises ConfigError if it is a bare ONNX file."""
    pipeline = load_pipeline(options.pipeline, list(options.overrides))
    card = resolve(pipeline.model, pipeline.preprocess)
    if card.folder is None or card.manifest is None:
        raise ConfigError("only a model folder has plans to compare", where=str(card.file), remedy="import the model")
    return card.folder, card.manifest


def silent(_label: str) -> Callable[[int, int], None]:
    """Progress that nobody sees."""
    return lambda _done, _of: None
