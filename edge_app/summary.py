"""What a run came to: the numbers of the live status line, of the final table and of `--json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from edge_app.config.mirror import Energy
from edge_app.deciding import DecisionSealer, estimated_w
from edge_app.line import Line
from edge_app.motion import MotionGate

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Summary:
    """One run, or the run so far. Its fields are the stable keys of `--json`."""

    frames: int
    passed: int
    fail: int
    unknown: int
    unknown_by_reason: dict[str, int]
    lost: int
    """Triggers that came in and have no result. 0 at the end of a run, or something is wrong."""
    p50_ms: float | None
    p99_ms: float | None
    """Capture to sealed verdict, over the last 4096 frames."""
    fps: float
    plan: str
    seconds: float
    simulated: bool
    degraded: list[str]
    escapes: int | None
    """Defective parts judged PASS; None where the truth is not known."""
    false_rejects: int | None
    """Good parts judged FAIL; likewise."""
    effort: dict[str, Any] | None = None
    """Of a line that decides over many frames, whose `frames` above are decisions: frames that came in, what the gate
    said of them, inferences, the NPU's (or CPU's) duty cycle, and the power that is estimated from it."""

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {"pass" if key == "passed" else key: value for key, value in asdict(self).items()}


def summarise(
    line: Line, seconds: float, *, simulated: bool, gate: MotionGate | None = None, energy: Energy | None = None
) -> Summary:
    """The line as it stands after `seconds` of running."""
    counts = line.sealer.counts()
    latencies = sorted(line.sealer.latencies_us())
    return Summary(
        frames=counts.triggers,
        passed=counts.passed,
        fail=counts.failed,
        unknown=counts.unknown,
        unknown_by_reason=counts.unknown_by_reason,
        lost=counts.triggers - counts.sealed,
        p50_ms=percentile_ms(latencies, 0.50),
        p99_ms=percentile_ms(latencies, 0.99),
        fps=round(counts.sealed / seconds, 2) if seconds > 0 else 0.0,
        plan=line.placement.plan.value,
        seconds=round(seconds, 3),
        simulated=simulated,
        degraded=sorted(line.degraded),
        escapes=counts.escapes if counts.truths else None,
        false_rejects=counts.false_rejects if counts.truths else None,
        effort=effort_of(line, seconds, gate, energy),
    )


def effort_of(line: Line, seconds: float, gate: MotionGate | None, energy: Energy | None) -> dict[str, Any] | None:
    """What frames cost that are no triggers; None for a line that judges each."""
    if not isinstance(line.sealer, DecisionSealer):
        return None
    effort = line.sealer.effort
    duty = effort.duty_cycle(seconds * 1e6)
    return {
        "frames": effort.frames,
        "inferences": effort.inferences,
        "gate": {} if gate is None else {look.value: count for look, count in sorted(gate.counts.copy().items())},
        "duty_cycle": round(duty, 4),
        "power_w_estimate": None if energy is None else round(estimated_w(energy, duty), 3),
    }


def percentile_ms(sorted_us: list[int], share: float) -> float | None:
    """A percentile of sorted microseconds, in milliseconds; None of nothing."""
    return round(nearest_rank(sorted_us, share) / 1000, 3) if sorted_us else None


def nearest_rank(ordered: Sequence[Number], share: float) -> Number:
    """A percentile of sorted values, of which there is one at least."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
