"""Every wrong pipeline gets one error that names file, line, key, what was wanted and what was got."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from edge_app.config.camera import FolderCamera
from edge_app.config.guard import load_guard_file
from edge_app.config.load import load_pipeline
from edge_app.errors import ConfigError, EdgeAppError
from edge_app.model import resolve

GOOD = """\
station: {line: l1, station: st3}
camera:
  type: synthetic
  product: 11
model:
  path: ../models/pcb-defect
runtime: {provider: null}
limits:
  pacing: offline
"""


@pytest.fixture
def pipeline_file(tmp_path: Path) -> Path:
    file = tmp_path / "pipelines" / "line.yaml"
    file.parent.mkdir()
    file.write_text(GOOD)
    return file


def error_of(file: Path, *overrides: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_pipeline(file, overrides)
    return caught.value


def test_paths_are_relative_to_the_yaml(pipeline_file: Path) -> None:
    assert load_pipeline(pipeline_file).model.path == pipeline_file.parent.parent / "models" / "pcb-defect"


def test_yamls_null_is_the_null_provider(pipeline_file: Path) -> None:
    assert load_pipeline(pipeline_file).runtime.provider == "null"
    assert load_pipeline(pipeline_file, ["runtime.provider=null"]).runtime.provider == "null"


def test_an_override_takes_paths_from_the_callers_folder(
    pipeline_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    camera = load_pipeline(pipeline_file, ["camera.type=folder", "camera.path=pictures", "camera.loop=false"]).camera
    assert isinstance(camera, FolderCamera)
    assert (camera.path, camera.loop) == (tmp_path / "pictures", False)


def test_a_changed_type_drops_the_keys_of_the_old_one(pipeline_file: Path) -> None:
    camera = load_pipeline(pipeline_file, ["camera.type=folder", "camera.path=x"]).camera
    assert camera.type == "folder"  # `product` of the YAML belongs to the synthetic camera


@pytest.mark.parametrize(
    ("line", "text", "parts"),
    [
        (5, "modell:\n", ["unknown key modell", "did you mean model?"]),
        (4, "  produkt: 11\n", ["unknown key camera.produkt", "did you mean camera.product?"]),
        (4, "  product: eleven\n",
         ["camera.product", "wanted: a whole number", "'eleven' (text)", "do: write a number"]),
        (4, "  product: 11.5\n", ["camera.product", "wanted: a whole number", "11.5 (a number)"]),
        (4, "  product: true\n", ["camera.product", "wanted: a whole number", "true (true or false)"]),
        (9, "  pacing: sometimes\n", ["limits.pacing", "'realtime' or 'offline'", "'sometimes'"]),
        (9, "  pacing: realtime\n", ["pacing realtime requires deadline_ms"]),
        (3, "  type: webcam\n", ["camera", "'folder', 'video', 'synthetic'"]),
        (7, "scheduler: {ladder: [{plan: gpu, power_mode: burst, watts: {nsp: 1, cpu: 1}}]}\n",
         ["scheduler.ladder.0.plan", "'htp', 'hybrid' or 'cpu'", "'gpu'"]),
        (6, "\tpath: x\n", ["not valid YAML", "tab"]),
        (9, "  pacing: offline\n  pacing: offline\n", ["the same key stands twice"]),
        (9, "  pacing: realtime\n  deadline_ms: 50 ms\n", ["limits.deadline_ms", "'50 ms' (text)", "milliseconds"]),
        (1, "station: {line: 7}\n", ["station.line", "wanted: text", "got: 7 (a whole number)", "line: '7'"]),
        (3, "  type: rtsp\n", ["camera", "got: rtsp", "video (an RTSP stream"]),
        (7, "preprocess: {color: bgr}\n", ["preprocess.color", "'RGB', 'BGR' or 'GRAY'", "did you mean BGR?"]),
        (7, "results: {journal: a.db}\n", ["results.journal", "wanted: keys and values of its own", "'a.db' (text)"]),
        (7, "judge: {regions: [{name: a, kind: ignore, polygon_px: [[1], [2, 2], [3, 3]]}]}\n",
         ["polygon_px.0.1: a value is missing", "x, y in px of the frame"]),
        (7, "judge: {regions: [{name: a, kind: ignore, polygon_px: [[1, 1], [2, 2]]}]}\n", ["at least 3 items"]),
        (7, "gate: {}\n", ["7: gate: a motion gate skips frames"]),
    ],
)
def test_errors_name_the_line(pipeline_file: Path, line: int, text: str, parts: list[str]) -> None:
    lines = GOOD.splitlines(keepends=True)
    pipeline_file.write_text("".join([*lines[: line - 1], text, *lines[line:]]))
    error = error_of(pipeline_file)
    for part in parts:
        assert part in str(error)
    place = str(error).split(": ", 1)[0]
    assert place.startswith(f"{pipeline_file}:")
    assert abs(int(place.rsplit(":", 1)[1]) - line) <= 1


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("limits.deadlin_ms=3", "did you mean limits.deadline_ms?"),
        ("camera.type", "wanted: key=value"),
        ("judge.classes.open.scor=1", "did you mean judge.classes.open.score?"),
        ("runtime.provider=tpu", "'auto', 'cpu', 'qnn' or 'null'"),
        ("limits.pacing.x=1", "goes below a value"),
        ("runtime.threads=100000", "less than or equal to 64"),  # onnxruntime would take every thread of the board
    ],
)
def test_errors_of_overrides_name_the_override(pipeline_file: Path, override: str, part: str) -> None:
    error = error_of(pipeline_file, override)
    assert part in str(error)
    assert str(error.where).startswith("--set ")
    assert f": {override.partition('=')[0]}: " not in str(error)  # it stands there already


def test_offline_pacing_is_refused_for_a_stream(pipeline_file: Path) -> None:
    error = error_of(pipeline_file, "camera.type=video", "camera.path=rtsp://127.0.0.1:8554/line")
    assert "rtsp://127.0.0.1:8554/line is live" in str(error)


@pytest.mark.parametrize(
    ("content", "part"), [("", "an empty file"), ("- a\n- b\n", "got: a list"), ("a: [1\n", "not valid YAML")]
)
def test_files_that_are_no_mapping(tmp_path: Path, content: str, part: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(content)
    assert part in str(error_of(file))


def test_an_absent_file_and_one_that_is_no_text(tmp_path: Path) -> None:
    assert "No such file" in str(error_of(tmp_path / "none.yaml"))
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in str(error_of(binary))


@pytest.mark.parametrize(
    "line",
    [
        "x: 2026-13-45", "x: !!int y", "x: !!float y", "x: !!bool y", "x: 0x" + "f" * 5000, "x: " + "9" * 5000,
        "x: " + "[" * 5000 + "]" * 5000, 'x: "\\uD800"', "x: !!python/object:os.system [ls]", "x: !!omap [a: 1]",
        'station: {"1": 2, 1: 3}',
    ],
)  # fmt: skip
def test_yaml_of_any_kind_gets_one_error(pipeline_file: Path, line: str) -> None:
    pipeline_file.write_text(line + "\n")
    assert str(pipeline_file) in str(error_of(pipeline_file))


@pytest.mark.parametrize("value", ["2026-13-45", "&a [*a]", "!!int y", "9" * 5000, r'"\0"', r'"/a\0b"'])
def test_an_override_of_any_kind_gets_one_error(pipeline_file: Path, value: str) -> None:
    error_of(pipeline_file, f"model.path={value}")


@pytest.mark.parametrize("region", ["[10, 10, 5, 5]", "[-5, 0, 10, 10]", "[0, 0, 5, 0]", "[0, 0, 1, 99999999999]"])
def test_a_region_without_an_area_is_refused_before_the_start(pipeline_file: Path, region: str) -> None:
    assert "region_px" in str(error_of(pipeline_file, f"preprocess.region_px={region}"))


@pytest.mark.parametrize("corners", ["[[0.1, 0.1], [0.9, 0.1], [0.9, 0.9]]", "[[0, 0], [99, 99], [99, 0], [0, 99]]"])
def test_a_judged_region_in_which_nothing_could_be_found_is_refused(pipeline_file: Path, corners: str) -> None:
    """In shares of the frame, or with corners out of order: every part would pass."""
    with pipeline_file.open("a") as file:
        file.write(f"judge:\n  regions:\n  - {{name: board, kind: inspect, polygon_px: {corners}}}\n")
    assert "corners are in px of the frame" in str(error_of(pipeline_file))


def test_links_in_a_circle_are_one_error(pipeline_file: Path) -> None:
    (pipeline_file.parent / "loop").symlink_to("loop")
    pipeline_file.write_text(GOOD.replace("../models/pcb-defect", "loop"))

    def model(overrides: list[str]) -> None:
        pipeline = load_pipeline(pipeline_file, overrides)
        resolve(pipeline.model, pipeline.preprocess)  # from Python 3.13 on it comes so far, and finds nothing there

    for overrides in ([], [f"model.path={pipeline_file.parent / 'loop'}"]):
        with pytest.raises(EdgeAppError, match="loop"):
            model(overrides)


@pytest.mark.parametrize(
    "override",
    [
        "judge.default.max_count=" + "9" * 23, "judge.default.min_size_px=1e300", "results.journal.keep_days=1e300",
        "update.load_s=1e300", "runtime.timeout_ms=" + "9" * 26, "camera.rate_fps=1e-300", "camera.frames=" + "9" * 400,
    ],
)  # fmt: skip
def test_a_number_that_nothing_could_hold_is_refused_before_the_start(pipeline_file: Path, override: str) -> None:
    error_of(pipeline_file, override)


def test_what_is_merged_in_counts_as_written_there(pipeline_file: Path) -> None:
    rules = "judge: {classes: {open: &o {score: 0.5, max_count: 1}, short: {<<: *o, score: 0.6}}}\n"
    pipeline_file.write_text(GOOD + rules)
    short = load_pipeline(pipeline_file).judge.classes["short"]
    assert (short.score, short.max_count) == (0.6, 1)
    pipeline_file.write_text(GOOD + rules.replace("max_count", "most_count"))
    assert f"{pipeline_file}:10" in str(error_of(pipeline_file))


def test_aliases_of_aliases_are_not_written_out(pipeline_file: Path) -> None:
    bombs = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 12))
    pipeline_file.write_text(f"x0: &x0 [1]\n{bombs}")
    assert "too many keys" in str(error_of(pipeline_file))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to be somebody else")
def test_files_that_others_own_are_not_to_be_looked_for_or_learnt_anew() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "line.yaml"
        file.write_text(GOOD)
        file.chmod(0o600)
        Path(folder).chmod(0o755)
        os.seteuid(65534)
        try:
            for read in (load_pipeline, load_guard_file):
                with pytest.raises(ConfigError) as caught:
                    read(file)
                assert (caught.value.got, caught.value.remedy) == ("Permission denied", "see who may read it")
        finally:
            os.seteuid(0)
