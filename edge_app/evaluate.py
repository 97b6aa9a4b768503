"""How good a model is on labelled pictures: mAP, recall, precision; and on a line: escapes and false rejects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_app.config.judge import Judge
from edge_app.detections import Detections
from edge_app.judge import Recipe, judge, make_recipe
from edge_app.toolchain.dataset import Dataset, pictures_in, read_picture, read_truth, spread
from edge_app.toolchain.metrics import Truth, average_precision, operating_point
from edge_app.verdict import Verdict

MAX_DETECTIONS = 1000
Predict = Callable[[npt.NDArray[np.uint8]], Detections]
Track = Callable[[Sequence[Path]], Iterable[Path]]


@dataclass(frozen=True)
class Looked:
    """Detections and truth of every picture, in the same order."""

    files: tuple[Path, ...]
    found: tuple[Detections, ...]
    truth: tuple[Truth, ...]


@dataclass(frozen=True)
class PartVerdicts:
    """Verdicts of one kind of part: defective or good."""

    parts: int
    passed: int
    failed: int
    unknown: int

    @classmethod
    def of(cls, found: Iterable[Detections], recipe: Recipe) -> PartVerdicts:
        """Judges every picture as the line would."""
        verdicts = [judge(one, recipe).verdict for one in found]
        return cls(len(verdicts), *(verdicts.count(v) for v in (Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN)))


def look_at_dataset(
    predict: Predict, dataset: Dataset, labels: Sequence[str], limit: int | None, track: Track
) -> Looked:
    """Runs a model over a split.

    Args:
        predict: BGR picture to detections, down to LOWEST_SCORE.
        dataset: the split.
        labels: of the model.
        limit: look at so many pictures, evenly spread over the list; None: all.
        track: shows progress over files.
    """
    pictures = {picture.file: picture for picture in spread(dataset.pictures, limit)}
    found, truth = [], []
    for file in track(list(pictures)):
        image = read_picture(file)
        found.append(predict(image))
        truth.append(read_truth(pictures[file], image.shape, dataset.names, labels))
    return Looked(tuple(pictures), tuple(found), tuple(truth))


def look_at_good(predict: Predict, folder: Path, stems: set[str] | None, limit: int | None, track: Track) -> Looked:
    """Runs a model over defect-free pictures: those of a folder, or only the ones whose names are in `stems`.

    A folder of templates often holds those of every split; taking only the names that the looked-at split has keeps
    the two comparable.
    """
    files = pictures_in(folder)
    matching = [file for file in files if stems is not None and file.stem in stems]
    files = spread(matching or files, limit)
    found = tuple(predict(read_picture(file)) for file in track(files))
    return Looked(tuple(files), found, tuple(Truth.none() for _ in files))


def good_parts(looked: Looked, good: Looked | None) -> Looked | None:
    """All defect-free pictures: the split's own, and those of `--good`; None without any."""
    clean = [index for index, truth in enumerate(looked.truth) if not len(truth)]
    own = Looked(
        tuple(looked.files[i] for i in clean),
        tuple(looked.found[i] for i in clean),
        tuple(looked.truth[i] for i in clean),
    )
    if good is None:
        return own if clean else None
    return Looked(own.files + good.files, own.found + good.found, own.truth + good.truth)


def report(
    looked: Looked,
    good: Looked | None,
    labels: tuple[str, ...],
    score: Mapping[str, float],
    marginal: Mapping[str, float],
) -> dict[str, object]:
    """All figures, under stable keys; rates are shares of 0..1."""
    recipe = make_recipe(Judge(), labels, score, marginal)
    precision = average_precision(looked.found, looked.truth, labels)
    point = operating_point(
        looked.found, looked.truth, labels, {label: float(s) for label, s in zip(labels, recipe.score, strict=True)}
    )
    defective = [found for found, truth in zip(looked.found, looked.truth, strict=True) if len(truth)]
    verdicts = PartVerdicts.of(defective, recipe)
    document: dict[str, object] = {
        "images": precision.images,
        "map50": round(precision.map50, 4),
        "map50_95": round(precision.map50_95, 4),
        "recall50": round(point.recall50, 4),
        "precision50": round(point.precision50, 4),
        "by_label": {
            label: {"ap50": round(a, 4), "ap50_95": round(b, 4)} for label, (a, b) in precision.by_label.items()
        },
        "defective_parts": verdicts.parts,
        "escapes": verdicts.passed,
        "escape_rate": rate(verdicts.passed, verdicts.parts),
        "defective_unknown": verdicts.unknown,
    }
    if good is not None:
        fine = PartVerdicts.of(good.found, recipe)
        document |= {
            "good_parts": fine.parts,
            "false_rejects": fine.failed,
            "false_reject_rate": rate(fine.failed, fine.parts),
            "good_unknown": fine.unknown,
        }
    return document


def rate(part: int, whole: int) -> float | None:
    """A share, rounded; None of nothing."""
    return round(part / whole, 4) if whole else None
