"""`runtime:` and `limits:` of a pipeline."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from edge_app.config.base import Section, YamlPath

Provider = Annotated[
    Literal["auto", "cpu", "qnn", "null"],
    # YAML's null is what a person writes for the null session.
    BeforeValidator(lambda value: "null" if value is None else value),
]


class Runtime(Section):
    """Where the model runs."""

    provider: Provider = Field(
        "auto",
        title="Provider",
        description="auto: qnn where a DSP is, else cpu with the reason; cpu; qnn (on x86_64: the HTP simulator);"
        " null: no inference, a recorded output is replayed (measures the host alone).",
    )
    soc: str | None = Field(
        None, title="SoC", description="qnn: the SoC whose plans are loaded, e.g. qcs8550; null: the board's own."
    )
    fallback: Literal["none", "cpu"] = Field(
        "none",
        title="Fallback",
        description="qnn without an NPU: none exits 5, cpu goes on with the cpu plan, degraded.",
    )
    timeout_ms: int | None = Field(
        None,
        ge=1,
        title="Time-out",
        description="A run past this is a fault: its slot is retired, the next plan goes on; null: 3000, and on the"
        " simulated HTP, whose time is not a board's, 30000.",
    )
    threads: int | None = Field(
        None, ge=1, le=64, title="CPU threads", description="Of the cpu plan, at most 64; null: as many as cores."
    )
    npu_lock: YamlPath | None = Field(
        None,
        title="NPU lock",
        description="File that one process holds while its plans are on the NPU; a second one is refused. null:"
        " /run/lock/edge_app-npu.lock; on the simulated HTP, of which each process has its own, none.",
    )
    self_test_s: float | None = Field(
        60.0,
        ge=1,
        title="Self-test",
        description="So often the plan in use must give the model's canary again, in a gap between parts (without one"
        " for as long again, beside them): an NPU that computes wrong raises no error. A plan that fails is out until"
        " it is proven; null: only at the command.",
    )
    warmup_runs: int = Field(2, ge=0, le=100, title="Warm-up", description="Runs before the node is ready.")


TIMEOUT_MS, SIMULATED_TIMEOUT_MS = 3000, 30_000


def timeout_ms(runtime: Runtime, simulated: bool) -> int:
    """When a run counts as hung."""
    if runtime.timeout_ms is not None:
        return runtime.timeout_ms
    return SIMULATED_TIMEOUT_MS if simulated else TIMEOUT_MS


class Limits(Section):
    """What bounds a frame."""

    pacing: Literal["realtime", "offline"] = Field(
        "realtime",
        title="Pacing",
        description="realtime: a frame without a free slot is UNKNOWN/OVERRUN, and `deadline_ms` is required;"
        " offline: the source waits for a slot, there is no deadline, results are marked simulated.",
    )
    deadline_ms: float | None = Field(
        None, gt=0, title="Deadline", description="From capture to sealed verdict; later is UNKNOWN/LATE."
    )
    trigger: Literal["camera", "software"] = Field(
        "camera",
        title="Trigger",
        description="camera: every frame is a trigger; software: a frame is taken at each `trigger` command.",
    )
    slots: int = Field(4, ge=1, le=64, title="Slots", description="Frames in flight at most.")

    @model_validator(mode="after")
    def _deadline_fits_pacing(self) -> Self:
        if self.pacing == "realtime" and self.deadline_ms is None:
            raise ValueError("pacing realtime requires deadline_ms (the shipped live pipeline has 50)")
        if self.pacing == "offline" and self.deadline_ms is not None:
            raise ValueError("pacing offline has no deadline: remove deadline_ms, or set pacing: realtime")
        return self
