"""`edge_app` as a user runs it: real processes, real sockets, real files; one clear error for everything wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import pytest
import toys
import zmq

Run = Callable[..., subprocess.CompletedProcess[str]]


def edge_app(*arguments: object, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "edge_app", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def free_endpoint() -> str:
    with zmq.Context() as context, context.socket(zmq.REP) as probe:
        return f"tcp://127.0.0.1:{probe.bind_to_random_port('tcp://127.0.0.1')}"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Ten pictures for the toy model: those with an even number are defective."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(10):
        cells = [(2, 2)] if number % 2 == 0 else []
        cv2.imwrite(str(folder / f"part{number}.png"), toys.detector_picture(cells, seed=number))
    return folder


@pytest.fixture
def pipeline(tmp_path: Path, toy_model: Path, pictures: Path) -> Path:
    file = tmp_path / "toy.yaml"
    file.write_text(f"""\
camera:
  type: folder
  path: pictures
model:
  path: {toy_model}
runtime:
  provider: cpu
results:
  publish: {free_endpoint()}
  commands: {free_endpoint()}
limits:
  pacing: offline
""")
    return file


def failed(result: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    """One clear error on stderr, the right exit code, no traceback, nothing on stdout."""
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    for part in parts:
        assert part in result.stderr
    assert result.stdout == ""


def test_a_run_ends_with_its_summary(pipeline: Path) -> None:
    result = edge_app("--pipeline", pipeline, "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert {key: document[key] for key in ("frames", "pass", "fail", "unknown", "lost", "plan")} == {
        "frames": 10, "pass": 5, "fail": 5, "unknown": 0, "lost": 0, "plan": "cpu",
    }  # fmt: skip
    assert document["unknown_by_reason"] == {}
    assert 0 < document["p50_ms"] <= document["p99_ms"]
    assert document["simulated"] is True
    assert document["fps"] > 0
    assert list(document)[:4] == ["frames", "pass", "fail", "unknown"]


def test_frames_limits_the_run_and_people_get_a_table(pipeline: Path) -> None:
    result = edge_app("--pipeline", pipeline, "--frames", 4)
    assert result.returncode == 0, result.stderr
    assert "Summary" in result.stdout
    assert "│ frames" in result.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_within_two_seconds(pipeline: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "edge_app", "--pipeline", str(pipeline), "--set", "camera.loop=true",
         "--set", "camera.rate_fps=20", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if "RUNNING" in line:
            break
    time.sleep(0.5)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=2)
    assert process.returncode == 0, stderr
    document = json.loads(stdout)
    assert document["lost"] == 0
    assert document["frames"] == document["pass"] + document["fail"] + document["unknown"] > 0


def test_a_truncated_picture_is_unknown_and_the_line_goes_on(pipeline: Path, pictures: Path) -> None:
    jpeg = cv2.imencode(".jpg", toys.detector_picture([]))[1].tobytes()
    (pictures / "part3.png").unlink()
    (pictures / "part3.jpg").write_bytes(jpeg[: len(jpeg) // 2])
    (pictures / "part4.png").write_bytes(b"")
    document = json.loads(edge_app("--pipeline", pipeline, "--json").stdout)
    assert document["frames"] == 10
    assert document["unknown_by_reason"] == {"INCOMPLETE_FRAME": 2}
    assert (document["pass"], document["fail"]) == (4, 4)


@pytest.mark.parametrize(
    ("setting", "code", "part"),
    [
        ("camera.path=/nowhere", 3, "/nowhere"),
        ("model.path=/nowhere", 4, "no manifest in the model's folder"),
        ("model.path=/nowhere.onnx", 4, "no such model file"),
        ("camera.pth=x", 2, "did you mean camera.path?"),
        ("limits.pacing=realtime", 2, "requires deadline_ms"),
        ("limits.slots=0", 2, "limits.slots"),
        ("results.publish=nonsense", 2, "results.publish"),
        ("judge.classes.nolabel.score=0.5", 2, "judge.classes.nolabel: the model has no such label"),
        ("preprocess.color=BGR", 2, "contradicts the model's manifest"),
        ("runtime.provider=null", 4, "no recorded output"),
        ("runtime.provider=qnn", 2, "runtime.soc"),
    ],
)
def test_what_can_be_wrong_has_one_clear_error(pipeline: Path, setting: str, code: int, part: str) -> None:
    failed(edge_app("--pipeline", pipeline, "--set", setting), code, part)


def test_an_empty_and_an_unreadable_folder(pipeline: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    failed(edge_app("--pipeline", pipeline, "--set", f"camera.path={empty}"), 3, str(empty))
    if os.geteuid() != 0:  # root reads everything
        empty.chmod(0)
        failed(edge_app("--pipeline", pipeline, "--set", f"camera.path={empty}"), 3, str(empty))


def copy_of(toy_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_model, tmp_path / "model"))


def test_a_model_of_0_bytes_a_flipped_byte_and_garbage(pipeline: Path, toy_model: Path, tmp_path: Path) -> None:
    model = copy_of(toy_model, tmp_path)
    content = (model / "model.onnx").read_bytes()
    (model / "model.onnx").write_bytes(b"")
    failed(
        edge_app("--pipeline", pipeline, "--set", f"model.path={model}"), 4, "is not the one that its manifest binds"
    )
    (model / "model.onnx").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    failed(
        edge_app("--pipeline", pipeline, "--set", f"model.path={model}"), 4, "is not the one that its manifest binds"
    )
    bare = tmp_path / "bare.onnx"
    for junk, part in ((b"", "the model file is empty"), (b"not a model", "can't load the model")):
        bare.write_bytes(junk)
        failed(edge_app("--pipeline", pipeline, "--set", f"model.path={bare}"), 4, part)


def test_a_model_of_the_wrong_shape(pipeline: Path, toy_model: Path, tmp_path: Path) -> None:
    model = copy_of(toy_model, tmp_path)
    manifest = (model / "manifest.yaml").read_text()
    (model / "manifest.yaml").write_text(manifest.replace("width: 64", "width: 128"))
    failed(edge_app("--pipeline", pipeline, "--set", f"model.path={model}"), 4, "input is not that of its manifest")
    (model / "manifest.yaml").write_text(manifest.replace("labels: [bright, other]", "labels: [bright, other, third]"))
    failed(
        edge_app("--pipeline", pipeline, "--set", f"model.path={model}"), 2, "outputs are not those of a yolov8 head"
    )


def test_a_port_in_use(pipeline: Path) -> None:
    endpoint = free_endpoint()
    with zmq.Context() as context, context.socket(zmq.PUB) as other:
        other.bind(endpoint)
        failed(edge_app("--pipeline", pipeline, "--set", f"results.publish={endpoint}"), 6, endpoint, "in use")


def test_check_shows_the_resolved_pipeline(pipeline: Path) -> None:
    result = edge_app("check", pipeline, "--set", "limits.slots=2", "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["pipeline"]["limits"]["slots"] == 2
    assert document["fail_at"] == {"bright": 0.5, "other": 0.9}
    assert "Frames in flight at most." in edge_app("check", pipeline).stdout
    failed(edge_app("check", pipeline, "--set", "camera.pth=x"), 2, "did you mean camera.path?")


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("results.publish=tcp://0.0.0.0:5560", "results.publish: without keys only this machine may listen"),
        ("results.commands=nonsense", "results.commands: not an endpoint"),
        ("monitor.http=0.0.0.0:8560", "monitor.http: without a token only this machine may look"),
        ("monitor.http=8560:localhost", "monitor.http: not an address"),
    ],
)
def test_check_refuses_what_the_start_refuses(pipeline: Path, setting: str, part: str) -> None:
    failed(edge_app("check", pipeline, "--set", setting), 2, f"edge_app: --set {part}")
    failed(edge_app("--pipeline", pipeline, "--set", setting), 2, f"edge_app: --set {part}")


@pytest.mark.parametrize(
    ("line", "code", "parts"),
    [
        ("judge: {classes: {bolt: {score: 0.5}}}", 2, ["judge.classes.bolt: the model has no such label", "got: bolt"]),
        ("judge: {guard: nowhere.json}", 2, ["judge.guard: ", "nowhere.json: can't read the guard file"]),
        ("recipes: {b: nowhere.yaml}", 2, ["recipes.b: ", "nowhere.yaml: can't read the file"]),
        ("camera: {type: folder, path: nowhere}", 3, ["camera.path: ", "nowhere: can't read the pictures"]),
        ("camera: {type: folder, path: pictures, pattern: a*}", 3, ["camera.path: ", "there are no pictures"]),
        ("camera: {type: video, path: nowhere.mp4}", 3, ["camera.path: ", "there is no such file or folder"]),
    ],
)
def test_what_is_found_after_the_yaml_was_read_names_its_line(
    pipeline: Path, line: str, code: int, parts: list[str]
) -> None:
    section = line.partition(":")[0]
    kept = re.sub(rf"(?m)^{section}:.*\n(  .*\n)*", "", pipeline.read_text())
    pipeline.write_text(f"{kept}{line}\n")
    failed(edge_app("check", pipeline), code, f"edge_app: {pipeline}:{kept.count(chr(10)) + 1}: ", *parts)


def test_a_line_without_a_guard_is_told_what_it_lets_pass(pipeline: Path) -> None:
    assert "may PASS" in json.loads(edge_app("check", pipeline, "--json").stdout)["guard"]
    live = ["--set", "limits.pacing=realtime", "--set", "limits.deadline_ms=5000"]
    assert "judge.guard is not set" in edge_app("--pipeline", pipeline, "--frames", "1", *live).stderr


def test_check_calls_simulated_what_the_line_will(pipeline: Path) -> None:
    live = ["--set", "limits.pacing=realtime", "--set", "limits.deadline_ms=50"]
    stream = ["--set", "camera.type=video", "--set", "camera.path=rtsp://127.0.0.1/line"]
    for camera, simulated in ((live, True), ([*live, *stream], False)):
        assert json.loads(edge_app("check", pipeline, "--json", *camera).stdout)["simulated"] is simulated


def test_labels_that_are_too_few_for_a_bare_model_are_counted(pipeline: Path) -> None:
    bare = Path(__file__).parents[2] / "models" / "pcb-defect" / "model.onnx"
    settings = ["--set", f"model.path={bare}", "--set", "model.labels=[open, short]"]
    told = edge_app("check", pipeline, *settings)
    failed(told, 2, f"{bare}: there are not as many labels", "6 labels", "2: open, short")


def test_check_tells_that_a_model_is_for_another_soc(pipeline: Path) -> None:
    told = edge_app("check", pipeline, "--set", "runtime.provider=auto", "--set", "runtime.soc=qcs9999", "--json")
    assert told.returncode == 0, told.stderr
    assert [alarm for alarm in json.loads(told.stdout)["alarms"] if "no plan for qcs9999" in alarm]


def test_check_of_a_recipe_names_its_file_and_whose_name_it_has(pipeline: Path, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("judge: {classes: {bolt: {score: 0.5}}}\n")
    failed(edge_app("check", pipeline, "--set", "recipes.b=other.yaml"), 2, "other.yaml: judge.classes", "bolt")
    (tmp_path / "other.yaml").write_text("judge: {classes: {other: {score: 0.5, marginal: 0.6}}}\n")
    failed(edge_app("check", pipeline, "--set", "recipes.b=other.yaml"), 2, "other.yaml: judge.", "grey band of other")
    failed(edge_app("check", pipeline, "--set", f"recipes.{pipeline.stem}=other.yaml"), 2, "own recipe")


def test_check_of_a_folder_checks_the_lines_of_a_board(pipeline: Path, tmp_path: Path) -> None:
    folder = tmp_path / "hall"
    folder.mkdir()
    text = pipeline.read_text().replace("path: pictures", "path: ../pictures")
    for name in ("l1", "l2"):
        (folder / f"{name}.yaml").write_text(text)
    failed(edge_app("check", folder), 2, "l2.yaml", "l1.yaml")
    (folder / "l2.yaml").write_text(f"station: {{line: l2}}\n{text}")
    told = edge_app("check", folder, "--json", "--set", "results.publish=null", "--set", "results.commands=null")
    assert told.returncode == 0, told.stderr
    lines = json.loads(told.stdout)["lines"]
    assert [Path(line["file"]).name for line in lines] == ["l1.yaml", "l2.yaml"]
    assert {line["model"] for line in lines} == {json.loads(edge_app("check", pipeline, "--json").stdout)["model"]}


def test_every_key_of_the_schema_is_described() -> None:
    schema = json.loads(edge_app("check", "--schema").stdout)

    def lacking(node: dict[str, object], place: str) -> list[str]:
        properties = node.get("properties", {})
        assert isinstance(properties, dict)
        return [f"{place}.{name}" for name, field in properties.items() if "title" not in field and "$ref" not in field]

    assert [gap for name, node in schema["$defs"].items() for gap in lacking(node, name)] == []
    assert schema["additionalProperties"] is False


def test_help_is_there_and_wrong_words_are_told() -> None:
    result = edge_app("--help")
    assert result.returncode == 0
    for word in ("--pipeline", "check", "watch", "exit codes"):
        assert word in result.stdout
    failed(edge_app("chekc"), 2, "did you mean `edge_app check`?")
    failed(edge_app("--pipelin"), 2)


def test_load_in_one_line(toy_model: Path) -> None:
    import edge_app as package

    found = package.load(toy_model)(toys.detector_picture([(2, 2)]))
    assert found.labels.tolist() == [0]
    x0, y0, x1, y1 = found.boxes_px[0]
    assert x0 < 24 < x1
    assert y0 < 24 < y1
    assert len(package.load(toy_model)(toys.detector_picture([]))) == 0
    with pytest.raises(TypeError, match="wanted uint8"):
        package.load(toy_model)(toys.detector_picture([]).astype("float32"))
    with pytest.raises(TypeError, match="wanted a NumPy array, got NoneType"):
        package.load(toy_model)(cv2.imread("no such picture.png"))


def test_every_command_of_the_help_has_help_of_its_own() -> None:
    from edge_app.cli import COMMANDS

    for name in COMMANDS:
        result = edge_app(name, "--help")
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith(f"usage: edge_app {name}")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_no_exit_code(pipeline: Path, closed: str) -> None:
    """A journal or a camera that got the number of one of them would get its output too."""
    for arguments, code in ((["--pipeline", pipeline, "--frames", "2", "--json"], 0), (["check", "nope.yaml"], 2)):
        command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-P", "-m", "edge_app", *arguments]
        assert subprocess.run(command, timeout=60, check=False, capture_output=True).returncode == code
