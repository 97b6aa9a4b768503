from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest

from edge_app.camera import open_camera
from edge_app.camera.base import PixelPool
from edge_app.camera.live import LastPicture, Network, Stamps, equal, silence_ms
from edge_app.config.camera import VideoCamera
from edge_app.errors import CameraError
from edge_app.frame import Frame, FrameStatus


@pytest.mark.parametrize(
    ("rate_fps", "stamps_ms", "steps"),
    [
        (25, [0, 40, 80, 120], [1, 1, 1, 1]),
        (25, [0, 40, 200, 240], [1, 1, 4, 1]),  # three frames are missing
        (25, [0, 47, 75, 125], [1, 1, 1, 1]),  # jitter is no hole
        (25, [0, 40, 40, 40, 80], [1, 1, 0, 0, 1]),  # the same frame again
        (None, [0, 40, 200, 200], [1, 1, 1, 0]),  # no rate: holes can't be told
        (25, [0, 0, 0, 0], [1, 1, 1, 1]),  # a source without stamps
        (25, [7, 7, 7], [1, 1, 1]),
        (25, [0, 40, 3_600_000, 3_600_040], [1, 1, 1, 1]),  # the stream's clock was set
        (25, [5000, 40, 80], [1, 1, 1]),
    ],
)
def test_steps_of_time_stamps(rate_fps: float | None, stamps_ms: list[float], steps: list[int]) -> None:
    stamps = Stamps(rate_fps)
    assert [stamps.step(stamp) for stamp in stamps_ms] == steps


LIVE = [40 * n for n in range(10)]


@pytest.mark.parametrize(
    ("arrivals_ms", "stamps_ms", "held_up_ms"),
    [
        (LIVE, LIVE, [0] * 10),
        ([0, 55, 80, 135, 160], LIVE[:5], [0] * 5),  # jitter
        ([0, 40, 80, 480, 481, 482, 483, 500], LIVE[:8], [0, 0, 0, 360, 321, 282, 243, 220]),  # a stall, and its burst
        ([0, 40, 80, 480, 520], [0, 40, 80, 480, 520], [0] * 5),  # frames are missing, or the camera was triggered
        ([0, 40, 80, 480, 481], [0, 0, 0, 0, 0], [0] * 5),  # a source without stamps
        ([0, 40, 80, 480, 520], [80, 120, 160, 10, 50], [0] * 5),  # the stream's clock was set
        ([200 * n for n in range(30)], [100 * n for n in range(30)], [0] * 30),  # they go at half the speed
    ],
)
def test_what_a_network_held_up_is_as_old_as_it_is(
    arrivals_ms: list[int], stamps_ms: list[int], held_up_ms: list[int]
) -> None:
    network = Network()
    both = zip(arrivals_ms, stamps_ms, strict=True)
    assert [network.held_up_us(1000 * arrival, 1000 * stamp) // 1000 for arrival, stamp in both] == held_up_ms


def test_a_camera_whose_stamps_are_worth_nothing_is_live_again_after_a_stall() -> None:
    network, now_ms = Network(), 0
    found = []
    for number in range(100):
        now_ms += 2000 if number == 10 else 100
        found.append(network.held_up_us(1000 * now_ms, 50_000 * number))
    assert max(found) > 1_000_000
    assert found[-20:] == [0] * 20


def picture(value: int) -> np.ndarray:
    return np.full((40, 30, 3), value, np.uint8)


def test_equal_sees_one_changed_byte_anywhere() -> None:
    for row in (0, 7, 39):
        other = picture(3)
        other[row, 29, 2] = 4
        assert not equal(picture(3), other)
    assert equal(picture(3), picture(3))
    assert not equal(picture(3), picture(3)[:20])


def test_more_than_so_many_equal_pictures_are_stale() -> None:
    last = LastPicture(PixelPool(), stale_after=3)
    values = [1, 1, 1, 1, 1, 2, 1, 1, 1, 1]
    assert [last.seen_again(picture(value)) for value in values] == [False] * 3 + [True] * 2 + [False] * 4 + [True]
    last.forget()
    assert not last.seen_again(picture(1))


def test_a_buffer_is_not_lent_again_while_it_is_compared_with() -> None:
    pool = PixelPool()
    last = LastPicture(pool, stale_after=1)
    one = pool.lend((4, 4))
    last.seen_again(one)
    last.let_go(one)  # by the line, which is done with it
    two = pool.lend((4, 4))
    assert two is not one
    last.seen_again(two)  # from here on nobody needs the first
    assert pool.lend((4, 4)) is one


@pytest.mark.parametrize(
    ("keys", "expected"), [({}, 2000), ({"rate_fps": 20.0}, 100), ({"rate_fps": 20.0, "timeout_ms": 700}, 700)]
)
def test_after_how_long_a_source_is_lost(keys: dict[str, float], expected: int) -> None:
    assert silence_ms(VideoCamera.model_validate({"type": "video", "path": "rtsp://h/s", **keys})) == expected


def test_nobody_listens_at_the_streams_address() -> None:
    with pytest.raises(CameraError) as caught:
        open_camera(VideoCamera(type="video", path="rtsp://u:secret@127.0.0.1:9/s"))
    assert caught.value.where == "rtsp://u:***@127.0.0.1:9/s"
    assert "refused" in (caught.value.got or "")
    assert "secret" not in str(caught.value)


@pytest.fixture
def three_frames(tmp_path: Path) -> Path:
    """A file stands in for a device here: as a live source its end is an outage, and opening it again a return."""
    file = tmp_path / "a.avi"
    writer = cv2.VideoWriter(str(file), cv2.VideoWriter.fourcc(*"MJPG"), 25, (32, 32))
    for index in range(3):
        writer.write(np.full((32, 32, 3), 60 * index, np.uint8))
    writer.release()
    return file


def test_a_connection_that_is_back_before_anything_is_lost_leaves_a_hole(three_frames: Path) -> None:
    """Frames went by meanwhile, and nothing else would tell: a part without any result."""
    source = open_camera(VideoCamera(type="video", path=str(three_frames), live=True, timeout_ms=60_000))
    frames = [source.read() for _ in range(7)]
    source.close()
    ids = [frame.frame_id for frame in frames if frame is not None and frame.status is FrameStatus.COMPLETE]
    steps = [after - before for before, after in pairwise(ids)]
    first = steps.index(2)  # opening uses up one frame of the three, and one may come before the first read
    assert first <= 1
    assert steps[first:] == [2, 1, 2, 1, 2, 1][: 6 - first]


def test_a_source_that_ends_is_lost_once_and_picked_up_again(three_frames: Path) -> None:
    section = VideoCamera(type="video", path=str(three_frames), live=True, timeout_ms=60, reconnect_max_s=0.3)
    source = open_camera(section)
    got: list[Frame] = []
    troubles: list[str | None] = []
    while sum(f.status is FrameStatus.LOST for f in got) < 2:
        frame = source.read()
        assert frame is not None
        got.append(frame)
        troubles.append(source.trouble)
    source.close()
    assert source.read() is None
    statuses = [f.status for f in got]
    first_lost = statuses.index(FrameStatus.LOST)
    assert statuses[:first_lost] == [FrameStatus.COMPLETE] * first_lost
    assert first_lost <= 2  # the file has three frames, and `open` used up the first
    assert FrameStatus.COMPLETE in statuses[first_lost:]
    assert [f.frame_id for f in got] == list(range(1, len(got) + 1))
    assert [trouble is not None for trouble in troubles] == [status is FrameStatus.LOST for status in statuses]
    assert "no frame for 60 ms" in got[first_lost].note
