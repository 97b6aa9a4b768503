"""`models/<name>/manifest.yaml`: what a model is, where it came from, and which files run it where."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from edge_app.config.base import Section
from edge_app.config.tensor import HeadSpec, InputSpec, OutputSpec
from edge_app.verdict import PlanKind

Sha256 = str


class Artifact(Section):
    """A file of the model's folder, bound by its digest."""

    file: str = Field(title="File", description="Relative to the manifest.")
    sha256: Sha256 = Field(pattern=r"^[0-9a-f]{64}$", title="Digest")


class Licence(Section):
    """What may be done with the model."""

    weights: str
    data: str
    note: str = ""


class Operating(Section):
    """Scores at which the model is run, chosen on a validation list, never on test."""

    score: dict[str, float] = Field(title="FAIL at", description="By label: a detection at or above this is a defect.")
    marginal: dict[str, float] = Field(
        default_factory=dict, title="MARGINAL at", description="By label: at or above this, and below `score`: UNKNOWN."
    )
    iou: float = Field(0.6, gt=0, lt=1, title="NMS IoU")
    chosen_on: str = Field("", title="Chosen on", description="Data, split and command.")


class Measured(Section):
    """An accuracy that was measured, and how."""

    on: str = Field(title="Data and split")
    runtime: str = Field(title="Plan and SoC", description="e.g. cpu, or htp qcs8550 (simulated)")
    images: int
    metrics: dict[str, float]
    command: str = ""


class Canary(Section):
    """A stored inference: outputs of the float model for one drawn picture. The null session replays it."""

    file: str
    sha256: Sha256 = Field(pattern=r"^[0-9a-f]{64}$")
    picture: str = Field(title="Picture", description="How its input is made again, e.g. `synthetic product=1 seed=2`.")


class Toolversions(Section):
    """What compiled an artifact."""

    onnxruntime: str
    onnxruntime_qnn: str
    qairt: str


class Plan(Section):
    """One way to run the model: a plan of one SoC."""

    plan: PlanKind
    soc: str | None = Field(None, title="SoC", description="Name of the SoC table; null for the cpu plan.")
    artifacts: tuple[Artifact, ...] = Field(min_length=1, title="Files", description="The first is what is loaded.")
    embedded_in_git: bool = Field(True, title="Shipped", description="False: made again by `edge_app model compile`.")
    input: InputSpec | None = Field(None, title="Input", description="Where it differs from the model's.")
    head: HeadSpec | None = Field(None, title="Head", description="Where it differs from the model's.")
    outputs: tuple[OutputSpec, ...] | None = Field(None, title="Outputs", description="Where they differ.")
    tools: Toolversions | None = None
    host_ops: tuple[str, ...] = Field((), title="Host ops", description="Op kinds planned to run on the CPU.")
    host_nodes: tuple[str, ...] = Field((), title="Host nodes", description="Single nodes planned to run on the CPU.")
    report: dict[str, float | int | str | list[str]] = Field(
        default_factory=dict, title="Report", description="Segments, crossings, bytes, cycles, float ops, fused ops."
    )
    agrees_with: tuple[PlanKind, ...] = Field(
        (), title="Agrees with", description="Plans whose verdicts on the golden set were the same at build time."
    )


class Manifest(Section):
    """A model and all its plans."""

    schema_version: Literal[1] = 1
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    version: str = "1"
    task: Literal["detect", "classify"]
    description: str = ""
    origin: str = Field("", title="Origin", description="Where the weights and the data came from.")
    licence: Licence | None = None
    input: InputSpec
    outputs: tuple[OutputSpec, ...] = Field(min_length=1)
    head: HeadSpec
    labels: tuple[str, ...] = Field(min_length=1)
    operating: Operating | None = None
    float_model: Artifact
    canary: Canary | None = None
    plans: tuple[Plan, ...] = ()
    measured: tuple[Measured, ...] = ()

    @model_validator(mode="after")
    def _scores_name_labels(self) -> Manifest:
        known = set(self.labels)
        if self.operating is not None:
            for given in (self.operating.score, self.operating.marginal):
                if unknown := sorted(set(given) - known):
                    raise ValueError(f"operating scores name labels that the model has not: {unknown}; it has {self.labels}")
        return self

    def plan(self, kind: PlanKind, soc: str | None) -> Plan | None:
        """The plan of this kind for this SoC, or None."""
        for plan in self.plans:
            if plan.plan is kind and (plan.soc == soc or kind is PlanKind.CPU):
                return plan
        return None


MANIFEST_FILE = "manifest.yaml"


def manifest_path(model_folder: Path) -> Path:
    """Where the manifest of a model folder is."""
    return model_folder / MANIFEST_FILE
