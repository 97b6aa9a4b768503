"""A pipeline: everything that `edge_app --pipeline FILE` needs to know, checked before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from edge_app.config.base import Section, YamlPath, without_password
from edge_app.config.camera import Camera
from edge_app.config.detector import Detector
from edge_app.config.judge import ClassRule, Judge
from edge_app.config.mirror import Decision, Gate
from edge_app.config.monitor import Monitor
from edge_app.config.results import Results, Station
from edge_app.config.runtime import Limits, Runtime
from edge_app.config.scheduler import Scheduler
from edge_app.config.tensor import HeadKind, Preprocess
from edge_app.config.update import Update


class Model(Section):
    """Which model, and for a bare ONNX file what its manifest would say."""

    path: YamlPath = Field(
        title="Model",
        description="A model folder (with manifest.yaml), a folder of several sizes, or a bare .onnx file.",
    )
    size: tuple[int, int] | None = Field(
        None,
        title="Size",
        description="Width, height of the input, px: which of a folder of several sizes; null: the smallest that takes"
        " preprocess.region_px, else the camera's frame, unshrunk; or the only one.",
    )
    task: Literal["detect", "classify"] | None = Field(None, title="Task", description="Bare ONNX only; null: detect.")
    head: HeadKind | None = Field(
        None, title="Head", description="Bare ONNX only; null: recognised by the shape of the outputs."
    )
    labels: tuple[str, ...] | None = Field(None, title="Labels", description="Bare ONNX only, in the model's order.")
    labels_file: YamlPath | None = Field(
        None, title="Labels file", description="Bare ONNX only: one label a line, in the model's order."
    )
    iou: float | None = Field(None, gt=0, lt=1, title="NMS IoU", description="null: the manifest's, else 0.6.")
    class_agnostic_nms: bool = Field(False, title="NMS over all classes")
    max_detections: int = Field(
        300, ge=1, le=10_000, title="Most detections", description="More is UNKNOWN, never cut."
    )


class Pipeline(Section):
    """One inspection line."""

    station: Station = Field(default_factory=lambda: Station(), title="Station")
    camera: Camera = Field(
        title="Camera",
        description="type: video (an RTSP stream, a V4L2 device, or a file), gige (GigE Vision), folder (pictures),"
        " synthetic (the built-in line), or mirror (a drawn one).",
    )
    preprocess: Preprocess = Field(default_factory=lambda: Preprocess(), title="Preprocess")
    model: Model = Field(title="Model")
    detector: Detector | None = Field(
        None,
        title="Detector",
        description="Finds where to look: `model`, a classifier, then names each of its boxes. null: one stage.",
    )
    runtime: Runtime = Field(default_factory=lambda: Runtime(), title="Runtime")
    scheduler: Scheduler = Field(default_factory=lambda: Scheduler(), title="Scheduler")
    judge: Judge = Field(default_factory=lambda: Judge(), title="Judge")
    recipes: dict[str, YamlPath] = Field(
        default_factory=dict,
        title="Other recipes",
        description="Name: YAML file with a `judge:` section. A controller may switch to one at a frame boundary.",
    )
    decision: Decision | None = Field(
        None,
        title="Decision",
        description="For classifiers: one stable label over many frames, in place of a verdict for each. null: parts.",
    )
    gate: Gate | None = Field(
        None,
        title="Motion gate",
        description="No inference while nothing moves; only with `decision`, since it skips frames. null: every frame.",
    )
    results: Results = Field(default_factory=lambda: Results(), title="Results")
    monitor: Monitor = Field(default_factory=Monitor, title="Monitor")
    update: Update = Field(default_factory=Update, title="Update")
    limits: Limits = Field(title="Limits")
    _file: str | None = PrivateAttr(None)
    _places: dict[tuple[str | int, ...], str] = PrivateAttr(default_factory=dict)

    def read_from(self, file: Path, places: dict[tuple[str | int, ...], str]) -> Self:
        """Keeps which file it was read from, and where each key stands."""
        self._file, self._places = str(file), places
        return self

    @property
    def file(self) -> str | None:
        """The YAML; None: not from a file."""
        return self._file

    @property
    def places(self) -> dict[tuple[str | int, ...], str]:
        """`file:line` by key path."""
        return self._places

    @model_validator(mode="after")
    def _pacing_fits_camera(self) -> Self:
        if (
            self.limits.pacing == "offline"
            and self.camera.type == "video"
            and is_live(self.camera.path, self.camera.live)
        ):
            raise ValueError(
                f"limits.pacing: offline is for folders, files and the synthetic camera;"
                f" {without_password(self.camera.path)} is live"
                " and does not wait"
            )
        return self

    @model_validator(mode="after")
    def _two_stages_run(self) -> Self:
        if self.detector is not None and self.runtime.provider == "null":
            raise ValueError("runtime.provider: null replays one recorded output; with `detector` there are two models")
        return self

    @model_validator(mode="after")
    def _no_part_is_skipped(self) -> Self:
        """What works over many frames never stands where each frame is a part."""
        if self.decision is None:
            if self.monitor.live:
                raise ValueError("monitor.live: /mirror shows a decision over many frames, and there is no `decision`")
            if self.gate is not None:
                raise ValueError(
                    "gate: a motion gate skips frames, and without `decision` each frame is a part that must have its"
                    " verdict: remove `gate`, or add `decision` (a classifier's, which needs no verdict for each frame)"
                )
            return self
        if self.judge.classes or self.judge.regions or self.judge.default != ClassRule():
            raise ValueError(
                "decision: labels are smoothed over frames, and rules for defects stand in `judge`: a part could be"
                " passed by its neighbours; remove `decision`, or the rules (judge.guard may stay)"
            )
        if self.recipes:
            raise ValueError("decision: there are no other recipes to change to: remove `recipes`")
        if self.limits.trigger == "software":
            raise ValueError("decision: a stable decision is the trigger: set limits.trigger: camera")
        if self.gate is not None and self.gate.keep_alive_s >= self.decision.hold_s:
            raise ValueError(
                f"gate.keep_alive_s {self.gate.keep_alive_s:g} is not below decision.hold_s {self.decision.hold_s:g}:"
                " a label would go while somebody stands still"
            )
        return self


def is_live(source: str, declared: bool | None) -> bool:
    """Whether a video source gives frames in its own time: streams and devices do, files do not."""
    if declared is not None:
        return declared
    return "://" in source or source.isdecimal() or source.startswith("/dev/")
