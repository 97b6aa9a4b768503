from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from edge_app.errors import ConfigError
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
    with pytest.raises(ConfigError, match="decoded"):
        read_picture(file)
