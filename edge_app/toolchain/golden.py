"""The pictures that `verify` takes when none are given: drawn by seed, so that nothing has to be shipped."""

from __future__ import annotations

import hashlib

import numpy as np

from edge_app.camera import pcb
from edge_app.config.manifest import Manifest
from edge_app.errors import ConfigError
from edge_app.toolchain.measure import Sample
from edge_app.toolchain.metrics import Truth

PICTURES = 10


def golden_samples(manifest: Manifest, limit: int | None) -> tuple[list[Sample], str]:
    """Drawn PCB parts, good and bad, for a model that was trained to see their defects; and what they are called.

    Raises:
        ConfigError: the model's labels are not those of the drawn line, so there is nothing to verify it on.
    """
    if manifest.task != "detect" or not set(pcb.LABELS) <= set(manifest.labels):
        raise ConfigError(
            "there are no pictures to verify this model on",
            where=manifest.name,
            wanted="--data DIR: a YOLO data set, or a folder of pictures of the line",
            got="a model whose labels the synthetic line does not draw",
        )
    count = PICTURES if limit is None else limit
    return [_sample(manifest, number) for number in range(count)], f"synthetic line, {count} parts"


def _sample(manifest: Manifest, number: int) -> Sample:
    seed = pcb.examining_seed(number)
    drawn = pcb.draw(pcb.DEFAULT_PRODUCT, seed)
    boxes = np.array([defect.box_px for defect in drawn.defects], np.float32).reshape(-1, 4)
    labels = np.array([manifest.labels.index(defect.label) for defect in drawn.defects], np.int32)
    digest = hashlib.sha256(drawn.image.tobytes()).hexdigest()
    return Sample(f"synthetic product={pcb.DEFAULT_PRODUCT} seed={seed}", digest, drawn.image, Truth(boxes, labels))
