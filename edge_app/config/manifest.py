"""`models/<name>/manifest.yaml`: what a model is, where it came from, and which files run it where."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from edge_app.config.base import Section
from edge_app.config.tensor import HeadSpec, InputSpec, OutputSpec
from edge_app.verdict import PlanKind

Sha256 = str
NAME = r"^[a-z0-9][a-z0-9_-]*$"


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
    """A stored inference: outputs of the float model for one picture. The null session replays it."""

    file: str
    sha256: Sha256 = Field(pattern=r"^[0-9a-f]{64}$")
    picture: str = Field(
        title="Picture", description="How its input is made again: `synthetic product=1 seed=2`, or a file."
    )


class Toolversions(Section):
    """What compiled an artifact."""

    onnxruntime: str
    onnxruntime_qnn: str
    qairt: str


class PlanReport(Section):
    """What the compiler made of a plan: read back and counted, never assumed."""

    segments: int = Field(1, ge=0, title="Segments", description="Parts that run on the NPU.")
    crossings: int = Field(0, ge=0, title="Crossings", description="Tensors a frame between NPU and host, inside.")
    crossing_bytes: int = Field(0, ge=0, title="Bytes that cross", description="A frame, inside.")
    io_bytes: int = Field(0, ge=0, title="Bytes in and out", description="A frame, input and outputs.")
    simulated_cycles: int | None = Field(
        None, title="Cycles", description="Of the simulated HTP, median: to compare plans with, not a board's time."
    )
    macs_a8: int = Field(0, ge=0, title="MACs at 8 bits", description="Multiply-adds by activation precision.")
    macs_a16: int = Field(0, ge=0, title="MACs at 16 bits")
    macs_float: int = Field(0, ge=0, title="MACs in float")
    transposes: int = Field(0, ge=0, title="Transposes", description="That cost cycles.")
    float_ops: tuple[str, ...] = Field((), title="Float ops", description="On the NPU in float although quantised.")
    fused_ops: dict[str, int] = Field(
        default_factory=dict, title="Fused ops", description="By kind: a neighbour does their work."
    )


class Verified(Section):
    """The plan beside the float model, on the same pictures."""

    on: str = Field(title="Data and split")
    images: int
    simulated: bool = Field(True, title="Simulated", description="On the simulated HTP; false: on a board.")
    cosine_min: float = Field(title="Cosine", description="Worst output to float's, mean of images.")
    metrics: dict[str, float] = Field(default_factory=dict, title="Metrics", description="Of this plan.")
    float_metrics: dict[str, float] = Field(default_factory=dict, title="Float metrics", description="Same pictures.")
    loss_95: tuple[float, float] | None = Field(
        None, title="Loss, 95 %", description="Bootstrap interval of the metric's loss to float, over pictures."
    )
    verdicts_flipped: tuple[str, ...] = Field((), title="Flipped", description="Verdicts other than float's.")
    ok: bool = Field(title="Held", description="Whether every gate held.")


class Agreement(Section):
    """The verdicts of a plan beside those of another on the same parts."""

    plan: PlanKind = Field(title="With", description="The other plan, of the same SoC or on the CPU.")
    on: str = Field(title="Data and split")
    parts: int = Field(ge=1, title="Parts", description="How many were judged by both; few prove little.")
    disagreed: tuple[str, ...] = Field((), title="Disagreed", description="Parts with another verdict; why, if none.")


class Plan(Section):
    """One way to run the model: a plan of one SoC."""

    plan: PlanKind
    soc: str | None = Field(None, title="SoC", description="Name of the SoC table; null for the cpu plan.")
    soc_model: int | None = Field(None, title="SoC number", description="The compiler's number of the SoC.")
    htp_arch: int | None = Field(None, title="HTP arch", description="e.g. 73 for v73.")
    vtcm_mb: int | None = Field(None, title="VTCM", description="Of the SoC, MB.")
    artifacts: tuple[Artifact, ...] = Field(min_length=1, title="Files", description="The first is what is loaded.")
    embedded_in_git: bool = Field(True, title="Shipped", description="False: made again by `edge_app model compile`.")
    input: InputSpec | None = Field(None, title="Input", description="Where it differs from the model's.")
    head: HeadSpec | None = Field(None, title="Head", description="Where it differs from the model's.")
    outputs: tuple[OutputSpec, ...] | None = Field(None, title="Outputs", description="Where they differ.")
    tools: Toolversions | None = None
    source: Artifact | None = Field(
        None, title="Source", description="QDQ model it is compiled from, where that is not the model's quantised one."
    )
    host_ops: tuple[str, ...] = Field((), title="Host ops", description="Op kinds planned to run on the CPU.")
    edges_pinned: bool = Field(
        False, title="Edges pinned", description="Q and DQ that stand alone are planned for the CPU: integers cross."
    )
    host_nodes: tuple[str, ...] = Field((), title="Host nodes", description="Single nodes planned to run on the CPU.")
    report: PlanReport | None = Field(None, title="Report", description="What the compiler made of it.")
    verified: tuple[Verified, ...] = ()
    agrees_with: tuple[PlanKind, ...] = Field(
        (),
        title="Agrees with",
        description="Plans whose verdicts were the same wherever both were verified: a line may switch to them.",
    )
    agreements: tuple[Agreement, ...] = Field((), title="Agreements", description="What `agrees_with` rests on.")


class Calibration(Section):
    """The pictures whose ranges a quantised model was made with."""

    recipe: str = Field(
        title="Recipe", description="File below calibration/: which pictures, and how they were chosen."
    )
    pictures: int = Field(gt=0)
    sha256: Sha256 = Field(pattern=r"^[0-9a-f]{64}$", title="Digest", description="Over the pictures' bytes, in order.")
    method: Literal["minmax", "percentile", "entropy"] = "minmax"


class Quantized(Section):
    """The QDQ model that every NPU plan is compiled from, and what is needed to make it again without the pictures."""

    model: Artifact
    encodings: Artifact = Field(title="Encodings", description="Calibrated ranges and precision by tensor.")
    calibration: Calibration
    activations: Literal["a8", "a16", "mixed"]
    style: str = Field(title="Style", description="Symmetry of activations and weights.")
    raised: tuple[str, ...] = Field((), title="Raised", description="Layers that run at 16 bits in a mixed model.")
    input: InputSpec
    head: HeadSpec
    outputs: tuple[OutputSpec, ...] = Field(min_length=1)
    tools: str = Field("", title="Made with", description="onnx and onnxruntime versions.")


class BoardRecord(Section):
    """What was seen on a real board, by `edge_app model record` or `edge_app doctor --record`."""

    board: str
    soc: str
    plan: PlanKind
    loads: bool
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    firmware: str = ""
    driver: str = ""
    versions: str = Field("", title="Versions", description="onnxruntime, onnxruntime-qnn, QAIRT.")
    latency_ms: float | None = None
    note: str = ""


class Manifest(Section):
    """A model and all its plans."""

    schema_version: Literal[1] = 1
    name: str = Field(pattern=NAME)
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
    quantized: Quantized | None = None
    boards: tuple[BoardRecord, ...] = Field((), title="Boards", description="Seen on real boards.")
    plans: tuple[Plan, ...] = ()
    measured: tuple[Measured, ...] = ()

    @model_validator(mode="after")
    def _scores_name_labels(self) -> Manifest:
        known = set(self.labels)
        if self.operating is not None:
            for given in (self.operating.score, self.operating.marginal):
                if unknown := sorted(set(given) - known):
                    raise ValueError(
                        f"operating scores name labels that the model has not: {unknown}; it has {self.labels}"
                    )
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
