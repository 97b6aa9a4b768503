"""The toy detector compiled to its three plans for one SoC by the product's own commands, and a line that runs them."""

from __future__ import annotations

import functools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
import toys

from edge_app.camera.base import Births
from edge_app.canary import load_canary, record_canary
from edge_app.config.judge import Judge
from edge_app.config.pipeline import Model, Pipeline
from edge_app.config.runtime import Limits
from edge_app.config.scheduler import Scheduler
from edge_app.config.tensor import Preprocess
from edge_app.engine import Engine
from edge_app.frame import Frame, PixelFormat
from edge_app.governor import Governor
from edge_app.inspection import Inspection
from edge_app.judge import judge, make_recipe
from edge_app.line import Line
from edge_app.mechanic import Mechanic
from edge_app.model import resolve
from edge_app.plans import plan_options
from edge_app.runtime.faulty import FaultScript, FaultySession
from edge_app.scheduler import Decision, build_policy
from edge_app.verdict import Mode, Placement, PlanKind, Reason, Sealed
from edge_app.zones import Zone, ZoneSnapshot

SOC = "qcs8550"
GOOD = toys.detector_picture([], seed=5)
BAD = toys.detector_picture([(2, 3)], seed=6)


def compile_toy(folder: Path) -> Path:
    """A model folder with plans htp, hybrid and cpu for SOC, verified to agree, and a canary."""
    pictures = folder / "pictures"
    pictures.mkdir(parents=True)
    drawn = np.random.default_rng(0)
    for number in range(36):
        cells = [tuple(drawn.integers(0, 7, 2).tolist()) for _ in range(number % 4)]
        cv2.imwrite(str(pictures / f"{number:03}.png"), toys.detector_picture(cells, seed=number))
    onnx.save(toys.detector(), folder / "toy.onnx")
    (folder / "labels.txt").write_text("bright\ndark\n")
    for command in (
        f"import toy.onnx --name toy --task detect --labels labels.txt --color RGB --fit letterbox --scale {1 / 255}",
        "quantize toy --calibration pictures",
        f"compile toy --soc {SOC}",
        f"verify toy --data pictures --limit 6 --cache cache --soc {SOC} --write",
    ):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "edge_app", "model", *command.split()],
            capture_output=True, text=True, cwd=folder, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    model = folder / "models" / "toy"
    cv2.imwrite(str(model / "canary.png"), BAD)
    record_canary(resolve(Model(path=model), Preprocess()), "canary.png")
    return model


@dataclass
class Kept:
    """An outlet that keeps everything."""

    results: list[Sealed] = field(default_factory=list)
    states: list[tuple[Placement, str]] = field(default_factory=list)
    alarms: list[tuple[str, bool]] = field(default_factory=list)

    def result(self, sealed: Sealed) -> None:
        self.results.append(sealed)

    def note(self, seq: int, text: str) -> None: ...

    def evidence(self, frame: Frame, recycle: Callable[[Frame], None]) -> bool:
        return False

    def state(self, mode: Mode, was: Mode, placement: Placement, reason: str) -> None:
        self.states.append((placement, reason))

    def alarm(self, name: str, active: bool, text: str, remedy: str) -> None:
        self.alarms.append((name, active))


class Parts:
    """A camera with good and bad parts, drawn by a seed; `before` is called with each frame's number."""

    live = False
    simulated = True
    pixel_format = PixelFormat.BGR8
    width = height = period_us = trouble = None

    def __init__(self, count: int, before: Callable[[int], None] = lambda _number: None, seed: int = 1) -> None:
        drawn = random.Random(seed)
        self.bad = [drawn.random() < 0.5 for _ in range(count)]
        self._before = before
        self._births = Births(PixelFormat.BGR8)
        self._numbers: Iterator[int] = iter(range(count))
        self._stopped = threading.Event()

    def open(self) -> None: ...
    def close(self) -> None: ...
    def recycle(self, frame: Frame) -> None: ...

    def stop(self) -> None:
        self._stopped.set()

    def read(self) -> Frame | None:
        number = next(self._numbers, None)
        if number is None or self._stopped.is_set():
            return None
        self._before(number)
        picture = BAD if self.bad[number] else GOOD
        return self._births.complete(picture, picture.shape[1], picture.shape[0])

    @property
    def verdicts(self) -> list[Reason]:
        """What every frame must be sealed with."""
        return [Reason.DEFECT if bad else Reason.OK for bad in self.bad]


