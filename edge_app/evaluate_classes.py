"""How good a classifier is on labelled pictures: top-1, calibration, confusion, and agreement with the float model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_app.camera.mirror_scenes import listed_pictures
from edge_app.detections import Classes
from edge_app.errors import ConfigError
from edge_app.toolchain.dataset import read_picture

Predict = Callable[[npt.NDArray[np.uint8]], Classes]
Track = Callable[[Sequence[tuple[Path, str]]], Iterable[tuple[Path, str]]]
BINS = 15
Z95 = 1.96


@dataclass(frozen=True)
class LookedAt:
    """Probabilities [N, C] of every picture, and the index [N] of its true label."""

    scores: npt.NDArray[np.float32]
    truth: npt.NDArray[np.int64]

    @property
    def best(self) -> npt.NDArray[np.int64]:
        """[N] the label that was found."""
        found: npt.NDArray[np.int64] = self.scores.argmax(axis=1)
        return found


def read_lists(lists: Sequence[Path], labels: Sequence[str], limit: int | None) -> list[tuple[Path, str]]:
    """Pictures and labels of lists or folders (LABEL/PICTURE); `limit`: so many, evenly spread.

    Raises:
        CameraError: none are there.
        ConfigError: labels that the model has not.
    """
    pictures = [one for path in lists for one in listed_pictures(path)]
    if unknown := sorted({label for _, label in pictures} - set(labels)):
        raise ConfigError("labels that the model has not", wanted=", ".join(labels), got=", ".join(unknown))
    if limit is None or limit >= len(pictures):
        return pictures
    return [pictures[int(index)] for index in np.linspace(0, len(pictures) - 1, limit).round()]


def look_at(
    predicts: Sequence[Predict], pictures: Sequence[tuple[Path, str]], labels: Sequence[str], track: Track
) -> list[LookedAt]:
    """Runs every version of a model over the same pictures."""
    scores: list[list[npt.NDArray[np.float32]]] = [[] for _ in predicts]
    for file, _ in track(pictures):
        picture = read_picture(file)
        for predict, found in zip(predicts, scores, strict=True):
            found.append(predict(picture).scores)
    truth = np.array([list(labels).index(label) for _, label in pictures], np.int64)
    return [LookedAt(np.stack(found), truth) for found in scores]


def report(looked: LookedAt, reference: LookedAt | None, labels: Sequence[str]) -> dict[str, Any]:
    """The figures, by stable keys; intervals are of 95 %. `reference`: the float model on the same pictures."""
    right = looked.best == looked.truth
    confusion = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(confusion, (looked.truth, looked.best), 1)
    document: dict[str, Any] = {
        "pictures": len(right),
        "top1": round(float(right.mean()), 4),
        "top1_95": [round(edge, 4) for edge in wilson(int(right.sum()), len(right))],
        "ece": round(calibration_error(looked), 4),
        "confusion": {label: [int(n) for n in row] for label, row in zip(labels, confusion, strict=True)},
    }
    if reference is not None:
        loss = (reference.best == reference.truth).astype(int) - right.astype(int)
        document |= {
            "float_top1": round(float((reference.best == reference.truth).mean()), 4),
            "loss": round(float(loss.mean()), 4),
            "loss_95": [round(edge, 4) for edge in paired_interval(loss)],
            "top1_agreement": round(float((looked.best == reference.best).mean()), 4),
        }
    return document


def calibration_error(looked: LookedAt) -> float:
    """Expected calibration error: the gap of confidence to accuracy, averaged over 15 bins of confidence."""
    confidence = looked.scores.max(axis=1)
    gap = confidence - (looked.best == looked.truth)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return float(sum(abs(gap[bins == one].sum()) for one in range(BINS)) / len(gap))


def wilson(right: int, of: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927)."""
    share, z = right / of, Z95
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return middle - half, middle + half


def paired_interval(differences: npt.NDArray[np.int64]) -> tuple[float, float]:
    """95 % interval of the mean of paired differences (-1, 0, 1 each), by their own spread."""
    mean = float(differences.mean())
    half = Z95 * float(differences.std(ddof=1)) / math.sqrt(len(differences)) if len(differences) > 1 else 1.0
    return mean - half, mean + half
