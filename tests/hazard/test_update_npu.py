"""Live update on the simulated HTP: the plans of both models are loaded at once, and proven before the swap."""

from __future__ import annotations

import shutil
from pathlib import Path

import cv2
import pytest
import toy_plans as toy
from wire_samples import until

from edge_app.app import App, build
from edge_app.config.load import load_manifest, load_pipeline
from edge_app.store import digests_of, files_of, write_sums
from edge_app.update import ENDS, Stage
from edge_app.verdict import PlanKind


def push(app: App, folder: Path) -> str:
    """As `edge_app model push` does, without the wire."""
    digests = digests_of(folder, files_of(folder, load_manifest(folder)))
    size = sum((folder / file).stat().st_size for file in digests)
    version, _ = app.updates.announce("toy", write_sums(digests), size)
    for file in digests:
        app.updates.staging.write(version, file, 0, (folder / file).read_bytes())
    app.updates.staging.finish(version)
    return version


def activate(app: App, version: str) -> tuple[Stage, str]:
    app.updates.activate(version)
    until(lambda: app.updates.progress is not None and app.updates.progress.stage in ENDS, 120)
    assert app.updates.progress is not None
    return app.updates.progress.stage, app.updates.progress.text


@pytest.fixture
def app(tmp_path: Path, toy_plans: Path):
    (tmp_path / "pictures").mkdir()
    for number in range(4):
        cv2.imwrite(str(tmp_path / "pictures" / f"{number}.png"), toy.BAD if number % 2 else toy.GOOD)
    (tmp_path / "line.yaml").write_text(f"""\
camera: {{type: folder, path: pictures, loop: true, rate_fps: 10}}
model: {{path: {toy_plans}}}
runtime: {{provider: qnn, soc: {toy.SOC}, threads: 1}}
limits: {{pacing: realtime, deadline_ms: 60000, slots: 8}}
update: {{watch_frames: 4, most_late: 1000}}
results: {{publish: null, commands: null, journal: {{path: results.db}}}}
""")
    made = build(load_pipeline(tmp_path / "line.yaml"), "line")
    made.start()
    yield made
    made.stop()
    assert made.wait(60)
    made.close()


def test_every_plan_comes_along_and_a_version_without_one_is_refused(
    app: App, tmp_path: Path, toy_plans: Path
) -> None:
    second = Path(shutil.copytree(toy_plans, tmp_path / "second"))
    manifest = (second / "manifest.yaml").read_text()
    (second / "manifest.yaml").write_text(manifest + "\n# the second version\n")
    version = push(app, second)
    assert activate(app, version)[0] is Stage.IN_FORCE
    assert app.running.version == version
    assert set(app.placed.engines) == {PlanKind.HTP, PlanKind.HYBRID, PlanKind.CPU}
    until(lambda: app.line.placement.plan is PlanKind.HTP)
    lacking = Path(shutil.copytree(toy_plans, tmp_path / "lacking"))
    plan = load_manifest(lacking).plan(PlanKind.HTP, toy.SOC)
    assert plan is not None
    (lacking / plan.artifacts[0].file).unlink()
    stage, text = activate(app, push(app, lacking))
    assert stage is Stage.REFUSED
    assert "plan htp" in text
    assert app.running.version == version
    counts = app.line.sealer.counts()
    assert counts.failed > 0
    assert counts.unknown_by_reason.keys() <= {"OVERRUN", "OVERLOAD", "LATE"}
