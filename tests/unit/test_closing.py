"""How a node ends: whatever fails or hangs on the way, the wire is told and the next start knows about the NPU."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import cv2
import pytest
import toys
from wire_samples import until

from edge_app.app import App, build
from edge_app.config.load import load_pipeline
from edge_app.config.scheduler import Scheduler
from edge_app.engine import Engine
from edge_app.errors import RuntimeFault
from edge_app.governor import Governor
from edge_app.mechanic import Mechanic
from edge_app.npu_out import standing_note
from edge_app.placed import Placed
from edge_app.scheduler import build_policy
from edge_app.verdict import PlanKind

PATIENCE_S = 60.0
HUNG = "a run on plan htp did not return within 3000 ms"


@pytest.fixture
def app(tmp_path: Path, toy_model: Path) -> App:
    """Two pictures, run to their end."""
    for number in range(2):
        cv2.imwrite(str(tmp_path / f"{number}.png"), toys.detector_picture([], seed=number))
    file = tmp_path / "line.yaml"
    file.write_text(f"""\
camera: {{type: folder, path: {tmp_path}}}
model: {{path: {toy_model}}}
runtime: {{provider: cpu, threads: 1}}
limits: {{pacing: offline, slots: 1}}
results: {{publish: "tcp://127.0.0.1:*", commands: null, journal: {{path: {tmp_path}/var/results.db}}}}
""")
    made = build(load_pipeline(file, []), "line")
    made.start()
    assert made.wait(PATIENCE_S)
    return made


def watched(app: App, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is closed, in order, once `close` is called."""
    closed: list[str] = []
    for name, part in (("outlet", app.outlet), ("camera", app.camera), ("sessions", app.placed)):
        close = part.close

        def told(*args: Any, name: str = name, close: Any = close) -> None:
            closed.append(" ".join([name, *args]))
            close(*args)

        monkeypatch.setattr(part, "close", told)
    return closed


def broken() -> None:
    raise RuntimeError("the driver is gone")


def test_the_wire_ends_before_the_sessions(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = watched(app, monkeypatch)
    app.close()
    assert closed == ["outlet clean stop", "camera", "sessions"]
    assert app.placed.note is not None
    assert standing_note(app.placed.note) is None


def test_what_fails_on_the_way_leaves_nothing_open_and_is_told(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = watched(app, monkeypatch)
    monkeypatch.setattr(app.placed, "halt", broken)
    with pytest.raises(RuntimeError, match="the driver is gone"):
        app.close()
    assert closed == ["outlet clean stop", "camera", "sessions"]


def test_what_ended_the_line_is_what_is_raised(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = watched(app, monkeypatch)
    monkeypatch.setattr(app.placed, "halt", broken)
    app.line._end_with(RuntimeFault("out of slots"))
    with pytest.raises(RuntimeFault, match="out of slots"):
        app.close()
    assert closed[0] == "outlet out of slots"


def test_a_hung_npu_is_told_to_the_next_start_however_this_one_ends(app: App) -> None:
    cast(Governor, app.placed.placer).npu_hung = PlanKind.HTP, HUNG
    assert app.placed.note is not None
    app.close()
    note = standing_note(app.placed.note)
    assert note is not None
    assert (note.plan, note.reason) == ("htp", f"clean stop ({HUNG})")


def test_the_watchdog_sees_a_mechanic_that_hangs_and_the_note_is_there_before_it_bites(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert app.placed.mechanic is not None
    assert app.placed.note is not None
    app.placed.mechanic.stop()
    app.placed.mechanic.busy = (0, PlanKind.HTP)  # since the clock began
    monkeypatch.setattr("edge_app.placed.STUCK_US", 0)
    monkeypatch.setattr("edge_app.app.timeout_ms", lambda _pipeline, _placed: 0)
    app.placed.mechanic.longest_us = 0
    monkeypatch.setattr(app.line, "oldest_us", lambda: 0)
    found = app.stuck()
    assert found is not None
    assert found.startswith("the mechanic is stuck: it has been at plan htp for ")
    note = standing_note(app.placed.note)
    assert note is not None
    assert note.plan == "htp"
    app.close()


def test_a_mechanic_that_hangs_in_a_driver_is_seen(tmp_path: Path) -> None:
    release = threading.Event()

    def hang() -> Engine:
        release.wait(PATIENCE_S)
        raise RuntimeFault("released")

    governor = Governor(build_policy(Scheduler(), [PlanKind.HTP], (), None, canaries=False), deadline_us=None)
    mechanic = Mechanic(governor, {PlanKind.HTP: hang}, lambda _engine: None, 1)
    placed = Placed(cast(Any, None), {}, governor, mechanic, None, False, None, True, note=tmp_path / "note.json")
    mechanic.start()
    try:
        until(lambda: mechanic.busy is not None and mechanic.busy[1] is PlanKind.HTP)
        assert placed.mechanic_stuck(3600 * 1_000_000) is None
        mechanic.longest_us = 0
        until(lambda: placed.mechanic_stuck(1000) is not None)
        placed.tell_next_start("the watchdog")
        note = standing_note(tmp_path / "note.json")
        assert note is not None
        assert (note.plan, "the mechanic is stuck" in note.reason) == ("htp", True)
    finally:
        release.set()
        mechanic.stop()
    until(lambda: mechanic.busy is None)
