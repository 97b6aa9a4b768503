"""The plans of a pipeline with two models: those kinds that both have, each opened as one engine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from edge_app.canary import Canary, firm_scores, load_canary
from edge_app.config.detector import Detector
from edge_app.config.pipeline import Model, Pipeline
from edge_app.config.tensor import Preprocess
from edge_app.engine import Engine
from edge_app.errors import ConfigError, ModelError
from edge_app.judge import DEFAULT_SCORE
from edge_app.model import ModelCard, resolve
from edge_app.plans import Options, StartAlarm, plan_options
from edge_app.two_stage import TwoStageEngine


def detector_card(detector: Detector) -> ModelCard:
    """The model of a pipeline's `detector:`.

    Raises:
        ModelError: absent or damaged.
        ConfigError: no detector, or one without the labels that are asked for.
    """
    card = resolve(Model(path=detector.path), Preprocess())
    if card.task != "detect":
        raise ConfigError(
            "a classifier finds no boxes", where=str(detector.path), wanted="task: detect", got=f"task: {card.task}"
        )
    if unknown := sorted(set(detector.labels or ()) - set(card.labels)):
        raise ConfigError(
            f"detector.labels names labels that the detector has not: {', '.join(unknown)}",
            where=str(detector.path),
            wanted=f"labels out of {', '.join(card.labels)}",
        )
    return card


def two_stage_options(
    pipeline: Pipeline, card: ModelCard, thresholds: npt.NDArray[np.float32], kept_out: StartAlarm | None
) -> Options:
    """As `plans.plan_options`, for `pipeline.detector` and the classifier `card` together.

    A switch between plans needs the agreement of both models.

    Raises:
        ConfigError: the classifier can't take crops of any size.
        ModelError: there is no kind of plan that both models have.
    """
    detector = pipeline.detector
    assert detector is not None
    if card.input.method == "area":
        raise ConfigError(
            "area averaging only reduces, and a crop may be smaller than the classifier's input",
            where=str(card.file),
            wanted="method: antialias or bilinear",
            got="method: area",
        )
    first_card = detector_card(detector)
    wanted = first_card.labels if detector.labels is None else detector.labels
    labels = frozenset(first_card.labels.index(label) for label in wanted)
    first = plan_options(pipeline, first_card, detector_thresholds(detector, first_card), kept_out)
    crops = pipeline.model_copy(update={"preprocess": pipeline.preprocess.model_copy(update={"region_px": None})})
    second = plan_options(crops, card, thresholds, kept_out)
    both = [kind for kind in first.openers if kind in second.openers]
    if not both:
        raise ModelError(
            "the two models have no plan of one kind",
            wanted=f"{first_card.name}: {', '.join(first.openers)}",
            got=f"{card.name}: {', '.join(second.openers)}",
        )

    def opener(one: Callable[[], Engine], other: Callable[[], Engine]) -> Callable[[], Engine]:
        largest = pipeline.decision is not None
        return lambda: TwoStageEngine(one(), other(), detector, labels, largest=largest)

    return Options(
        openers={kind: opener(first.openers[kind], second.openers[kind]) for kind in both},
        agrees=[pair for pair in first.agrees if pair in second.agrees],
        reason=first.reason,
        soc=first.soc,
        simulated=first.simulated or second.simulated,
        degraded=first.degraded | second.degraded,
        alarms=list(dict.fromkeys([*first.alarms, *second.alarms])),
    )


def detector_canary(detector: Detector) -> Canary | None:
    """The canary of the detector; None if it has none, or if `detector.score` asks for more than it was recorded for.

    Raises:
        ModelError: see `load_canary`.
    """
    card = detector_card(detector)
    return load_canary(card) if (detector_thresholds(detector, card) <= firm_scores(card)).all() else None


def detector_thresholds(detector: Detector, card: ModelCard) -> npt.NDArray[np.float32]:
    """[C] the score that a box needs, by the detector's labels."""
    scores = [detector.score or card.score.get(label, DEFAULT_SCORE) for label in card.labels]
    return np.array(scores, np.float32)
