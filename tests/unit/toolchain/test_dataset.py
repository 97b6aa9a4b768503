from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from edge_app.camera import make_camera
from edge_app.config.camera import FolderCamera
from edge_app.errors import ConfigError
from edge_app.frame import FrameStatus
from edge_app.toolchain.dataset import pictures_in, read_dataset, read_picture, read_truth


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    for name in ("a", "b"):
        cv2.imwrite(str(tmp_path / "images" / f"{name}.png"), np.full((40, 80, 3), 9, np.uint8))
    (tmp_path / "labels" / "a.txt").write_text("1 0.5 0.5 0.25 0.5\n")
    (tmp_path / "val.txt").write_text("./images/a.png\n./images/b.png\n")
    (tmp_path / "data.yaml").write_text("path: .\nval: val.txt\nall: images\nnames: [open, short]\n")
    return tmp_path


def test_list_and_folder_splits_give_the_same_pictures(root: Path) -> None:
    by_list, by_folder = read_dataset(root, "val"), read_dataset(root / "data.yaml", "all")
    assert [p.file.name for p in by_list.pictures] == ["a.png", "b.png"]
    assert [p.file.name for p in by_folder.pictures] == ["a.png", "b.png"]
    assert by_list.names == ("open", "short")


def test_truth_is_in_pixels_and_translated_by_name(root: Path) -> None:
    picture = read_dataset(root, "val").pictures[0]
    truth = read_truth(picture, (40, 80), ("open", "short"), ("short", "open"))
    assert truth.labels.tolist() == [0]
    assert truth.boxes_px.tolist() == [[30, 10, 50, 30]]


def test_picture_without_label_file_is_empty(root: Path) -> None:
    assert len(read_truth(read_dataset(root, "val").pictures[1], (40, 80), ("open",), ("open",))) == 0


@pytest.mark.parametrize("line", ["1 0.5 0.5 0.25", "7 .5 .5 .1 .1", "x .5 .5 .1 .1", "0.5 .5 .5 .1 .1"])
def test_bad_label_line_names_file_and_line(root: Path, line: str) -> None:
    (root / "labels" / "a.txt").write_text(f"0 .5 .5 .1 .1\n{line}\n")
    with pytest.raises(ConfigError, match=r"a\.txt:2"):
        read_truth(read_dataset(root, "val").pictures[0], (40, 80), ("open", "short"), ("open", "short"))


def test_label_unknown_to_the_model(root: Path) -> None:
    with pytest.raises(ConfigError, match="does not know"):
        read_truth(read_dataset(root, "val").pictures[0], (40, 80), ("open", "short"), ("open",))


def test_unknown_split_names_those_there(root: Path) -> None:
    with pytest.raises(ConfigError, match="val, all"):
        read_dataset(root, "test")


def test_split_without_any_label_file_is_an_error(root: Path) -> None:
    (root / "labels" / "a.txt").unlink()
    with pytest.raises(ConfigError, match="label file"):
        read_dataset(root, "val")


def test_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no picture"):
        pictures_in(tmp_path)


def test_truncated_picture_is_an_error(root: Path) -> None:
    file = root / "images" / "a.png"
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(ConfigError, match="not a whole, upright picture"):
        read_picture(file)


def stored_jpeg(file: Path) -> bytes:
    """A picture that is 60 px wide, and another one in each quarter."""
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:20, :30], pixels[20:, 30:] = (250, 20, 20), (20, 250, 20)
    assert cv2.imwrite(str(file), pixels)
    return file.read_bytes()


def test_a_jpeg_that_is_cut_off_is_an_error_as_it_is_to_a_line(tmp_path: Path) -> None:
    """OpenCV gives it with its lower part grey."""
    file = tmp_path / "a.jpg"
    file.write_bytes(stored_jpeg(file)[:-200])
    with pytest.raises(ConfigError) as caught:
        read_picture(file)
    assert "no end marker" in str(caught.value.got)
    camera = make_camera(FolderCamera.model_validate({"type": "folder", "path": tmp_path}))
    camera.open()
    frame = camera.read()
    assert frame is not None
    assert frame.status is FrameStatus.INCOMPLETE


@pytest.mark.parametrize(("orientation", "turned"), [(1, False), (3, True), (6, True)])
def test_a_picture_that_a_line_sees_turned_is_an_error(tmp_path: Path, orientation: int, turned: bool) -> None:
    """Its labels are of the picture as it is shown, its pixels at the line are not."""
    file = tmp_path / "a.jpg"
    whole = stored_jpeg(file)
    entry = b"\x01\x12\x00\x03\x00\x00\x00\x01" + orientation.to_bytes(2, "big") + b"\x00\x00"
    exif = b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01" + entry + bytes(4)
    file.write_bytes(whole[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + whole[2:])
    if turned:
        with pytest.raises(ConfigError) as caught:
            read_picture(file)
        assert "stored turned" in str(caught.value.got)
    else:
        assert read_picture(file).shape == (40, 60, 3)


def test_a_list_that_is_not_there_names_the_line_that_names_it(root: Path) -> None:
    (root / "data.yaml").write_text("path: .\nval: gone.txt\nnames: [open, short]\n")
    with pytest.raises(ConfigError, match=r"data\.yaml:2: val: .*is not there") as caught:
        read_dataset(root, "val")
    assert str(root / "gone.txt") in str(caught.value.got)


def test_a_folder_without_data_yaml_is_told_what_a_data_set_is(root: Path) -> None:
    with pytest.raises(ConfigError, match="no data set here") as caught:
        read_dataset(root / "images", "val")
    assert "data.yaml" in str(caught.value.wanted)
