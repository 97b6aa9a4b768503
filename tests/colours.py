"""A toy classifier that names the colour of what it sees, and pictures for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import toys

from edge_app.config.load import Document, validate
from edge_app.config.pipeline import Pipeline

LABELS = ("red", "green", "blue")
PREPROCESS = {"color": "RGB", "fit": "stretch", "method": "antialias", "scale": 1 / 255}


def classifier(gain: float = 60.0) -> onnx.ModelProto:
    """Probabilities [1, 3] of a picture [1, 3, 32, 32]: softmax of the mean of each channel, times `gain`."""
    g = toys.Graph(0)
    pooled = g.node("Flatten", "flat", [g.node("GlobalAveragePool", "pool", ["images"])])
    scores = g.node("MatMul", "gain", [pooled, g.constant("gain.weight", gain * np.eye(3))])
    return g.model([1, 3, 32, 32], g.node("Softmax", "softmax", [scores], axis=-1), [1, 3])


def picture(label: str, rows: int = 120, columns: int = 90, seed: int = 0) -> np.ndarray:
    """A garment of one colour, BGR uint8, with some texture."""
    image = np.random.default_rng(seed).integers(0, 60, (rows, columns, 3)).astype(np.uint8)
    image[..., 2 - LABELS.index(label)] += 150
    return image


def write_pictures(folder: Path, each: int) -> Path:
    """A folder LABEL/PICTURE, `each` of every label; and a list of them. Returns the list."""
    lines = []
    for label in LABELS:
        (folder / label).mkdir(parents=True)
        for number in range(each):
            cv2.imwrite(str(folder / label / f"{number}.png"), picture(label, seed=number))
            lines.append(f"{label}/{number}.png")
    (folder / "list.txt").write_text("\n".join(lines) + "\n")
    return folder / "list.txt"


def pipeline(folder: Path, **sections: Any) -> Pipeline:
    """A pipeline over the toy classifier, whose file is written into `folder`; sections replace its own."""
    file = folder / "colours.onnx"
    onnx.save(classifier(), file)
    data: dict[str, Any] = {
        "camera": {"type": "folder", "path": str(folder)},
        "model": {"path": str(file), "task": "classify", "labels": list(LABELS)},
        "preprocess": PREPROCESS,
        "runtime": {"provider": "cpu", "threads": 1, "warmup_runs": 0},
        "decision": {},
        "gate": {},
        "results": {"publish": None, "commands": None},
        "limits": {"pacing": "offline", "slots": 2},
        **sections,
    }
    return validate(Document(folder / "colours.yaml", {k: v for k, v in data.items() if v is not None}), Pipeline)
