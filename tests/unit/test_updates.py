"""Updates of a line in this process: what goes when, and what a refusal leaves."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import pytest
from toy_versions import PARTS, make_model, picture
from wire_samples import until

from edge_app.app import App, build
from edge_app.config.load import load_manifest, load_pipeline
from edge_app.scheduler import Event, EventKind
from edge_app.store import ModelStore, digests_of, files_of, write_sums
from edge_app.update import NotNow, Stage, Updates
from edge_app.verdict import Mode, PlanKind

LINE = """\
camera: {type: folder, path: pictures, loop: true, rate_fps: 50}
model: {path: own}
runtime: {provider: cpu, threads: 1}
limits: {pacing: realtime, deadline_ms: 60000, slots: 16}
update: {most_late: 100000}
monitor: {http: null}
results: {publish: null, commands: null, journal: {path: var/results.db}}
"""


def push(updates: Updates, folder: Path) -> str:
    digests = digests_of(folder, files_of(folder, load_manifest(folder)))
    size = sum((folder / file).stat().st_size for file in digests)
    version, _ = updates.announce("toy", write_sums(digests), size)
    for file in digests:
        updates.staging.write(version, file, 0, (folder / file).read_bytes())
    updates.staging.finish(version)
    return version


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of a line."""
    (tmp_path / "pictures").mkdir()
    for number in range(PARTS):
        cv2.imwrite(str(tmp_path / "pictures" / f"part{number}.png"), picture(number))
    make_model(tmp_path / "own", "1")
    made = tmp_path / "line.yaml"
    made.write_text(LINE)
    return made


@contextmanager
def running(file: Path, watch_frames: int = 5) -> Iterator[App]:
    """The line runs, and ends cleanly."""
    made = build(load_pipeline(file, [f"update.watch_frames={watch_frames}"]), "line")
    made.start()
    yield made
    made.stop()
    assert made.wait(30)
    made.close()


@pytest.fixture
def app(file: Path) -> Iterator[App]:
    """A line that runs."""
    with running(file) as made:
        yield made


def ended(app: App) -> dict[str, Any]:
    """What is told when the update is over."""
    until(lambda: app.updates.status()["update"]["stage"] in ("in_force", "refused", "rolled_back"), 60)
    return app.updates.status()


def test_a_line_without_any_plan_is_in_mode_fault_until_there_is_one_again(app: App) -> None:
    assert app.governor is not None
    until(lambda: app.line.sealer.counts().sealed > 3)
    app.governor.tell(Event(EventKind.ERROR, PlanKind.CPU, "the session is lost"))
    until(lambda: app.line.mode is Mode.FAULT)
    assert "NO_PLAN" in [alarm.name for alarm in app.outlet.standing_alarms()]
    until(lambda: app.line.sealer.counts().unknown_by_reason.get("RUNTIME_FAULT", 0) > 0)
    until(lambda: app.line.mode is Mode.RUNNING, 90)
    inspected = app.line.sealer.counts().passed
    until(lambda: app.line.sealer.counts().passed > inspected)


def test_what_is_told_to_be_stored_after_an_update_does_not_go_any_more(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a version that is activated then may be gone as it is loaded."""
    stages, forget = [], ModelStore.forget_old

    def watched(store: ModelStore, in_use: Collection[str]) -> list[str]:
        assert app.updates.progress is not None
        stages.append(app.updates.progress.stage)
        return forget(store, in_use)

    version = push(app.updates, make_model(tmp_path / "v2", "2", seed=2))
    monkeypatch.setattr(ModelStore, "forget_old", watched)
    app.updates.activate(version)
    assert (ended(app)["in_force"], stages) == ([version], [Stage.WATCHING])


def test_what_fails_after_an_update_was_made_to_last_takes_nothing_back(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told as refused, with the old model in this run and the new one at the next start."""

    def no_memory(_store: ModelStore, _in_use: Collection[str]) -> list[str]:
        raise MemoryError

    version = push(app.updates, make_model(tmp_path / "v2", "2", seed=2))
    monkeypatch.setattr(ModelStore, "forget_old", no_memory)
    app.updates.activate(version)
    told = ended(app)
    assert (told["in_force"], told["running"], told["update"]["stage"]) == ([version], version, "in_force")
    assert "tidying up failed: MemoryError" in told["update"]["text"]


def test_a_trial_that_a_stop_cuts_off_is_told_by_the_next_run_and_not_after_it(file: Path, tmp_path: Path) -> None:
    with running(file, 100_000) as app:
        version = push(app.updates, make_model(tmp_path / "v2", "2", seed=2))
        app.updates.activate(version)
        until(lambda: app.updates.status()["update"]["stage"] == "watching", 60)
        until(lambda: app.updates.status()["running"] == version, 60)
    with running(file) as app:
        (alarm,) = app.outlet.standing_alarms()
        assert alarm.text.startswith(f"{version} was still watched when the node ended")
    with running(file) as app:
        assert app.outlet.standing_alarms() == []


def test_an_update_for_which_there_is_no_thread_has_not_begun(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was called loading for ever, no other could begin, and the line's end was an error."""
    version = push(app.updates, make_model(tmp_path / "v2", "2", seed=2))

    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", refused)
        with pytest.raises(NotNow, match="can't start new thread"):
            app.updates.activate(version)
    assert app.updates.status()["update"] is None
    start = threading.Thread.start

    def refused_to_load(thread: threading.Thread) -> None:
        (refused if thread.name == "loading" else start)(thread)

    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", refused_to_load)
        app.updates.activate(version)
        told = ended(app)["update"]
    assert (told["stage"], "no more memory, threads" in told["text"], "bug" in told["text"]) == ("refused", True, False)
    app.updates.activate(version)
    assert ended(app)["in_force"] == [version]
