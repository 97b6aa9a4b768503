"""Recipes: the judge's rules by name and revision; another one is prepared beside the one in force, then activated."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_app.canary import firm_scores
from edge_app.config.base import Section
from edge_app.config.judge import Judge
from edge_app.config.load import load_manifest, read_yaml, validate
from edge_app.config.pipeline import Pipeline
from edge_app.errors import ConfigError
from edge_app.frame import Frame
from edge_app.frame_guard import make_guard
from edge_app.inspection import Inspection
from edge_app.judge import Recipe, judge, judge_classes, judge_crops, make_recipe
from edge_app.model import ModelCard
from edge_app.motion import Look, MotionGate
from edge_app.verdict import Judgement, Reason


class RecipeFile(Section):
    """A recipe by itself: the `judge:` section of a pipeline."""

    judge: Judge


@dataclass(frozen=True)
class Prepared:
    """A recipe that is ready to judge."""

    name: str
    rev: str
    inspection: Inspection


class Recipes:
    """The recipes that a pipeline names, its own first."""

    def __init__(self, pipeline: Pipeline, name: str, card: ModelCard) -> None:
        """`name` is what the pipeline's own recipe is called.

        Raises:
            ConfigError: a recipe of the same name, or one that is not valid for the model.
        """
        if name in pipeline.recipes:
            raise ConfigError(
                f"recipes: {name!r} is this pipeline's own recipe", remedy="give the other one another name"
            )
        self._own, self._name, self._files, self._card = pipeline.judge, name, pipeline.recipes, card
        self.labels = card.labels
        self._decision, self._detector = pipeline.decision, pipeline.detector
        self.gate = None if pipeline.gate is None else MotionGate(pipeline.gate, pipeline.preprocess.region_px)
        """The motion gate; one for the line, since it remembers the scene."""
        sections = (pipeline.decision, pipeline.gate, pipeline.detector)
        self._more = [part.model_dump_json(exclude={"path"}) for part in sections if part is not None]
        self._more.append(pipeline.preprocess.model_dump_json())
        self._more.append(f"{card.iou} {card.class_agnostic_nms} {card.max_detections}")
        if pipeline.detector is not None:
            manifest = load_manifest(pipeline.detector.path)
            self._more.append(manifest.float_model.sha256)
            self._more.append("" if manifest.operating is None else manifest.operating.model_dump_json())
        self.own = self._prepare(name, pipeline.judge)
        self.others = {other: self.load(other) for other in pipeline.recipes}
        rules = [self._rules(name, pipeline.judge)]
        rules += [self._rules(other, self._read(other)) for other in pipeline.recipes]
        needed = [one.thresholds for one in rules]
        if card.task == "detect" and card.manifest is not None and card.manifest.canary is not None:
            needed.append(firm_scores(card))
        self.thresholds = np.min(needed, axis=0)
        """[C] what the decoders must still return, for any of them and for the canary."""

    @property
    def names(self) -> tuple[str, ...]:
        """The pipeline's own first."""
        return (self._name, *self._files)

    def load(self, name: str) -> Prepared:
        """Reads a recipe from its file, as it stands now.

        Raises:
            ConfigError: there is no such recipe, it is not valid, or it asks for scores below what is decoded.
        """
        if name == self._name:
            return self.own
        section = self._read(name)
        thresholds = getattr(self, "thresholds", None)
        if thresholds is not None and bool((self._rules(name, section).thresholds < thresholds).any()):
            raise ConfigError(f"recipe {name} asks for lower scores than this run decodes", remedy="restart the node")
        return self._prepare(name, section)

    def ready(self, name: str) -> Prepared:
        """A recipe as it was when the model was loaded."""
        return self.own if name == self._name else self.others[name]

    def _read(self, name: str) -> Judge:
        file: Path | None = self._files.get(name)
        if file is None:
            raise ConfigError(f"there is no recipe {name!r}", wanted=", ".join([self._name, *self._files]), got=name)
        return validate(read_yaml(file), RecipeFile).judge

    def _rules(self, name: str, section: Judge) -> Recipe:
        file = self._files.get(name)
        where = None if file is None else str(file)
        return make_recipe(section, self._card.labels, self._card.score, self._card.marginal, where)

    def _prepare(self, name: str, section: Judge) -> Prepared:
        rules = self._rules(name, section)
        guard, labels = make_guard(section.guard), self._card.labels  # first: it says what is wrong with the file
        rev = revision(section, rules, *self._more)
        if self._decision is None and self._detector is not None:
            fewest = self._detector.fewest
            return Prepared(name, rev, Inspection(guard, lambda found: judge_crops(found, rules, fewest), (name, rev)))
        if self._decision is None:
            return Prepared(name, rev, Inspection(guard, lambda found: judge(found, rules), (name, rev)))
        guard = guard if self.gate is None else gated(guard, self.gate)
        return Prepared(name, rev, Inspection(guard, lambda found: judge_classes(found, labels), (name, rev)))


Guard = Callable[[Frame], Judgement | None]


def gated(guard: Guard, gate: MotionGate) -> Guard:
    """The frame guard, then the motion gate: no inference where nothing can be seen, or where nothing is new."""

    def look(frame: Frame) -> Judgement | None:
        finding = guard(frame)
        if finding is not None:
            return finding
        said = gate.see(frame)
        if said is Look.EMPTY:
            return Judgement(Reason.NO_PART, "nobody is there")
        return None if said.inferred else Judgement(Reason.NOT_RUNNING, f"the motion gate: {said}", gated=True)

    return look


def revision(section: Judge, rules: Recipe, *others: str) -> str:
    """`sha256:` of all that decides: the section, the scores in force, the guard file's bytes, and other sections."""
    digest = hashlib.sha256(section.model_dump_json(exclude={"guard"}).encode())
    for other in others:
        digest.update(other.encode())
    digest.update(rules.score.tobytes() + rules.marginal.tobytes())
    if section.guard is not None:
        digest.update(section.guard.read_bytes())
    return f"sha256:{digest.hexdigest()}"
