"""GigE Vision: against Aravis's own fake camera, which speaks the real protocol, on loopback."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest

from edge_app.camera import make_camera
from edge_app.camera.base import Camera
from edge_app.camera.gige import ANEW, LARGEST_HOLE, SIXTEEN_BITS, aravis, step_between
from edge_app.config.camera import GigeCamera
from edge_app.errors import CameraError
from edge_app.frame import Frame, FrameStatus, PixelFormat

FAKE = shutil.which("arv-fake-gv-camera-0.8")
PATIENCE_S = 60.0


@pytest.mark.parametrize(
    ("last_id", "frame_id", "step"),
    [
        (7, 8, 1),
        (7, 7, 0),
        (7, 10, 3),
        (SIXTEEN_BITS, 1, 1),  # 0 is left out
        (SIXTEEN_BITS - 1, 2, 3),
        (SIXTEEN_BITS, SIXTEEN_BITS + 1, 1),  # of 64 bits
        (7, 7 + LARGEST_HOLE, LARGEST_HOLE),
        (100, 1, ANEW),  # not 65435 missed triggers
        (SIXTEEN_BITS - LARGEST_HOLE - 1, 1, ANEW),
        (SIXTEEN_BITS + 9, 1, ANEW),
        (2**64 - 1, 1, ANEW),
        (7, 2**63, ANEW),  # garbage: the line would seal for years
    ],
)
def test_frame_ids(last_id: int, frame_id: int, step: int) -> None:
    assert step_between(last_id, frame_id) == step


def missing() -> str | None:
    """Why the fake camera can't be tried here."""
    if FAKE is None:
        return "needs Aravis's fake camera: apt-get install aravis-tools"
    try:
        aravis()
    except CameraError as error:
        return f"needs Aravis: {error.got}; {error.remedy}"
    return None


needs_aravis = pytest.mark.skipif(missing() is not None, reason=missing() or "")


