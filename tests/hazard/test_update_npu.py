"""A node with all plans on the simulated HTP: live update, where the plans of both models are loaded at once and proven
before the swap, and a plan that a person asks for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import cv2
import pytest
import toy_plans as toy
from nodes import free_port
from wire_samples import until

from edge_app.app import App, build
from edge_app.cli import main
from edge_app.config.load import load_manifest, load_pipeline
from edge_app.store import digests_of, files_of, write_sums
from edge_app.update import ENDS, Stage
from edge_app.verdict import PlanKind, SchedReason


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
results: {{publish: null, commands: "tcp://127.0.0.1:{free_port()}", journal: {{path: results.db}}}}
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


def prefer(plan: str, app: App, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main(["model", "prefer", plan, "--line", str(app.pipeline.results.commands), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def placed(app: App, plan: PlanKind, *, asked: bool) -> bool:
    last = app.line.placement
    return last.plan is plan and (last.reason is SchedReason.OPERATOR) is asked


def test_frames_run_where_a_person_asked_for_also_after_an_update_until_told_otherwise(
    app: App, tmp_path: Path, toy_plans: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    until(lambda: placed(app, PlanKind.HTP, asked=False))
    assert prefer("cpu", app, capsys) == {"plan": "cpu", "ready": ["htp", "hybrid", "cpu"]}
    until(lambda: placed(app, PlanKind.CPU, asked=True))

    second = Path(shutil.copytree(toy_plans, tmp_path / "second"))
    (second / "manifest.yaml").write_text((second / "manifest.yaml").read_text() + "\n# the second version\n")
    version = push(app, second)
    assert activate(app, version)[0] is Stage.IN_FORCE
    assert app.running.version == version
    assert placed(app, PlanKind.CPU, asked=True)

    prefer("any", app, capsys)
    until(lambda: placed(app, PlanKind.HTP, asked=False), 60)
    counts = app.line.sealer.counts()
    assert counts.passed > 0
    assert counts.failed > 0
    assert counts.unknown_by_reason.keys() <= {"OVERRUN", "OVERLOAD", "LATE"}


def test_a_plan_that_the_line_has_not_is_refused_and_nothing_changes(
    app: App, capsys: pytest.CaptureFixture[str]
) -> None:
    until(lambda: placed(app, PlanKind.HTP, asked=False))
    assert main(["model", "prefer", "gpu", "--line", str(app.pipeline.results.commands)]) == 2
    told = capsys.readouterr().err
    assert "this line has no plan gpu" in told
    assert "htp, hybrid, cpu or any" in told
    assert placed(app, PlanKind.HTP, asked=False)
