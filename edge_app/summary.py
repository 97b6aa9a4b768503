"""What a run came to: the numbers of the live status line, of the final table and of `--json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from edge_app.line import Line


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

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        fields = asdict(self)
        fields["pass"] = fields.pop("passed")
        return fields


def summarise(line: Line, seconds: float, *, simulated: bool) -> Summary:
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
    )


def percentile_ms(sorted_us: list[int], share: float) -> float | None:
    """A percentile (nearest rank) of sorted microseconds, in milliseconds; None of nothing."""
    if not sorted_us:
        return None
    return round(sorted_us[min(len(sorted_us) - 1, int(share * len(sorted_us)))] / 1000, 3)
