from __future__ import annotations

import os
import tempfile
from pathlib import Path

import cv2
import numpy as np
import pytest

from edge_app.camera import open_camera
from edge_app.camera.base import Camera
from edge_app.camera.convert import array_shape
from edge_app.config.base import without_password
from edge_app.config.camera import VideoCamera
from edge_app.errors import CameraError
from edge_app.frame import Frame, FrameStatus, PixelFormat

COUNT, WIDTH, HEIGHT = 20, 160, 120
BOARD = cv2.resize(np.random.default_rng(0).integers(0, 255, (6, 8, 3), np.uint8), (WIDTH, HEIGHT))


def picture(index: int) -> np.ndarray:
    return np.roll(BOARD, 4 * index, axis=1)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    for name, code in (("a.avi", "MJPG"), ("a.mp4", "mp4v"), ("a.mkv", "MJPG")):
        writer = cv2.VideoWriter(str(folder / name), cv2.VideoWriter.fourcc(*code), 25, (WIDTH, HEIGHT))
        assert writer.isOpened()
        for index in range(COUNT):
            writer.write(picture(index))
        writer.release()
    return folder


def camera(path: Path | str, **keys: object) -> Camera:
    return open_camera(VideoCamera.model_validate({"type": "video", "path": str(path), **keys}))


def frames(source: Camera, limit: int = 1000) -> list[Frame]:
    result: list[Frame] = []
    while len(result) < limit and (frame := source.read()) is not None:
        result.append(frame)
    source.close()
    return result


@pytest.mark.parametrize("name", ["a.avi", "a.mp4", "a.mkv"])
def test_every_frame_of_a_file_in_order(name: str, videos: Path) -> None:
    source = camera(videos / name)
    assert (source.width, source.height, source.live, source.simulated) == (WIDTH, HEIGHT, False, True)
    got = frames(source)
    assert [f.frame_id for f in got] == list(range(1, COUNT + 1))
    assert all(f.status is FrameStatus.COMPLETE and f.name == name for f in got)
    for index, frame in enumerate(got):
        assert frame.pixels is not None
        assert np.abs(frame.pixels.astype(int) - picture(index)).mean() < 6


def test_loop_goes_on_with_new_ids(videos: Path) -> None:
    got = frames(camera(videos / "a.avi", loop=True), COUNT + 3)
    assert [f.frame_id for f in got] == list(range(1, COUNT + 4))
    np.testing.assert_array_equal(got[0].pixels, got[COUNT].pixels)


@pytest.mark.parametrize("name", ["a.avi", "a.mkv"])
def test_a_file_that_is_cut_off_says_so_at_its_end(name: str, videos: Path) -> None:
    whole = (videos / name).read_bytes()
    (videos / f"cut_{name}").write_bytes(whole[: len(whole) // 2])
    got = frames(camera(videos / f"cut_{name}"))
    assert 3 <= len(got) < COUNT
    assert all(f.status is FrameStatus.COMPLETE for f in got[:-1])
    assert got[-1].status is FrameStatus.INCOMPLETE
    assert f"cut off or damaged: {len(got) - 1} of {COUNT} frames" in got[-1].note


def test_a_damaged_file_says_so(videos: Path) -> None:
    data = bytearray((videos / "a.mp4").read_bytes())
    data[len(data) // 4 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 4)
    (videos / "damaged.mp4").write_bytes(data)
    got = frames(camera(videos / "damaged.mp4"))
    assert got[-1].status is FrameStatus.INCOMPLETE


@pytest.mark.parametrize(
    ("content", "name", "got"),
    [
        (None, "absent.mp4", "No such file"),
        (b"", "empty.mp4", "an empty file"),
        (b"no video" * 999, "text.mp4", "could not be opened"),
    ],
)
def test_what_is_no_video_is_one_error(content: bytes | None, name: str, got: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CameraError) as caught:
        camera(tmp_path / name)
    assert str(tmp_path / name) in (caught.value.where or "")
    assert got in (caught.value.got or "")


@pytest.mark.parametrize("url", ["rtsp://host:abc/x", "rtsp://host:99999/x", "rtsp://[::1/x", "rtsp://a..b/x"])
def test_what_is_no_url_is_one_error(url: str) -> None:
    with pytest.raises(CameraError) as caught:
        camera(url)
    assert caught.value.where == url


@pytest.mark.parametrize("path", ["63", "/dev/video63"])
def test_a_device_that_is_not_there(path: str) -> None:
    with pytest.raises(CameraError) as caught:
        camera(path)
    assert caught.value.where == "/dev/video63"
    assert "No such file" in (caught.value.got or "")


@pytest.mark.parametrize("pixel_format", PixelFormat)
def test_pixel_formats(pixel_format: PixelFormat, videos: Path) -> None:
    got = frames(camera(videos / "a.avi", pixel_format=pixel_format, row_align_bytes=64), 2)
    for frame in got:
        assert frame.pixel_format is pixel_format
        assert frame.pixels is not None
        assert frame.pixels.shape == array_shape(pixel_format, WIDTH, HEIGHT)
        assert frame.pixels.strides[0] % 64 == 0
    if pixel_format is PixelFormat.RGB8:
        assert got[0].pixels is not None
        assert np.abs(got[0].pixels[..., ::-1].astype(int) - picture(0)).mean() < 6


def test_recycled_buffers_are_decoded_into_again(videos: Path) -> None:
    source = camera(videos / "a.avi")
    addresses = set()
    while (frame := source.read()) is not None:
        assert frame.pixels is not None
        addresses.add(frame.pixels.ctypes.data)
        source.recycle(frame)
    source.close()
    assert len(addresses) <= 6


def test_stop_while_waiting_for_the_rate(videos: Path) -> None:
    source = camera(videos / "a.avi", rate_fps=0.001)
    assert source.period_us == 1_000_000_000
    assert source.read() is not None
    source.stop()
    assert source.read() is None
    source.close()


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("rtsp://u:p@host:554/a", "rtsp://u:***@host:554/a"),
        ("rtsp://u:p@ss@host/a", "rtsp://u:***@host/a"),
        ("rtsp://host/a@b", "rtsp://host/a@b"),
        ("/videos/a:b@c.mp4", "/videos/a:b@c.mp4"),
    ],
)
def test_passwords_are_not_shown(source: str, printed: str) -> None:
    assert without_password(source) == printed


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to be somebody else")
def test_a_file_that_others_own_is_not_called_damaged() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "line.mp4"
        file.write_bytes(b"x" * 99)
        file.chmod(0o600)
        Path(folder).chmod(0o755)
        os.seteuid(65534)
        try:
            with pytest.raises(CameraError) as caught:
                open_camera(VideoCamera(type="video", path=str(file)))
        finally:
            os.seteuid(0)
        assert caught.value.got == "Permission denied"
