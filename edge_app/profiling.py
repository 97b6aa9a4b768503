"""Where the time of a run goes: every stage's calls, recorded on the threads that make them.

The line knows nothing of it: the objects that it was given (camera, engines, recipe, outlet) are wrapped before it
starts. A wrapped call costs about a microsecond.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import Any

from edge_app.app import App
from edge_app.clock import monotonic_us, utc_us
from edge_app.inspection import Inspection
from edge_app.summary import nearest_rank

STAGES = ("camera", "guard", "preprocess", "infer", "decode", "judge", "publish", "evidence")
"""In the order in which a frame passes them."""


@dataclass(frozen=True, slots=True)
class Span:
    """One call of a stage."""

    stage: str
    frame_id: int | None
    thread: str
    start_ns: int
    took_ns: int


@dataclass(frozen=True, slots=True)
class Passage:
    """One frame, from capture to sealed result. Microseconds of the monotonic clock."""

    frame_id: int
    start_us: int
    took_us: int
    reason: str


class Recorder:
    """Keeps spans and passages. Appending to a list is all that happens on the line's threads."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.passages: list[Passage] = []
        self._frames: dict[int, int] = {}
        """Frame by the identity of the buffers that hold it."""

    def wrap(self, stage: str, call: Callable[..., Any], frame_of: Callable[..., int | None]) -> Callable[..., Any]:
        """The same call, recorded. `frame_of` gets its result and its arguments."""

        def recorded(*args: Any, **more: Any) -> Any:
            start_ns = monotonic_ns()
            result = call(*args, **more)
            took_ns = monotonic_ns() - start_ns
            frame_id = frame_of(result, *args)
            self.spans.append(Span(stage, frame_id, threading.current_thread().name, start_ns, took_ns))
            return result

        return recorded

    def instrument(self, app: App) -> None:
        """Wraps what a line was given; before `app.start()`."""
        camera: Any = app.camera
        camera.read = self.wrap("camera", camera.read, lambda frame: getattr(frame, "frame_id", None))
        for engine in app.placed.engines.values():
            self._instrument_engine(engine)
        in_force = app.line.in_force
        app.line.inspect_with(replace(in_force, inspection=self._inspection(in_force.inspection)))
        outlet: Any = app.outlet
        outlet.result = self.wrap("publish", self._passing(outlet.result), lambda _, sealed: sealed.frame_id)
        outlet.evidence = self.wrap("evidence", outlet.evidence, lambda _, frame, *_more: frame.frame_id)

    def _instrument_engine(self, engine: Any) -> None:
        def remember(_result: None, frame: Any, work: Any, *_more: Any) -> int:
            self._frames[id(work)] = frame.frame_id
            return int(frame.frame_id)

        def recall(_result: Any, work: Any, *_more: Any) -> int | None:
            return self._frames.get(id(work))

        engine.preprocess = self.wrap("preprocess", engine.preprocess, remember)
        engine.run = self.wrap("infer", engine.run, recall)
        engine.result = self.wrap("decode", engine.result, recall)

    def _inspection(self, inspection: Inspection) -> Inspection:
        guard = self.wrap("guard", inspection.guard, lambda _, frame: frame.frame_id)
        judge = self.wrap("judge", inspection.judge, lambda *_: None)
        return replace(inspection, guard=guard, judge=judge)

    def _passing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def passing(sealed: Any) -> Any:
            start_us = sealed.t_capture_us - (utc_us() - monotonic_us())
            took_us = sealed.t_done_us - sealed.t_capture_us
            self.passages.append(Passage(sealed.frame_id, start_us, took_us, sealed.reason.value))
            return call(sealed)

        return passing


@dataclass(frozen=True, slots=True)
class StageTimes:
    """One stage over a run, milliseconds."""

    stage: str
    calls: int
    mean_ms: float
    p50_ms: float
    p99_ms: float
    worst_ms: float
    busy: float
    """Share of the run's wall time in which this stage was at work; the one near 1 bounds the throughput."""


def stage_times(recorder: Recorder) -> list[StageTimes]:
    """Every stage that was called, in the order of STAGES; the first frame, which fills caches, is left out."""
    spans = after_first_frame(recorder.spans)
    if not spans:
        return []
    wall_ns = max(span.start_ns + span.took_ns for span in spans) - min(span.start_ns for span in spans)
    times = []
    for stage in STAGES:
        took = sorted(span.took_ns / 1e6 for span in spans if span.stage == stage)
        if took:
            busy, p50, p99 = sum(took) * 1e6 / wall_ns, nearest_rank(took, 0.50), nearest_rank(took, 0.99)
            times.append(StageTimes(stage, len(took), sum(took) / len(took), p50, p99, took[-1], busy))
    return times


def after_first_frame(spans: list[Span]) -> list[Span]:
    """All calls but those for the first frame, and the camera's for it."""
    first = next((span.frame_id for span in spans if span.stage == "publish"), None)
    last_of_first = max((span.start_ns + span.took_ns for span in spans if span.frame_id == first), default=0)
    kept = [span for span in spans if span.start_ns >= last_of_first]
    return kept or spans


def chrome_trace(recorder: Recorder, name: str) -> Mapping[str, Any]:
    """The run in the Trace Event Format: for https://ui.perfetto.dev or chrome://tracing.

    A row for each thread, and one arc for each frame from its capture to its result.
    """
    threads = sorted({span.thread for span in recorder.spans})
    number = {thread: place for place, thread in enumerate(threads, 1)}
    events: list[dict[str, Any]] = [{"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": name}}]
    for thread in threads:
        events.append(
            {"ph": "M", "pid": 1, "tid": number[thread], "name": "thread_name", "args": {"name": thread}}
        )
    for span in recorder.spans:
        events.append({
            "ph": "X", "pid": 1, "tid": number[span.thread], "name": span.stage, "cat": "stage",
            "ts": span.start_ns / 1e3, "dur": span.took_ns / 1e3,
            "args": {} if span.frame_id is None else {"frame": span.frame_id},
        })  # fmt: skip
    for passage in recorder.passages:
        common = {"pid": 1, "tid": 0, "cat": "frame", "name": "frame", "id": passage.frame_id}
        events.append({"ph": "b", "ts": passage.start_us, "args": {"reason": passage.reason}, **common})
        events.append({"ph": "e", "ts": passage.start_us + passage.took_us, **common})
    return {"displayTimeUnit": "ms", "traceEvents": events}
