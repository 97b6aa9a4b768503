"""Faults before a mirror: what it says when the camera, the processor or the light goes, and when they come back.

The label stands for its time and goes; nothing that happens ever names one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import colours
import numpy as np
import pytest
from line_bench import OFFLINE, PATIENCE_S, Kept, Pictures, run

from edge_app.config.mirror import Decision
from edge_app.deciding import DecisionSealer
from edge_app.errors import RuntimeFault
from edge_app.frame import FrameStatus
from edge_app.line import Line
from edge_app.model import resolve
from edge_app.placed import Placed, place_model
from edge_app.runtime.base import Binding
from edge_app.verdict import PlanKind, PowerMode, Reason

RED, GREEN = colours.picture("red"), colours.picture("green")
DARK = np.zeros_like(RED)
DECISION = Decision(dwell_s=0.05, smooth_s=0.0, hold_s=0.5)


@pytest.fixture
def placed(tmp_path: Path) -> Iterator[Placed]:
    made = colours.pipeline(tmp_path, decision=DECISION.model_dump(), gate=None)
    ready = place_model(made, resolve(made.model, made.preprocess))
    yield ready
    ready.stop()


def told(placed: Placed, script: Callable[[Kept], Iterator[object]]) -> list[tuple[Reason, str | None]]:
    """Every decision while the camera shows what the script says."""
    made, kept = placed.recipes, Kept()
    line = Line(
        Pictures(script(kept)), placed.engines, placed.placer, made.own.inspection, kept, OFFLINE, 60_000,
        make_sealer=partial(DecisionSealer, DECISION, made.labels),
    )  # fmt: skip
    assert isinstance(line.sealer, DecisionSealer)
    line.sealer.start()
    run(line)
    line.sealer.stop()
    return [(one.reason, one.label) for one in kept.results]


def has_in_order(decisions: list[tuple[Reason, str | None]], *wanted: tuple[Reason, str | None]) -> bool:
    """Whether these were told one after the other, the last one last. On a machine that stalls others stand between."""
    rest = iter(decisions)
    return all(one in rest for one in wanted) and decisions[-1] == wanted[-1]


def until_told(kept: Kept, shown: object, reason: Reason, label: str | None = None) -> Iterator[object]:
    """Shows it a hundred times a second, until the last decision is this one."""
    give_up = time.monotonic() + PATIENCE_S
    while not kept.results or (kept.results[-1].reason, kept.results[-1].label) != (reason, label):
        assert time.monotonic() < give_up, f"never told {reason} {label}: {kept.results[-1:]}"
        yield lambda: time.sleep(0.01)
        yield shown


def test_the_camera_goes_and_comes_back(placed: Placed) -> None:
    def script(kept: Kept) -> Iterator[object]:
        yield from until_told(kept, RED, Reason.OK, "red")
        yield from until_told(kept, FrameStatus.LOST, Reason.CAMERA_LOST)
        yield from until_told(kept, GREEN, Reason.OK, "green")

    decisions = told(placed, script)
    assert has_in_order(decisions, (Reason.OK, "red"), (Reason.CAMERA_LOST, None), (Reason.OK, "green"))
    assert {label for _, label in decisions} == {"red", "green", None}


def test_the_camera_hangs_without_a_word(placed: Placed) -> None:
    def script(kept: Kept) -> Iterator[object]:
        yield from until_told(kept, RED, Reason.OK, "red")
        yield kept.after(len(kept.results) + 1)  # no frame at all
        yield from until_told(kept, RED, Reason.OK, "red")

    decisions = told(placed, script)
    assert has_in_order(decisions, (Reason.OK, "red"), (Reason.CAMERA_LOST, None), (Reason.OK, "red"))
    assert {label for _, label in decisions} == {"red", None}


def test_the_light_goes(placed: Placed) -> None:
    def script(kept: Kept) -> Iterator[object]:
        yield from until_told(kept, RED, Reason.OK, "red")
        yield from until_told(kept, DARK, Reason.BAD_IMAGE)

    decisions = told(placed, script)
    assert has_in_order(decisions, (Reason.OK, "red"), (Reason.BAD_IMAGE, None))
    assert {label for _, label in decisions} == {"red", None}


def test_the_processor_goes(placed: Placed, monkeypatch: pytest.MonkeyPatch) -> None:
    session = placed.engines[PlanKind.CPU].session
    sound, broken = session.run, False

    def failing(binding: Binding, power_mode: PowerMode) -> None:
        if broken:
            raise RuntimeFault("the device is gone")
        sound(binding, power_mode)

    monkeypatch.setattr(session, "run", failing)

    def script(kept: Kept) -> Iterator[object]:
        nonlocal broken
        yield from until_told(kept, RED, Reason.OK, "red")
        broken = True
        yield from until_told(kept, GREEN, Reason.RUNTIME_FAULT)

    decisions = told(placed, script)
    assert has_in_order(decisions, (Reason.OK, "red"), (Reason.RUNTIME_FAULT, None))
    assert {label for _, label in decisions} == {"red", None}
