"""Text files of one entry a line: read alike everywhere, and one clear error where one can't be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import colours
import pytest

from edge_app.camera.mirror_scenes import listed_pictures
from edge_app.config.tensor import Preprocess
from edge_app.errors import CameraError, ConfigError, EdgeAppError
from edge_app.listing import read_lines, read_paths
from edge_app.model import resolve
from edge_app.toolchain.calibration import listed
from edge_app.toolchain.dataset import Picture, read_dataset, read_truth


def test_lines_are_without_blanks_and_paths_without_comments(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    file.write_text("\n a b.png \n\n#none\nc.png # the third\r\n")
    assert read_lines(file, "the list") == ["a b.png", "#none", "c.png # the third"]
    assert read_paths(file, Path("root")) == [Path("root/a b.png"), Path("root/c.png")]


def test_a_mirrors_list_may_hold_names_with_blanks_and_comments(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("# taken in May\nred shirts/my photo.png\n")
    assert listed_pictures(tmp_path / "list.txt") == [(tmp_path / "red shirts/my photo.png", "red shirts")]


def _labels(file: Path) -> Any:
    section = colours.pipeline(file.parent).model.model_copy(update={"labels": None, "labels_file": file})
    return resolve(section, Preprocess.model_validate(colours.PREPROCESS))


def _dataset(file: Path) -> Any:
    data = file.parent / "data.yaml"
    data.write_text(f"names: [a]\nval: {file.name}\n")
    return read_dataset(data, "val")


@pytest.mark.parametrize(
    ("read", "kind"),
    [
        (listed_pictures, CameraError),
        (_labels, ConfigError),
        (_dataset, ConfigError),
        (lambda file: listed(file, file.parent), ConfigError),
        (lambda file: read_truth(Picture(file, file), (10, 10), ["a"], ["a"]), ConfigError),
    ],
)
def test_what_is_no_text_is_one_error(tmp_path: Path, read: Callable[[Path], Any], kind: type[EdgeAppError]) -> None:
    file = tmp_path / "list.txt"
    file.write_bytes(b"good\n\xff\xfe")
    with pytest.raises(kind) as caught:
        read(file)
    assert caught.value.got == "no text in UTF-8: invalid start byte at byte 5"
    assert caught.value.where == str(file)
    assert caught.value.remedy == "save it as UTF-8"
