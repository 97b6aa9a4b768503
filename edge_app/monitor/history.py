"""What the results of the last hour come to: by minute, by reason, by stage. Pure: fed with results and the time."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from edge_app.verdict import Reason, Sealed, Verdict

MINUTES = 60
MINUTE_US = 60_000_000
RECENT = 12
LATEST = 24
BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
STAGES = ("wait", "guard", "preprocess", "infer", "decode")


@dataclass(slots=True)
class Histogram:
    """Counts by upper bound (BOUNDS_S, then all others) and the sum, as Prometheus wants them."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_us: int = 0

    def add(self, value_us: int) -> None:
        """One value; a bound belongs to its own bucket."""
        self.counts[bisect_left(BOUNDS_S, value_us / 1e6)] += 1
        self.sum_us += value_us

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, count up to it), the last one `+Inf`."""
        total, buckets = 0, []
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self.counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return buckets


@dataclass(slots=True)
class Minute:
    """Results that were sealed within one minute of the monotonic clock."""

    number: int
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    causes: Counter[tuple[Verdict, str]] = field(default_factory=Counter)


class History:
    """The last hour, the latest results that did not pass, and histograms since the start."""

    def __init__(self) -> None:
        self._minutes: deque[Minute] = deque(maxlen=MINUTES)
        self._rejected: deque[Sealed] = deque(maxlen=LATEST)
        self._last_seq = 0
        self.missed = 0
        """Results that went by unseen: the seqs show holes."""
        self.latency = Histogram()
        """Capture to sealed result, of triggers that were taken up."""
        self.stages = {stage: Histogram() for stage in STAGES}

    def add(self, results: Sequence[Sealed], now_us: int) -> None:
        """Results in the order of seq, sealed just now. `now_us` is of the monotonic clock: wall clocks are set."""
        for sealed in results:
            self.missed += sealed.seq - self._last_seq - 1
            self._last_seq = sealed.seq
            minute = self._minute(now_us)
            minute.verdicts[sealed.verdict] += 1
            if sealed.verdict is not Verdict.PASS:
                minute.causes[sealed.verdict, cause(sealed)] += 1
                self._rejected.append(sealed)
            if sealed.stage_us or sealed.reason is Reason.LATE:  # to refuse a trigger takes no time
                self.latency.add(max(0, sealed.t_done_us - sealed.t_capture_us))
            for stage, took_us in sealed.stage_us.items():
                if stage in self.stages:
                    self.stages[stage].add(took_us)

    def _minute(self, now_us: int) -> Minute:
        number = now_us // MINUTE_US
        if not self._minutes or self._minutes[-1].number != number:
            self._minutes.append(Minute(number))
        return self._minutes[-1]

    def trend(self, now_us: int) -> list[tuple[int, int, int]]:
        """PASS, FAIL, UNKNOWN of each of the last MINUTES minutes, the present one last."""
        by_number = {minute.number: minute.verdicts for minute in self._minutes}
        present = now_us // MINUTE_US
        return [
            (counts[Verdict.PASS], counts[Verdict.FAIL], counts[Verdict.UNKNOWN])
            for counts in (by_number.get(present - back, Counter()) for back in range(MINUTES - 1, -1, -1))
        ]

    def pareto(self, now_us: int) -> list[tuple[Verdict, str, int]]:
        """Why parts did not pass in these minutes: verdict, cause, count; the most frequent first."""
        oldest = now_us // MINUTE_US - MINUTES + 1
        total: Counter[tuple[Verdict, str]] = Counter()
        for minute in self._minutes:
            if minute.number >= oldest:
                total += minute.causes
        return [(verdict, name, count) for (verdict, name), count in total.most_common()]

    def rejected(self) -> list[Sealed]:
        """The latest results that did not pass, the newest first."""
        return list(reversed(self._rejected))


def cause(sealed: Sealed) -> str:
    """What a Pareto chart counts: the strongest defect's label of a FAIL, else the reason."""
    if sealed.verdict is Verdict.FAIL and sealed.defects:
        return max(sealed.defects, key=lambda defect: defect.score).label
    return sealed.reason.value
