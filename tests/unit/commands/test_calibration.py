from __future__ import annotations

import hashlib
import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from edge_app.camera import open_camera, pcb
from edge_app.cli import main
from edge_app.config.camera import SyntheticCamera
from edge_app.errors import ExitCode
from edge_app.frame_guard import load_products, make_guard

PIPELINE = "camera: {type: synthetic}\nmodel: {path: none}\nlimits: {pacing: offline}\n"


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    file = tmp_path / "line.yaml"
    file.write_text(PIPELINE)
    return file


def pictures(folder: Path, count: int, product: int = 85) -> Path:
    folder.mkdir()
    for index in range(count):
        cv2.imwrite(str(folder / f"{index}.png"), pcb.draw(product, 1001 + 2 * index, defects=()).image)
    return folder


def test_a_guard_learnt_from_pictures_knows_them_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, out = pictures(tmp_path / "boards", 12), tmp_path / "g.json"
    (good / "broken.png").write_bytes(b"")
    cv2.imwrite(str(good / "white.png"), np.full((640, 640, 3), 255, np.uint8))
    assert main(["calibration", "guard", "--from", str(good), "--out", str(out), "--json"]) == ExitCode.OK
    said, told = capsys.readouterr()
    report = json.loads(said)
    assert (report["product"], report["frames"], report["unusable"]) == ("boards", 12, 2)
    assert report["limits"]["largest_shift_px"] < 10
    assert "not used: broken.png: " in told
    assert "not used: white.png: flat" in told
    guard = make_guard(out)
    camera = open_camera(SyntheticCamera(type="synthetic", seed=5, frames=4, defect_rate=0.5))
    assert [guard(frame) for frame in iter(camera.read, None)] == [None] * 4
    camera.close()
    foreign = open_camera(SyntheticCamera(type="synthetic", seed=5, frames=1, product=87))
    (frame,) = iter(foreign.read, None)
    foreign.close()
    judgement = guard(frame)
    assert judgement is not None
    assert judgement.reason == "NO_PART"


def test_a_line_teaches_by_its_good_parts_and_products_are_added_and_replaced(pipeline: Path, tmp_path: Path) -> None:
    out = tmp_path / "g.json"
    learn = ["calibration", "guard", "--pipeline", str(pipeline), "--frames", "4", "--out", str(out)]
    assert main(learn) == ExitCode.OK
    assert main([*learn, "--set", "camera.product=87", "--product", "other"]) == ExitCode.OK
    assert main([*learn, "--set", "camera.product=89"]) == ExitCode.OK
    assert sorted(product.name for product in load_products(out)) == ["line", "other"]
    assert "4 frames of line.yaml" in out.read_text()


def test_a_line_with_bad_parts_alone_teaches_nothing(
    pipeline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learn = ["calibration", "guard", "--pipeline", str(pipeline), "--frames", "1", "--out", str(tmp_path / "g.json")]
    assert main([*learn, "--set", "camera.defect_rate=1.0"]) == ExitCode.USAGE
    assert "no good frame to learn from" in capsys.readouterr().err
    assert not (tmp_path / "g.json").exists()


def test_pictures_of_two_sizes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = pictures(tmp_path / "boards", 2)
    cv2.imwrite(str(good / "9.png"), np.zeros((100, 200, 3), np.uint8))
    arguments = ["calibration", "guard", "--from", str(good), "--out", str(tmp_path / "g.json")]
    assert main(arguments) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert "9.png" in error
    assert "got: 200x100" in error


def test_an_absent_folder_is_a_camera_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in ("absent", "loop"):
        arguments = ["calibration", "guard", "--from", str(tmp_path / name), "--out", str(tmp_path / "g.json")]
        assert main(arguments) == ExitCode.CAMERA


def test_collect_keeps_varied_frames_and_says_which(
    pipeline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "set"
    collect = ["calibration", "collect", "--pipeline", str(pipeline), "--frames", "20", "--keep", "5", "--json"]
    assert main([*collect, "--out", str(out)]) == ExitCode.OK
    report = json.loads(capsys.readouterr().out)
    assert (report["seen"], report["refused"], report["kept"]) == (20, 0, 5)
    assert report == json.loads((out / "collection.json").read_text())
    assert sorted(p.name for p in out.glob("*.png")) == [p["file"] for p in report["pictures"]]
    for picture in report["pictures"]:
        data = (out / picture["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == picture["sha256"]
        part = int(picture["file"].removeprefix("frame_").removesuffix(".png")) - 1
        drawn = pcb.draw(85, pcb.examining_seed(part), defective_share=0.5).image
        np.testing.assert_array_equal(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), drawn)
    assert main([*collect, "--out", str(tmp_path / "again")]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["pictures"] == report["pictures"]


@pytest.mark.parametrize("pixel_format", ["RGB8", "GRAY8", "NV12", "YUYV", "BayerRG8"])
def test_collect_from_any_pixel_format(pixel_format: str, pipeline: Path, tmp_path: Path) -> None:
    collect = ["calibration", "collect", "--pipeline", str(pipeline), "--frames", "1", "--out", str(tmp_path / "set")]
    more = ["--set", f"camera.pixel_format={pixel_format}", "--set", "camera.row_align_bytes=1024"]
    assert main([*collect, *more]) == ExitCode.OK
    saved = cv2.imread(str(tmp_path / "set" / "frame_0000001.png"))
    drawn = pcb.draw(85, pcb.examining_seed(0), defective_share=0.5).image
    if pixel_format == "GRAY8":
        drawn = np.dstack([cv2.cvtColor(drawn, cv2.COLOR_BGR2GRAY)] * 3)
    assert np.abs(saved.astype(int) - drawn).mean() < 5


def test_collect_leaves_out_what_the_guard_refuses(
    pipeline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collect = ["calibration", "collect", "--pipeline", str(pipeline), "--frames", "3", "--out", str(tmp_path / "set")]
    assert main([*collect, "--set", "camera.condition=lens_cap", "--json"]) == ExitCode.OK
    report = json.loads(capsys.readouterr().out)
    assert (report["seen"], report["refused"], report["kept"], report["pictures"]) == (3, 3, 0, [])


def test_collect_does_not_mix_with_what_is_there(
    pipeline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "mine.png").write_bytes(b"x")
    collect = ["calibration", "collect", "--pipeline", str(pipeline), "--out", str(tmp_path / "set")]
    assert main(collect) == ExitCode.USAGE
    assert "holds something already" in capsys.readouterr().err
