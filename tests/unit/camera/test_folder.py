from __future__ import annotations

import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from edge_app.camera import open_camera
from edge_app.camera.base import Camera
from edge_app.config.camera import FolderCamera
from edge_app.errors import CameraError
from edge_app.frame import Frame, FrameStatus, PixelFormat


def picture(grey: int, height: int = 8, width: int = 12) -> np.ndarray:
    return np.full((height, width, 3), (grey, grey // 2, 255 - grey), np.uint8)


def folder_of(tmp_path: Path, *names: str) -> Path:
    for index, name in enumerate(names):
        cv2.imwrite(str(tmp_path / name), picture(10 * index))
    return tmp_path


def camera(path: Path, **keys: object) -> Camera:
    return open_camera(FolderCamera.model_validate({"type": "folder", "path": path, **keys}))


def names(source: Camera, limit: int = 1000) -> list[str]:
    return [frame.name for frame in frames(source, limit)]


def frames(source: Camera, limit: int = 1000) -> list[Frame]:
    result: list[Frame] = []
    while len(result) < limit and (frame := source.read()) is not None:
        result.append(frame)
    return result


def test_numbers_sort_as_numbers_and_the_folder_ends(tmp_path: Path) -> None:
    folder_of(tmp_path, "b1.png", "a10.png", "a2.png", "a1.PNG")
    (tmp_path / "notes.md").write_text("no picture")
    got = frames(camera(tmp_path))
    assert [f.name for f in got] == ["a1.PNG", "a2.png", "a10.png", "b1.png"]
    assert [f.frame_id for f in got] == [1, 2, 3, 4]
    assert all(f.status is FrameStatus.COMPLETE and f.truth is None for f in got)
    np.testing.assert_array_equal(got[1].pixels, picture(20))
    assert (got[1].width, got[1].height, got[1].pixel_format) == (12, 8, PixelFormat.BGR8)


def test_order_by_time_of_change(tmp_path: Path) -> None:
    folder_of(tmp_path, "a.png", "b.png", "c.png")
    for age, name in enumerate(("b.png", "c.png", "a.png")):
        os.utime(tmp_path / name, (1_000 + age, 1_000 + age))
    assert names(camera(tmp_path, order="modified")) == ["b.png", "c.png", "a.png"]


def test_shuffle_is_by_seed_and_changes_each_round(tmp_path: Path) -> None:
    listed = [f"{i}.png" for i in range(8)]
    folder_of(tmp_path, *listed)
    one = names(camera(tmp_path, order="shuffle", seed=3, loop=True), 16)
    assert one == names(camera(tmp_path, order="shuffle", seed=3, loop=True), 16)
    assert sorted(one[:8]) == sorted(one[8:]) == listed
    assert one[:8] != listed
    assert one[:8] != one[8:]
    assert one != names(camera(tmp_path, order="shuffle", seed=4, loop=True), 16)


def test_loop_goes_on_with_new_ids(tmp_path: Path) -> None:
    folder_of(tmp_path, "a.png", "b.png")
    got = frames(camera(tmp_path, loop=True), 5)
    assert [f.name for f in got] == ["a.png", "b.png", "a.png", "b.png", "a.png"]
    assert [f.frame_id for f in got] == [1, 2, 3, 4, 5]


def test_pattern_single_picture_and_list(tmp_path: Path) -> None:
    folder_of(tmp_path, "x_1.png", "y_1.png", "x_2.png")
    assert names(camera(tmp_path, pattern="x_*")) == ["x_1.png", "x_2.png"]
    assert names(camera(tmp_path / "y_1.png")) == ["y_1.png"]
    (tmp_path / "some.txt").write_text("y_1.png\n\n# two more\nx_2.png\nx_1.png  # the last\n")
    assert names(camera(tmp_path / "some.txt")) == ["x_1.png", "x_2.png", "y_1.png"]
    assert names(camera(tmp_path / "some.txt", order="listed")) == ["y_1.png", "x_2.png", "x_1.png"]


def test_broken_pictures_are_incomplete_frames_with_their_names(tmp_path: Path) -> None:
    coarse = np.random.default_rng(0).integers(0, 255, (9, 9, 3), np.uint8)
    cv2.imwrite(str(tmp_path / "1.jpg"), cv2.resize(coarse, (64, 64)))
    whole = (tmp_path / "1.jpg").read_bytes()
    (tmp_path / "2.jpg").write_bytes(whole[: len(whole) * 2 // 3])
    (tmp_path / "3.jpg").write_bytes(b"")
    (tmp_path / "4.jpg").write_text("no picture at all")
    (tmp_path / "5.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (tmp_path / "6.jpg").write_bytes(whole)
    got = frames(camera(tmp_path))
    assert [f.status.value for f in got] == ["complete", *["incomplete"] * 4, "complete"]
    assert [f.frame_id for f in got] == [1, 2, 3, 4, 5, 6]
    for index, why in ((1, "truncated JPEG"), (2, "empty"), (3, "can't be decoded"), (4, "No such file")):
        assert got[index].pixels is None
        assert got[index].note.startswith(f"{index + 1}.jpg: ")
        assert why in got[index].note


@pytest.mark.parametrize("pixel_format", PixelFormat)
def test_every_pixel_format_with_padded_rows(pixel_format: PixelFormat, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), picture(40, 9, 13))
    (frame,) = frames(camera(tmp_path, pixel_format=pixel_format, row_align_bytes=32))
    assert frame.pixel_format is pixel_format
    assert frame.pixels is not None
    assert frame.pixels.strides[0] == (64 if pixel_format in (PixelFormat.BGR8, PixelFormat.RGB8) else 32)
    even = pixel_format in (PixelFormat.NV12, PixelFormat.YUYV)
    assert (frame.width, frame.height) == (12 if even else 13, 8 if pixel_format is PixelFormat.NV12 else 9)


def test_a_picture_too_small_for_its_format_is_incomplete(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "dot.png"), picture(1, 1, 1))
    (frame,) = frames(camera(tmp_path, pixel_format=PixelFormat.NV12))
    assert frame.status is FrameStatus.INCOMPLETE
    assert "1x1" in frame.note


def test_preload_gives_the_same_frames_without_the_files(tmp_path: Path) -> None:
    folder_of(tmp_path, "a.png", "b.png")
    (tmp_path / "c.png").write_bytes(b"")
    source = camera(tmp_path, preload=True, loop=True)
    for file in tmp_path.iterdir():
        file.unlink()
    got = frames(source, 6)
    assert [f.name for f in got] == ["a.png", "b.png", "c.png"] * 2
    assert [f.status.value for f in got] == ["complete", "complete", "incomplete"] * 2
    for frame in got:
        source.recycle(frame)
    np.testing.assert_array_equal(got[4].pixels, picture(10))


def test_stop_ends_reading_and_open_starts_anew(tmp_path: Path) -> None:
    source = camera(folder_of(tmp_path, "a.png", "b.png"), loop=True, rate_fps=0.001)
    first = source.read()
    assert first is not None
    source.stop()
    assert source.read() is None
    source.close()
    source.open()
    again = source.read()
    assert again is not None
    assert (again.frame_id, again.name) == (1, "a.png")


@pytest.mark.parametrize(
    ("content", "path", "what", "got"),
    [
        (None, "absent", "can't read the pictures", "No such file"),
        (None, "absent.txt", "can't read the list of pictures", "No such file"),
        (None, ".", "there are no pictures", "0 other entries"),
        (b"text", ".", "there are no pictures", "1 other entries"),
        (b"\n", "file.txt", "there are no pictures", "an empty list"),
        (b"\xff\xfe\x00", "file.txt", "can't read the list of pictures", "no text in UTF-8"),
        (b"text", "file.txt/x", "can't read the pictures", "Not a directory"),
    ],
)
def test_a_folder_that_can_not_serve_is_one_error(
    content: bytes | None, path: str, what: str, got: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "file.txt").write_bytes(content)
    with pytest.raises(CameraError) as caught:
        camera(tmp_path / path)
    assert what in caught.value.what
    assert got in (caught.value.got or "")
    assert str(tmp_path) in (caught.value.where or "")


@pytest.mark.parametrize("pattern", ["/abs", "", "**x"])
def test_a_pattern_that_is_none_is_one_error(pattern: str, tmp_path: Path) -> None:
    folder_of(tmp_path, "a.png")
    with pytest.raises(CameraError) as caught:
        camera(tmp_path, pattern=pattern)
    assert caught.value.where in ("camera.pattern", str(tmp_path)), "from Python 3.13 on **x is one, of no file here"


def test_an_unreadable_folder(tmp_path: Path) -> None:
    folder_of(tmp_path, "a.png").chmod(0)
    caller = os.geteuid()
    try:
        if caller == 0:
            os.seteuid(65534)  # root may read everything
        with pytest.raises(CameraError, match="Permission denied"):
            camera(tmp_path)
    finally:
        os.seteuid(caller)
        tmp_path.chmod(0o700)
