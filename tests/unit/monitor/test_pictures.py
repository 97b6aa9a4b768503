"""Pictures for the page: borrowed frames always go on, and every pixel format can be shown."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import cv2
import numpy as np
import pytest

from edge_app.camera.base import Births, PixelPool
from edge_app.camera.convert import Converter
from edge_app.frame import Frame, FrameStatus, PixelFormat
from edge_app.monitor.feed import MOST_WANTED, Feed
from edge_app.monitor.pictures import KEPT, LONGEST_SIDE_PX, Pictures, make_picture
from edge_app.verdict import Mode, Placement, PlanKind, PowerMode, Reason, SchedReason, Sealed

PLACEMENT = Placement(PlanKind.CPU, PowerMode.NONE, 1.0, SchedReason.NORMAL)


class Outlet:
    """Keeps what it is handed; takes frames for evidence if told to."""

    def __init__(self, takes_frames: bool) -> None:
        self.results: list[int] = []
        self.offered: list[int] = []
        self._takes = takes_frames

    def result(self, sealed: Sealed) -> None:
        self.results.append(sealed.seq)

    def evidence(self, frame: Frame, give_back: Callable[[Frame], None]) -> bool:
        self.offered.append(frame.frame_id)
        if self._takes:
            give_back(frame)
        return self._takes

    def state(self, mode: Mode, was: Mode, placement: Placement, reason: str) -> None: ...
    def alarm(self, name: str, active: bool, text: str, remedy: str) -> None: ...
    def note(self, seq: int, text: str) -> None: ...


def sealed(seq: int, reason: Reason, frame_id: int | None = None) -> Sealed:
    return Sealed(
        seq, seq, None, frame_id or seq, reason, "", 0, 1, None, {}, PLACEMENT, (), ()
    )  # fmt: skip


def frames(count: int = 1, size: tuple[int, int] = (48, 64)) -> list[Frame]:
    births = Births(PixelFormat.BGR8)
    picture = np.full((*size, 3), 128, np.uint8)
    return [births.complete(picture, size[1], size[0]) for _ in range(count)]


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pictures]:
    monkeypatch.setattr("edge_app.monitor.pictures.INTERVAL_US", 0)
    made = Pictures()
    made.start()
    yield made
    made.close()


@pytest.mark.parametrize("takes_frames", [False, True])
def test_a_frame_that_did_not_pass_is_shown_and_goes_on(pictures: Pictures, takes_frames: bool) -> None:
    outlet, back = Outlet(takes_frames), threading.Semaphore(0)
    feed, (frame,) = Feed(outlet, pictures), frames()
    feed.result(sealed(7, Reason.DEFECT, frame.frame_id))
    assert feed.evidence(frame, lambda _: back.release())
    assert back.acquire(timeout=30)
    assert not back.acquire(blocking=False)
    assert outlet.results == [7]
    assert outlet.offered == [frame.frame_id]  # the outlet's own evidence has its chance
    shown = pictures.get(7)
    assert shown is not None
    assert (shown.width, shown.height) == (64, 48)
    assert cv2.imdecode(np.frombuffer(shown.jpeg, np.uint8), cv2.IMREAD_COLOR).shape == (48, 64, 3)
    assert [one.seq for one in feed.drain()] == [7]
    assert feed.drain() == []


@pytest.mark.parametrize("reason", [Reason.OK, Reason.NOT_RUNNING, Reason.MISSED_TRIGGER])
def test_other_frames_go_straight_on(pictures: Pictures, reason: Reason) -> None:
    outlet = Outlet(False)
    feed, (frame,) = Feed(outlet, pictures), frames()
    feed.result(sealed(1, reason, frame.frame_id))
    assert not feed.evidence(frame, lambda _: None)
    assert outlet.offered == [frame.frame_id]


def test_a_busy_photographer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch, pictures: Pictures) -> None:
    may_go_on, busy = threading.Event(), threading.Event()

    def slow(frame: Frame) -> None:
        busy.set()
        may_go_on.wait(30)
        raise ValueError("and then it fails")

    monkeypatch.setattr("edge_app.monitor.pictures.make_picture", slow)
    first, second = frames(2)
    back = threading.Semaphore(0)
    assert pictures.take(1, first, lambda _: back.release())
    assert busy.wait(30)
    assert not pictures.take(2, second, lambda _: None)
    may_go_on.set()
    assert back.acquire(timeout=30)  # a picture that fails gives its frame back too
    assert pictures.failed == 1
    assert pictures.get(1) is None


def test_frames_come_back_when_the_node_stops(pictures: Pictures) -> None:
    back = threading.Semaphore(0)
    assert pictures.take(1, frames()[0], lambda _: back.release())
    pictures.close()
    assert back.acquire(timeout=30)
    assert not pictures.take(2, frames()[0], lambda _: None)  # nobody would ever hand it on


def test_the_last_pictures_are_kept(pictures: Pictures) -> None:
    back = threading.Semaphore(0)
    for seq, frame in enumerate(frames(KEPT + 3), 1):
        assert pictures.take(seq, frame, lambda _: back.release())
        assert back.acquire(timeout=30)
    assert [seq for seq in range(1, KEPT + 4) if pictures.get(seq) is not None] == list(range(4, KEPT + 4))


def test_results_without_a_frame_are_forgotten(pictures: Pictures) -> None:
    outlet = Outlet(False)
    feed, shown = Feed(outlet, pictures), frames(MOST_WANTED + 1)
    for frame in shown:
        feed.result(sealed(frame.frame_id, Reason.DEFECT))
    assert not feed.evidence(shown[0], lambda _: None)
    assert feed.evidence(shown[-1], lambda _: None)


@pytest.mark.parametrize("pixel_format", PixelFormat)
def test_every_pixel_format_can_be_shown(pixel_format: PixelFormat) -> None:
    bgr = np.zeros((64, 96, 3), np.uint8)
    bgr[:] = (40, 80, 200)
    pixels, _, _ = Converter(pixel_format, PixelPool(), row_align_bytes=64).convert(bgr)
    shown = make_picture(Births(pixel_format).complete(pixels, 96, 64))
    back = cv2.imdecode(np.frombuffer(shown.jpeg, np.uint8), cv2.IMREAD_COLOR)
    middle = back[16:48, 24:72].reshape(-1, 3).mean(0)
    wanted = [middle.mean()] * 3 if pixel_format is PixelFormat.GRAY8 else [40, 80, 200]
    assert np.abs(middle - wanted).max() < 6


def test_large_frames_are_made_small() -> None:
    shown = make_picture(frames(1, (1500, 2000))[0])
    assert (shown.width, shown.height) == (2000, 1500)  # what boxes are told in
    assert cv2.imdecode(np.frombuffer(shown.jpeg, np.uint8), cv2.IMREAD_COLOR).shape == (720, LONGEST_SIDE_PX, 3)


def test_no_picture_of_nothing() -> None:
    with pytest.raises(ValueError, match="without pixels"):
        make_picture(Births(PixelFormat.BGR8).failed(FrameStatus.LOST, "gone"))


def test_a_frame_that_comes_by_just_when_it_is_forgotten_costs_no_result() -> None:
    """The page once ended the line: one thread dropped the oldest while another took it."""
    feed, (frame,) = Feed(Outlet(takes_frames=False), Pictures()), frames()
    due = [lambda: feed.evidence(frame, lambda _frame: None)]

    class Meanwhile(int):
        """A frame id whose frame comes by the next time that somebody looks for it."""

        def __hash__(self) -> int:
            if feed._wanted and due:
                due.pop()()
            return super().__hash__()

    feed.result(sealed(1, Reason.LATE, Meanwhile(frame.frame_id)))
    for seq in range(2, MOST_WANTED + 2):
        feed.result(sealed(seq, Reason.LATE))
    assert not due
