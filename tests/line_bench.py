"""A line on the toy model, with pictures that a test hands it and trouble where it wants it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import toys
from wire_samples import until

from edge_app.camera.base import Births
from edge_app.config.judge import Judge
from edge_app.config.pipeline import Model
from edge_app.config.runtime import Limits
from edge_app.config.scheduler import Scheduler
from edge_app.config.tensor import Preprocess
from edge_app.detections import Detections
from edge_app.engine import Engine
from edge_app.frame import Frame, FrameStatus, PixelFormat
from edge_app.governor import Governor
from edge_app.inspection import Inspection
from edge_app.judge import judge, make_recipe
from edge_app.line import Line
from edge_app.model import resolve
from edge_app.runtime.base import Binding, Session
from edge_app.runtime.cpu import open_cpu
from edge_app.scheduler import Event, EventKind, build_policy
from edge_app.verdict import Judgement, Mode, Placement, PlanKind, PowerMode, Reason, Sealed

GOOD = toys.detector_picture([])
BAD = toys.detector_picture([(2, 2)])
PATIENCE_S = 60.0
OFFLINE = Limits(pacing="offline", slots=3)


@dataclass
class Kept:
    """An outlet that keeps everything."""

    results: list[Sealed] = field(default_factory=list)
    states: list[tuple[Mode, Mode, str]] = field(default_factory=list)
    alarms: list[tuple[str, bool]] = field(default_factory=list)
    alarm_texts: list[str] = field(default_factory=list)
    alarm_remedies: list[str] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)

    def result(self, sealed: Sealed) -> None:
        self.results.append(sealed)

    def state(self, mode: Mode, was: Mode, placement: Placement, reason: str) -> None:
        self.states.append((mode, was, reason))

    def alarm(self, name: str, active: bool, text: str, remedy: str) -> None:
        self.alarms.append((name, active))
        self.alarm_texts.append(text)
        self.alarm_remedies.append(remedy)

    def evidence(self, frame: Frame, give_back: Callable[[Frame], None]) -> bool:
        return False

    def note(self, seq: int, text: str) -> None:
        self.notes.append((seq, text))

    def after(self, results: int) -> Callable[[], None]:
        """For `Pictures`: the next frame comes when there are so many results."""

        def wait() -> None:
            until(lambda: len(self.results) >= results)

        return wait

    @property
    def reasons(self) -> list[Reason]:
        return [one.reason for one in sorted(self.results, key=lambda one: one.frame_id)]


class Pictures:
    """A camera that shows what a test hands it: pictures, frames of a bad status, numbers of frames that are skipped,
    things to do (wait, raise) before the next frame."""

    live = False
    simulated = True
    pixel_format = PixelFormat.BGR8
    width = height = period_us = trouble = None

    def __init__(self, shown: Iterator[object]) -> None:
        self._shown = shown
        self._births = Births(PixelFormat.BGR8)
        self._stopped = threading.Event()

    def open(self) -> None: ...
    def close(self) -> None: ...
    def recycle(self, frame: Frame) -> None: ...

    def stop(self) -> None:
        self._stopped.set()

    def read(self) -> Frame | None:
        for item in self._shown:
            if self._stopped.is_set():
                return None
            if callable(item):
                item()
            elif isinstance(item, FrameStatus):
                return self._births.failed(item, "as the test says")
            elif isinstance(item, int):
                self._births.skip(item)
            else:
                assert isinstance(item, np.ndarray)
                return self._births.complete(item, item.shape[1], item.shape[0])
        return None


class Troubled:
    """A real session with trouble put before or behind its runs: `trouble(run number, outputs)`."""

    def __init__(self, session: Session, plan: PlanKind, trouble: Callable[[int, Binding], None]) -> None:
        self._session, self._trouble, self.runs = session, trouble, 0
        self.plan, self.provider, self.simulated = plan, session.provider, session.simulated
        self.input, self.outputs, self.host_nodes = session.input, session.outputs, session.host_nodes

    def bind(self) -> Binding:
        return self._session.bind()

    def run(self, binding: Binding, power_mode: PowerMode) -> None:
        self.runs += 1
        self._session.run(binding, PowerMode.NONE)
        self._trouble(self.runs, binding)

    def close(self) -> None:
        self._session.close()


@dataclass
class Bench:
    """Builds lines on the toy model."""

    folder: Path

    def engine(
        self,
        plan: PlanKind = PlanKind.CPU,
        trouble: Callable[[int, Binding], None] | None = None,
        region_px: tuple[int, int, int, int] | None = None,
    ) -> Engine:
        card = resolve(Model(path=self.folder), Preprocess())
        session: Session = open_cpu(card.file, 1)
        if trouble is not None:
            session = Troubled(session, plan, trouble)
        recipe = make_recipe(Judge(), card.labels, card.score, card.marginal)
        return Engine(session, card.input, card.decoder(session.outputs, recipe.thresholds, card.head), region_px)

    def line(
        self,
        shown: Iterator[object],
        *engines: Engine,
        limits: Limits = OFFLINE,
        timeout_ms: int = 3000,
        judged: Callable[[Detections], object] | None = None,
        max_frames: int | None = None,
        kept: Kept | None = None,
        guard: Callable[[Frame], Judgement | None] = lambda _frame: None,
        placer: Governor | None = None,
        degraded: Callable[[], frozenset[str]] = frozenset,
    ) -> tuple[Line, Kept]:
        card = resolve(Model(path=self.folder), Preprocess())
        recipe = make_recipe(Judge(), card.labels, card.score, card.marginal)
        loaded = {engine.plan: engine for engine in engines or (self.engine(),)}
        kept = kept or Kept()
        inspection = Inspection(guard, judged or (lambda found: judge(found, recipe)))  # type: ignore[arg-type]
        line = Line(
            Pictures(shown), loaded, placer or governor(tuple(loaded)), inspection, kept, limits, timeout_ms,
            max_frames, degraded,
        )  # fmt: skip
        return line, kept


def governor(plans: tuple[PlanKind, ...]) -> Governor:
    """The real scheduler, told that these plans are loaded and agree."""
    config = Scheduler.model_validate({"faults": {"backoff_s": 0.001, "backoff_max_s": 0.001}})
    made = Governor(
        build_policy(config, plans, [(plans[0], plan) for plan in plans], None, canaries=False), deadline_us=None
    )
    made.place()  # asks for them to be loaded
    for plan in plans:
        made.tell(Event(EventKind.LOADED, plan, latency_us=1000))
    return made


def run(line: Line) -> None:
    line.start()
    assert line.wait(PATIENCE_S), "the line did not end"
    line.close()


def assert_sealed_once(line: Line, kept: Kept) -> None:
    counts = line.sealer.counts()
    assert [one.seq for one in kept.results] == list(range(1, len(kept.results) + 1))
    assert len({one.trigger_id for one in kept.results}) == len(kept.results) == counts.triggers == counts.sealed
