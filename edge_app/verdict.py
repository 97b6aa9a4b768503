"""The words of a result: verdicts, their reasons, and what is sealed for a trigger. Closed lists (protocol v1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """Three verdicts. UNKNOWN is never folded into either of the others."""

    PASS = "PASS"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"


class Reason(StrEnum):
    """Why. OK belongs to PASS alone, DEFECT to FAIL alone, all others to UNKNOWN."""

    OK = "OK"
    DEFECT = "DEFECT"
    MARGINAL = "MARGINAL"
    BAD_IMAGE = "BAD_IMAGE"
    NO_PART = "NO_PART"
    LATE = "LATE"
    OVERRUN = "OVERRUN"
    OVERLOAD = "OVERLOAD"
    MISSED_TRIGGER = "MISSED_TRIGGER"
    INCOMPLETE_FRAME = "INCOMPLETE_FRAME"
    CAMERA_LOST = "CAMERA_LOST"
    STALE_FRAME = "STALE_FRAME"
    RUNTIME_FAULT = "RUNTIME_FAULT"
    INVALID_OUTPUT = "INVALID_OUTPUT"
    NO_RECIPE = "NO_RECIPE"
    NOT_RUNNING = "NOT_RUNNING"
    INTERNAL = "INTERNAL"

    @property
    def verdict(self) -> Verdict:
        """The only verdict this reason may stand with."""
        if self is Reason.OK:
            return Verdict.PASS
        return Verdict.FAIL if self is Reason.DEFECT else Verdict.UNKNOWN


class Mode(StrEnum):
    """What the node is doing (heartbeat, `state`)."""

    STARTING = "STARTING"
    READY = "READY"
    RUNNING = "RUNNING"
    HOLD = "HOLD"
    FAULT = "FAULT"
    STOPPED = "STOPPED"


class PlanKind(StrEnum):
    """Where a model runs; see the design's table of plans."""

    HTP = "htp"
    HYBRID = "hybrid"
    CPU = "cpu"
    NULL = "null"


class PowerMode(StrEnum):
    """HTP power modes, coolest last (the names onnxruntime-qnn takes)."""

    BURST = "burst"
    SUSTAINED_HIGH_PERFORMANCE = "sustained_high_performance"
    HIGH_PERFORMANCE = "high_performance"
    BALANCED = "balanced"
    LOW_BALANCED = "low_balanced"
    POWER_SAVER = "power_saver"
    LOW_POWER_SAVER = "low_power_saver"
    NONE = "none"
    """The plan does not use the HTP."""


class SchedReason(StrEnum):
    """Why a plan, power mode and rate were chosen."""

    NORMAL = "NORMAL"
    COLD = "COLD"
    WARM = "WARM"
    HOT = "HOT"
    SENSOR_LOST = "SENSOR_LOST"
    DRIFT = "DRIFT"
    FAULT = "FAULT"
    RECOVERING = "RECOVERING"
    NO_NPU = "NO_NPU"
    CONFIGURED = "CONFIGURED"
    OPERATOR = "OPERATOR"


@dataclass(frozen=True, slots=True)
class Placement:
    """The scheduler's answer for one frame; written into its result as `sched`."""

    plan: PlanKind
    power_mode: PowerMode
    rate: float
    """Share of triggers admitted, 0..1."""
    reason: SchedReason
    zones_c: dict[str, float | None] = field(default_factory=dict)
    """Temperature by zone; None where unreadable."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One detection as published: label, score, box x0, y0, x1, y1 in sensor pixels."""

    label: str
    score: float
    box_px: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the judge made of one frame. Built only through `judge`, so verdict and reason always agree."""

    reason: Reason
    detail: str = ""
    """For people: which limit, which region, which class."""
    defects: tuple[Defect, ...] = ()
    classes: tuple[tuple[str, float], ...] | None = None
    """A classifier's labels and their probabilities, in the model's order; None: it judged detections, or nothing."""
    label: str | None = None
    """The one label that a decision names; None: it names none."""
    stable_since_us: int | None = None
    """Since when a decision has stood, UTC."""
    gated: bool = False
    """The motion gate skipped the frame. Never sealed: only a decision over many frames takes such a judgement."""

    @property
    def verdict(self) -> Verdict:
        """Follows from the reason."""
        return self.reason.verdict


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """Which network, by content. `soc` is None where no NPU is meant."""

    name: str
    sha256: str
    soc: str | None = None
    version: str | None = None
    """NAME@VERSION of a model that was pushed; None: it is the pipeline's own."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """One sealed result: what goes out for one trigger, once. `seq` is given when it is sealed."""

    seq: int
    trigger_id: int
    part_id: str | None
    frame_id: int
    reason: Reason
    detail: str
    t_capture_us: int
    t_done_us: int
    deadline_us: int | None
    stage_us: dict[str, int]
    placement: Placement
    degraded: tuple[str, ...]
    defects: tuple[Defect, ...]
    classes: tuple[tuple[str, float], ...] | None = None
    label: str | None = None
    stable_since_us: int | None = None
    image: dict[str, Any] | None = None
    recipe: tuple[str, str] | None = None
    """Name and revision; None: the node's."""
    model: ModelIdentity | None = None
    """That inspected it; None: the node's."""

    @property
    def verdict(self) -> Verdict:
        """Follows from the reason."""
        return self.reason.verdict
