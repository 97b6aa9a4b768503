"""The mechanic measures a plan in each of its power modes before parts come, where time is a board's."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from edge_app.config.judge import Judge
from edge_app.config.pipeline import Model
from edge_app.config.scheduler import Scheduler
from edge_app.config.tensor import Preprocess
from edge_app.engine import Engine
from edge_app.governor import Governor
from edge_app.judge import make_recipe
from edge_app.mechanic import Mechanic
from edge_app.model import resolve
from edge_app.runtime.base import Binding
from edge_app.runtime.cpu import open_cpu
from edge_app.runtime.faulty import FaultScript, FaultySession
from edge_app.scheduler import Decision, build_policy
from edge_app.verdict import PlanKind, PowerMode


class ByMode(FaultySession):
    """A real session that takes longer in lower power modes, as an NPU does."""

    simulated = False  # type: ignore[assignment]
    provider = "qnn"  # type: ignore[assignment]

    def run(self, binding: Binding, power_mode: PowerMode) -> None:
        super().run(binding, PowerMode.NONE)
        time.sleep(0.004 * list(PowerMode).index(power_mode))


@pytest.mark.parametrize("simulated", [False, True])
def test_latencies_of_every_power_mode_are_measured_on_a_board_only(toy_model: Path, simulated: bool) -> None:
    card = resolve(Model(path=toy_model), Preprocess())
    recipe = make_recipe(Judge(), card.labels, card.score, card.marginal)
    script = FaultScript()

    def opened() -> Engine:
        kind = FaultySession if simulated else ByMode
        session = kind(open_cpu(card.file, 1), script, PlanKind.HTP)
        return Engine(session, card.input, card.decoder(session.outputs, recipe.thresholds, card.head))

    policy = build_policy(Scheduler(), [PlanKind.HTP], (), None, canaries=False)
    governor = Governor(policy, deadline_us=None)
    mechanic = Mechanic(governor, {PlanKind.HTP: opened}, lambda _engine: None, 1)
    mechanic.prepare()
    measured = governor._state.health[PlanKind.HTP].loaded_us
    if simulated:
        assert set(measured) == {PowerMode.BURST}
        assert script.runs == 1
        return
    modes = list(PowerMode)[:-1]
    assert set(measured) == set(modes)
    assert all(measured[mode] >= 4000 * place for place, mode in enumerate(modes))


class NoMemoryAtFirst(threading.Event):
    """The first wait fails."""

    waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        if self.waits == 1:
            raise MemoryError
        return super().wait(timeout)


def test_a_turn_that_fails_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    second = threading.Event()
    turns = iter([KeyError("a bug"), None])

    def told(_decision: Decision) -> None:
        error = next(turns, None)
        if error is not None:
            raise error
        second.set()

    policy = build_policy(Scheduler(), [PlanKind.CPU], (), None, canaries=False)
    mechanic = Mechanic(Governor(policy, deadline_us=None), {}, lambda _engine: None, 1, told)
    mechanic._stopped = NoMemoryAtFirst()
    mechanic.start()
    assert second.wait(60)
    mechanic.stop()
    assert "the mechanic's turn failed" in caplog.text
