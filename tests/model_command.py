"""`edge_app model` run in a folder, as a person would, and pictures for the toy networks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import toys

Model = Callable[..., subprocess.CompletedProcess[str]]

LABELS = "--labels", "labels.txt"
DETECTS = "--task", "detect", "--color", "RGB", "--fit", "letterbox", "--scale", 1 / 255
CLASSIFIES = "--task", "classify", "--color", "RGB", "--fit", "stretch", "--scale", 1 / 255
"""What `import` must be told of the toys."""


def in_folder(folder: Path) -> Model:
    def model(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "edge_app", "model", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300, check=False)

    return model


def document(done: subprocess.CompletedProcess[str], code: int = 0) -> dict[str, Any]:
    assert done.returncode == code, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def draw(folder: Path, count: int) -> Path:
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(count):
        cells = [tuple(random.integers(0, 7, 2).tolist()) for _ in range(number % 4)]
        cv2.imwrite(str(folder / f"{number:03}.png"), toys.detector_picture(cells, seed=number))
    return folder
