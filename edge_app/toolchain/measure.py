"""How good a set of outputs is: the same pictures, decode and metric for every rung from float to the device."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import eq
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from edge_app.config.judge import Judge
from edge_app.config.pipeline import Model
from edge_app.config.tensor import HeadSpec, InputSpec, OutputSpec, Preprocess
from edge_app.detections import Classes, Detections
from edge_app.errors import ConfigError
from edge_app.judge import judge, make_recipe
from edge_app.model import ModelCard, resolve
from edge_app.preprocess import Geometry
from edge_app.runtime.base import TensorInfo
from edge_app.runtime.ort import keep_products_exact
from edge_app.toolchain.calibration import tensor
from edge_app.toolchain.dataset import Dataset, read_picture, read_truth, spread
from edge_app.toolchain.metrics import LOWEST_SCORE, Truth, average_precision

Array = npt.NDArray[Any]
Outputs = tuple[Array, ...]
Found = Detections | Classes
Step = Callable[[int, int], None]
PSEUDO_TRUTH_SCORE = 0.3
"""Without labels, what the float model finds at or above this is taken as the truth to agree with."""
SURE_AT = 0.6
"""A classifier's label with less is told by no line, unless its pipeline says so: `detector.sure_at`, and below
`decision.name_at`."""
UNSURE = " (unsure)"


@dataclass(frozen=True)
class Sample:
    """One picture and, if it is labelled, what is in it."""

    name: str
    sha256: str
    picture: npt.NDArray[np.uint8]
    truth: Truth | None = None
    label: str | None = None
    """Of a classifier's picture, as its folder names it."""


@dataclass(frozen=True, slots=True)
class Side:
    """How one version of the model takes pictures and gives outputs."""

    image: InputSpec
    head: HeadSpec
    outputs: tuple[OutputSpec, ...]


def read_card(folder: Path) -> ModelCard:
    """A model folder as the run time resolves it, with no detection cut off."""
    return resolve(Model(path=folder, max_detections=1000), Preprocess())


def samples_of(files: Sequence[Path]) -> list[Sample]:
    """Unlabelled pictures."""
    return [Sample(file.name, _digest(file), read_picture(file)) for file in files]


def in_folders(files: Sequence[Path], labels: Sequence[str]) -> list[Sample]:
    """Pictures LABEL/FILE of a classifier; unlabelled if any lies elsewhere than in the folder of a label."""
    samples = samples_of(files)
    named = [file.parent.name for file in files]
    if not set(named) <= set(labels):
        return samples
    return [replace(sample, label=label) for sample, label in zip(samples, named, strict=True)]


def labelled(dataset: Dataset, labels: Sequence[str], limit: int | None) -> list[Sample]:
    """Pictures of a split, evenly spread over its list if limited."""
    result = []
    for picture in spread(dataset.pictures, limit):
        pixels = read_picture(picture.file)
        truth = read_truth(picture, pixels.shape, dataset.names, labels)
        result.append(Sample(picture.file.name, _digest(picture.file), pixels, truth))
    return result


def run_cpu(
    model: Path | bytes, image: InputSpec, samples: Sequence[Sample], step: Step = lambda _done, _of: None
) -> list[Outputs]:
    """Outputs of a model on the CPU for every sample."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    keep_products_exact(options)
    source = model if isinstance(model, bytes) else str(model)
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    results = []
    for done, sample in enumerate(samples, 1):
        results.append(tuple(session.run(None, {image.name: tensor(sample.picture, image)[0]})))
        step(done, len(samples))
    return results


def real(outputs: Outputs, specs: Sequence[OutputSpec]) -> tuple[npt.NDArray[np.float32], ...]:
    """Outputs as float32: real = (q - zero_point) * scale."""
    return tuple(
        output.astype(np.float32)
        if spec.quant_scale is None or spec.quant_zero_point is None
        else (output.astype(np.int32) - spec.quant_zero_point).astype(np.float32) * np.float32(spec.quant_scale)
        for output, spec in zip(outputs, specs, strict=True)
    )


def decoded(card: ModelCard, side: Side, outputs: Sequence[Outputs], samples: Sequence[Sample]) -> list[Found]:
    """What a version of the model found in every sample, by the decode of the run time."""
    infos = tuple(
        TensorInfo(spec.name, tuple(array.shape), array.dtype, spec.quant_scale, spec.quant_zero_point)
        for spec, array in zip(side.outputs, outputs[0], strict=True)
    )
    decode = card.decoder(infos, np.full(len(card.labels), LOWEST_SCORE, np.float32), side.head)
    return [
        decode(tuple(np.ascontiguousarray(array) for array in one), geometry(sample, side.image))
        for one, sample in zip(outputs, samples, strict=True)
    ]


def geometry(sample: Sample, image: InputSpec) -> Geometry:
    """Where the sample's picture lands in the input."""
    return tensor(sample.picture, image)[1]


