"""Errors that are found after the YAML was read: of the model, the wire, the judge. They name the line all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_app.config.load import load_pipeline
from edge_app.config.places import told_with_line
from edge_app.errors import BusError, ConfigError, EdgeAppError

TEXT = """\
camera:
  type: video
  path: rtsp://plant:secret@camera/stream
model:
  path: models/mine
judge: {guard: mine.guard.json}
recipes:
  b: recipes/b.yaml
results:
  commands: tcp://127.0.0.1:5561
limits: {pacing: realtime, deadline_ms: 50}
"""


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("results.commands", "FILE:10: results.commands"),
        ("results.publish", "FILE:9: results.publish"),  # not written there: its section
        ("monitor.http", "FILE: monitor.http"),  # nor that
        ("limits.pacing", "FILE:11: limits.pacing"),
        ("scheduler.zones.nsp, zone nsp0", "FILE: scheduler.zones.nsp, zone nsp0"),
        ("FOLDER/models/mine", "FILE:5: model.path: FOLDER/models/mine"),
        ("FOLDER/models/mine/manifest.yaml:7", "FILE:5: model.path: FOLDER/models/mine/manifest.yaml:7"),
        ("FOLDER/mine.guard.json", "FILE:6: judge.guard: FOLDER/mine.guard.json"),
        ("FOLDER/recipes/b.yaml: judge.classes.x", "FILE:8: recipes.b: FOLDER/recipes/b.yaml: judge.classes.x"),
        ("rtsp://plant:***@camera/stream", "FILE:3: camera.path: rtsp://plant:***@camera/stream"),
        ("/elsewhere/models/mine", "/elsewhere/models/mine"),
        (None, None),
    ],
)
def test_where_begins_with_the_line_of_the_key(tmp_path: Path, where: str | None, told: str | None) -> None:
    file = tmp_path / "line.yaml"
    file.write_text(TEXT)
    with pytest.raises(EdgeAppError) as caught, told_with_line(load_pipeline(file)):
        raise BusError("refused", where=None if where is None else where.replace("FOLDER", str(tmp_path)))
    assert caught.value.where == (told and told.replace("FILE", str(file)).replace("FOLDER", str(tmp_path)))
    assert str(caught.value) == (f"{caught.value.where}: refused" if told else "refused")


def test_an_override_is_its_own_place(tmp_path: Path) -> None:
    file = tmp_path / "line.yaml"
    file.write_text(TEXT)
    with pytest.raises(ConfigError) as caught, told_with_line(load_pipeline(file, ["results.publish=x"])):
        raise ConfigError("refused", where="results.publish")
    assert caught.value.where == "--set results.publish"


def test_the_password_of_a_stream_is_in_no_document(tmp_path: Path) -> None:
    """`describe` tells the pipeline to every viewer, `edge_app check` to whoever looks over a shoulder."""
    file = tmp_path / "line.yaml"
    file.write_text(TEXT)
    pipeline = load_pipeline(file)
    assert "secret" not in pipeline.model_dump_json()
    assert pipeline.camera.model_dump()["path"] == "rtsp://plant:secret@camera/stream"  # the camera gets it
    file.write_text(TEXT.replace("realtime, deadline_ms: 50", "offline"))
    with pytest.raises(ConfigError) as caught:
        load_pipeline(file)
    assert "secret" not in str(caught.value)