@dataclass
class ToyLine:
    """The product's line, governor and mechanic on the toy's three plans, each wrapped with a script of faults."""

    model: Path
    parts: Parts
    scripts: Mapping[PlanKind, FaultScript] = field(default_factory=dict)
    scheduler: Scheduler = field(default_factory=lambda: Scheduler())
    zones: Callable[[], ZoneSnapshot | None] = lambda: None
    found: list[Zone] | None = None
    limits: Limits = field(default_factory=lambda: Limits(pacing="offline", slots=3))
    timeout_ms: int = 3000
    agrees: list[tuple[PlanKind, PlanKind]] | None = None
    self_test_s: float | None = None
    decisions: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        pipeline = Pipeline.model_validate(
            {
                "camera": {"type": "synthetic"},
                "model": {"path": str(self.model)},
                "runtime": {"provider": "qnn", "soc": SOC, "threads": 1},
                "limits": self.limits.model_dump(),
                "scheduler": self.scheduler.model_dump(),
            },
            strict=False,
        )
        card = resolve(pipeline.model, pipeline.preprocess)
        recipe = make_recipe(Judge(), card.labels, card.score, card.marginal)
        options = plan_options(pipeline, card, recipe.thresholds)
        canary = load_canary(card)
        assert canary is not None
        policy = build_policy(self.scheduler, tuple(options.openers), self.agrees or options.agrees, self.found, True)
        deadline_ms = self.limits.deadline_ms
        self.governor = Governor(
            policy, deadline_us=None if deadline_ms is None else round(deadline_ms * 1000), zones=self.zones
        )
        openers = {plan: self._faulty(plan, open_engine) for plan, open_engine in options.openers.items()}
        self.mechanic = Mechanic(
            self.governor, openers, canary.prove, 1, self._decided, self_test_s=self.self_test_s
        )
        self.mechanic.prepare()
        self.kept = Kept()
        self.line = Line(
            self.parts, self.mechanic.engines, self.governor, Inspection(lambda _f: None, lambda d: judge(d, recipe)),
            self.kept, self.limits, self.timeout_ms,
        )  # fmt: skip
        self.mechanic.install = self.line.in_force.model.install

    def _faulty(self, plan: PlanKind, open_engine: Callable[[], Engine]) -> Callable[[], Engine]:
        script = self.scripts.get(plan)
        if script is None:
            return open_engine

        def opened() -> Engine:
            script.load()
            engine = open_engine()
            engine.session = FaultySession(engine.session, script)
            return engine

        return opened

    def _decided(self, decision: Decision) -> None:
        self.decisions.append(decision)
        for placement, detail in self.governor.take_changes():
            self.kept.state(Mode.RUNNING, Mode.RUNNING, placement, detail)

    def wait_until_all_are_ready(self, seconds: float = 30.0) -> None:
        """Until every plan that was out has been built again and proven."""
        until = time.monotonic() + seconds
        while any(word.endswith("_fault") for word in self.governor.decision.degraded) or self.line.queue_depth > 1:
            assert time.monotonic() < until, self.governor.decision.detail
            self.governor.place()
            time.sleep(0.002)

    def run(self, seconds: float) -> list[Sealed]:
        """From the first frame to the last; the results in the order of their frames."""
        self.line.start()
        self.mechanic.start()
        try:
            assert self.line.wait(seconds), "the line did not end"
        finally:
            self.mechanic.stop()
            self.line.close()
        return sorted(self.kept.results, key=lambda sealed: sealed.frame_id)

    def assert_every_part_has_its_own_verdict(self, results: list[Sealed]) -> None:
        """No frame lost, none doubled, none with another's verdict."""
        counts = self.line.sealer.counts()
        assert counts.triggers == counts.sealed == len(results) == len(self.parts.bad)
        assert [sealed.seq for sealed in self.kept.results] == list(range(1, len(results) + 1))
        assert len({sealed.trigger_id for sealed in results}) == len(results)
        wrong = [
            (sealed.frame_id, sealed.reason, wanted, sealed.detail, sealed.placement.plan)
            for sealed, wanted in zip(results, self.parts.verdicts, strict=True)
            if sealed.reason is not wanted
        ]
        assert wrong == [], f"{len(wrong)} of {len(results)}: {wrong[:5]}"


@functools.cache
def _compiled(folder: Path) -> Path:
    return compile_toy(folder / "toy_plans")


@pytest.fixture(scope="session")
def toy_plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See compile_toy; made once for all tests of a run."""
    return _compiled(tmp_path_factory.getbasetemp())