def metric(
    card: ModelCard, found: Sequence[Found], reference: Sequence[Found], samples: Sequence[Sample]
) -> tuple[str, float]:
    """(name, value 0..1) of the task's metric.

    Detectors: mAP50-95 against the labels, or without labels against what the float model finds. Classifiers: how often
    the best class is the label (top-1), or without labels the float model's.
    """
    if isinstance(reference[0], Classes):
        best = [card.labels[one.best] for one in found if isinstance(one, Classes)]
        if all(sample.label is not None for sample in samples):
            wanted = [sample.label for sample in samples]
            return "top1", sum(map(eq, best, wanted)) / len(samples)
        floats = [card.labels[one.best] for one in reference if isinstance(one, Classes)]
        return "top1_agreement", sum(map(eq, best, floats)) / len(samples)
    boxes = [one for one in found if isinstance(one, Detections)]
    if all(sample.truth is not None for sample in samples):
        truth = [sample.truth for sample in samples if sample.truth is not None]
        return "map50_95", average_precision(boxes, truth, card.labels).map50_95
    return "map50_95_to_float", average_precision(boxes, pseudo_truth(reference), card.labels).map50_95


def pseudo_truth(reference: Sequence[Found]) -> list[Truth]:
    """What the float model finds with some certainty.

    Raises:
        ConfigError: nothing in any picture, so agreement can't be measured.
    """
    truth = []
    for one in reference:
        if isinstance(one, Detections):
            sure = one.scores >= PSEUDO_TRUTH_SCORE
            truth.append(Truth(one.boxes_px[sure], one.labels[sure]))
    if not any(len(one) for one in truth):
        raise ConfigError(
            "the float model finds nothing in these pictures, so nothing can be compared",
            wanted="pictures with objects that the model knows",
            got=f"{len(reference)} pictures",
        )
    return truth


def verdicts(card: ModelCard, found: Sequence[Found]) -> list[str]:
    """The verdict of every picture at the manifest's operating scores; for classifiers the best label.

    A label whose score is below SURE_AT is marked with UNSURE: no line would tell it.
    """
    recipe = make_recipe(Judge(), card.labels, card.score, card.marginal)
    return [
        card.labels[one.best] + UNSURE * bool(one.scores[one.best] < SURE_AT)
        if isinstance(one, Classes)
        else str(judge(one, recipe).verdict)
        for one in found
    ]


def contradict(one: str, other: str) -> bool:
    """Whether two verdicts of a picture differ in what a line would tell.

    Two labels that are both unsure are the same `unknown` to a line; a label that another plan is less sure of makes it
    hesitate, and no more. A near tie can fall either way on any two chips, so it must not keep a line from switching.
    """
    return one.removesuffix(UNSURE) != other.removesuffix(UNSURE) and not (
        one.endswith(UNSURE) and other.endswith(UNSURE)
    )


def cosine(a: Sequence[Array], b: Sequence[Array]) -> list[float]:
    """Cosine of each output of one picture to its counterpart; 1 for two zero vectors."""
    return [_cosine(x.ravel().astype(np.float64), y.ravel().astype(np.float64)) for x, y in zip(a, b, strict=True)]


def _cosine(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> float:
    lengths = float(np.linalg.norm(x) * np.linalg.norm(y))
    if lengths == 0:
        return 1.0 if not x.any() and not y.any() else 0.0
    return float(x @ y) / lengths


def noise_to_signal(measured: Sequence[Outputs], wanted: Sequence[Outputs]) -> float:
    """Power of the error over the power of the signal about its mean, mean over outputs and pictures."""
    shares = [
        float(np.square(a - b).sum() / max(float(np.square(b - b.mean()).sum()), 1e-12))
        for one, other in zip(measured, wanted, strict=True)
        for a, b in zip(one, other, strict=True)
    ]
    return float(np.mean(shares))


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
