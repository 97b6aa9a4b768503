"""When old versions leave the store: before the end of an update is told, and another one may begin."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import cv2
import pytest
from toy_versions import PARTS, make_model, picture
from wire_samples import until

from edge_app.app import build
from edge_app.config.load import load_manifest, load_pipeline
from edge_app.store import ModelStore, digests_of, files_of, write_sums
from edge_app.update import Stage, Updates

LINE = """\
camera: {type: folder, path: pictures, loop: true, rate_fps: 50}
model: {path: own}
runtime: {provider: cpu, threads: 1}
limits: {pacing: realtime, deadline_ms: 60000, slots: 16}
update: {watch_frames: 5, most_late: 100000}
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


def test_what_is_told_to_be_stored_after_an_update_does_not_go_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a version that is activated then may be gone as it is loaded."""
    (tmp_path / "pictures").mkdir()
    for number in range(PARTS):
        cv2.imwrite(str(tmp_path / "pictures" / f"part{number}.png"), picture(number))
    make_model(tmp_path / "own", "1")
    (tmp_path / "line.yaml").write_text(LINE)
    app = build(load_pipeline(tmp_path / "line.yaml"), "line")
    stages = []
    forget = ModelStore.forget_old

    def watched(store: ModelStore, in_use: Collection[str]) -> list[str]:
        assert app.updates.progress is not None
        stages.append(app.updates.progress.stage)
        return forget(store, in_use)

    version = push(app.updates, make_model(tmp_path / "v2", "2", seed=2))
    monkeypatch.setattr(ModelStore, "forget_old", watched)
    app.start()
    app.updates.activate(version)
    until(lambda: app.updates.status()["update"]["stage"] in ("in_force", "refused", "rolled_back"), 60)
    told = app.updates.status()
    app.stop()
    assert app.wait(30)
    app.close()
    assert (told["in_force"], stages) == ([version], [Stage.WATCHING])