class FakeCamera:
    """The process of Aravis's camera; it may be ended and started again."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert FAKE is not None
        self._process = subprocess.Popen([FAKE, "-i", "127.0.0.1", *self._arguments])

    def stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@pytest.fixture
def fake() -> Iterator[Callable[..., FakeCamera]]:
    made: list[FakeCamera] = []

    def start(*arguments: str) -> FakeCamera:
        camera = FakeCamera(*arguments)
        made.append(camera)
        camera.start()
        return camera

    yield start
    for camera in made:
        camera.stop()


def opened(**settings: object) -> Camera:
    """The camera, once it answers: a fake one needs a moment."""
    section = GigeCamera.model_validate(
        {"type": "gige", "path": "127.0.0.1", "pixel_format": "GRAY8", **settings}, strict=False
    )
    camera = make_camera(section)
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            camera.open()
            return camera
        except CameraError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def read_until(camera: Camera, wanted: Callable[[list[Frame]], bool]) -> list[Frame]:
    frames: list[Frame] = []
    until = time.monotonic() + PATIENCE_S
    while not wanted(frames):
        assert time.monotonic() < until, [(frame.frame_id, frame.status, frame.note) for frame in frames]
        frame = camera.read()
        assert frame is not None
        frames.append(frame)
    return frames


def complete(frames: list[Frame]) -> list[Frame]:
    return [frame for frame in frames if frame.status is FrameStatus.COMPLETE]


@needs_aravis
class TestFakeCamera:
    """The real protocol, on loopback."""

    @pytest.mark.parametrize(("pixel_format", "shape"), [("GRAY8", (128, 256)), ("RGB8", (128, 256, 3))])
    def test_pictures_come_as_they_were_asked_for(
        self, fake: Callable[..., FakeCamera], pixel_format: str, shape: tuple[int, ...]
    ) -> None:
        fake()
        camera = opened(pixel_format=pixel_format, features={"Width": 256, "Height": 128, "ExposureTimeAbs": 5000.0})
        try:
            frames = read_until(camera, lambda frames: len(complete(frames)) >= 5)
            assert (camera.width, camera.height, camera.simulated) == (256, 128, True)
            ids = [frame.frame_id for frame in frames]
            assert ids == sorted(set(ids))
            pictures = [frame.pixels for frame in complete(frames) if frame.pixels is not None]
            assert {picture.shape for picture in pictures} == {shape}
            assert pictures[0].std() > 1
            assert any(not np.array_equal(pictures[0], other) for other in pictures[1:])  # its pattern moves
            stamps = [frame.t_capture_mono_us for frame in frames]
            assert stamps == sorted(stamps)
        finally:
            camera.close()

    def test_lost_packets_make_a_frame_incomplete_or_missing_and_never_a_whole_one(
        self, fake: Callable[..., FakeCamera]
    ) -> None:
        fake("-r", "300")  # of a thousand
        camera = opened()
        try:
            frames = read_until(camera, lambda frames: any(f.status is FrameStatus.INCOMPLETE for f in frames))
            cut = next(frame for frame in frames if frame.status is FrameStatus.INCOMPLETE)
            assert cut.pixels is None
            assert "did not come whole" in cut.note
        finally:
            camera.close()

    def test_a_camera_that_goes_is_lost_once_and_comes_back(self, fake: Callable[..., FakeCamera]) -> None:
        process = fake()
        camera = opened(timeout_ms=1000, reconnect_max_s=0.5, stale_after=1000)
        try:
            read_until(camera, lambda frames: len(complete(frames)) >= 2)
            process.stop()
            lost = read_until(camera, lambda frames: any(frame.status is FrameStatus.LOST for frame in frames))
            assert "127.0.0.1: no frame for 1000 ms" in lost[-1].note
            assert camera.trouble is not None
            process.start()
            again = read_until(camera, lambda frames: len(complete(frames)) >= 2)
            assert FrameStatus.LOST not in {frame.status for frame in again[:1]}
            assert again[0].frame_id > lost[-1].frame_id
            assert camera.trouble is None
        finally:
            camera.close()

    def test_a_camera_that_was_started_anew_is_picked_up_however_long_a_pause_may_be(
        self, fake: Callable[..., FakeCamera]
    ) -> None:
        """Where parts trigger it, `timeout_ms` is long; what went by meanwhile is one missed frame."""
        process = fake()
        camera = opened(timeout_ms=600_000, reconnect_max_s=0.5, stale_after=1000)
        try:
            before = read_until(camera, lambda frames: len(complete(frames)) >= 2)
            process.stop()
            process.start()
            after = read_until(camera, lambda frames: len(complete(frames)) >= 20)  # far more than were on their way
            assert FrameStatus.LOST not in {frame.status for frame in after}
            assert any(later.frame_id - earlier.frame_id > 1 for earlier, later in pairwise((*before, *after)))
        finally:
            camera.close()

    @pytest.mark.parametrize(
        ("settings", "what", "got"),
        [
            ({"pixel_format": "BGR8"}, "has not this pixel format", "BGR8"),
            ({"features": {"NoSuchFeature": 1}}, "can't be had", "NoSuchFeature"),
        ],
    )
    def test_what_it_has_not_is_one_clear_error(
        self, fake: Callable[..., FakeCamera], settings: dict[str, object], what: str, got: str
    ) -> None:
        fake()
        opened().close()
        section = {"type": "gige", "path": "127.0.0.1", "pixel_format": "GRAY8", **settings}
        with pytest.raises(CameraError, match=what) as caught:
            make_camera(GigeCamera.model_validate(section, strict=False)).open()
        assert got in str(caught.value.got)

    def test_no_camera_there(self) -> None:
        section = GigeCamera.model_validate({"type": "gige", "path": "127.0.0.9"})
        with pytest.raises(CameraError, match="can't be had") as caught:
            make_camera(section).open()
        assert caught.value.where == "127.0.0.9"


def test_formats_that_no_such_camera_has_are_refused() -> None:
    with pytest.raises(ValueError, match="have no NV12"):
        GigeCamera.model_validate({"type": "gige", "path": "1.2.3.4", "pixel_format": PixelFormat.NV12})
