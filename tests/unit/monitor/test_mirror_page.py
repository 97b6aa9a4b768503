"""The mirror's screen: what it says in each case, and that frames are copied only for somebody who looks."""

from __future__ import annotations

import http.client
import itertools
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import colours
import cv2
import numpy as np
import pytest
from line_bench import Kept

from edge_app.clock import monotonic_us
from edge_app.config.mirror import Decision
from edge_app.deciding import DecisionSealer
from edge_app.frame import Frame, FrameStatus, PixelFormat
from edge_app.monitor import live
from edge_app.monitor import mirror as mirror_module
from edge_app.monitor import server as server_module
from edge_app.monitor.live import LiveFrames
from edge_app.monitor.mirror import WORDS, Mirror, MirrorPage, state_of
from edge_app.monitor.server import Server
from edge_app.sealing import Ticket
from edge_app.verdict import Judgement, Mode, Placement, PlanKind, PowerMode, Reason, SchedReason

PLACEMENT = Placement(PlanKind.HTP, PowerMode.BURST, 1.0, SchedReason.NORMAL)
START_US = monotonic_us() - 60_000_000


def shown(*judgements: Judgement, trouble: str | None = None, later_us: int = 500_000) -> dict[str, Any]:
    """The page's state after frames of a tenth of a second each."""
    sealer = DecisionSealer(Decision(smooth_s=0.0, dwell_s=0.5), colours.LABELS, Kept())
    line = SimpleNamespace(mode=Mode.RUNNING, placement=PLACEMENT)
    captured = START_US
    for number, judgement in enumerate(judgements):
        captured = START_US + number * 100_000
        sealer.seal(sealer.admit(Ticket(number, number, None, 0, captured, None, PLACEMENT)), judgement)
    mirror = Mirror(line, sealer, colours.LABELS, None, lambda: trouble, simulated=False)  # type: ignore[arg-type]
    return state_of(mirror, captured + later_us)


def scores(*probabilities: float) -> Judgement:
    return Judgement(Reason.MARGINAL, classes=tuple(zip(colours.LABELS, probabilities, strict=True)))


def test_a_label_with_its_confidence_and_its_age() -> None:
    state = shown(*[scores(0.1, 0.85, 0.05)] * 11)
    assert (state["label"], state["confidence"], state["words"]) == ("green", 0.85, "")
    assert state["stable_s"] == 1.5
    assert state["classes"] == [
        {"label": "green", "score": 0.85}, {"label": "red", "score": 0.1}, {"label": "blue", "score": 0.05}
    ]  # fmt: skip
    assert (state["frame_age_s"], state["plan"], state["frames"]) == (0.5, "htp", 11)


@pytest.mark.parametrize(
    ("judgement", "words"),
    [
        (None, "looking"),
        (scores(0.4, 0.35, 0.25), "not sure"),
        (Judgement(Reason.NO_PART, "nobody is there"), "nobody is there"),
        (Judgement(Reason.BAD_IMAGE, "dark: wanted 10, got 2"), "too dark to see"),
        (Judgement(Reason.CAMERA_LOST), "the camera is gone"),
        (Judgement(Reason.RUNTIME_FAULT, "no plan is left"), "the processor has failed"),
    ],
)
def test_in_every_other_case_it_says_why_and_names_nothing(judgement: Judgement | None, words: str) -> None:
    state = shown(*[] if judgement is None else [judgement] * 11)
    assert (state["label"], state["confidence"], state["words"]) == (None, None, words)


@pytest.mark.parametrize(("reason", "no_picture"), [(Reason.CAMERA_LOST, True), (Reason.RUNTIME_FAULT, False)])
def test_what_was_seen_before_is_not_shown_once_nothing_can_be_seen(reason: Reason, no_picture: bool) -> None:
    named = [scores(0.1, 0.85, 0.05)] * 11
    before = shown(*named)
    assert (len(before["classes"]), before["no_picture"]) == (3, False)
    after = shown(*named, *[Judgement(reason)] * 41)
    assert (after["label"], after["classes"], after["no_picture"]) == (None, [], no_picture)


def test_what_was_seen_is_not_shown_for_longer_than_a_label() -> None:
    assert shown(*[scores(0.1, 0.85, 0.05)] * 11, later_us=4_100_000)["classes"] == []


def test_several_people_are_told() -> None:
    state = shown(*[replace(scores(0.1, 0.85, 0.05), detail="2 are there: the largest is named")] * 11)
    assert (state["label"], state["remark"]) == ("green", "2 are there: the largest is named")
    assert shown(*[scores(0.1, 0.85, 0.05)] * 11)["remark"] == ""


@pytest.mark.parametrize("before", [[], [scores(0.4, 0.3, 0.3)] * 11])
def test_a_camera_that_is_gone_is_not_an_uncertain_label(before: list[Judgement]) -> None:
    assert shown(*before, trouble="no frame since 14:02")["words"] == WORDS[Reason.CAMERA_LOST]


def test_trouble_of_the_camera_is_told_in_its_words() -> None:
    state = shown(*[Judgement(Reason.CAMERA_LOST)] * 11, trouble="no frame since 14:02")
    assert state["detail"] == "no frame since 14:02"


def test_every_reason_has_words_or_a_detail_of_its_own() -> None:
    assert set(Reason) - set(WORDS) == {Reason.DEFECT, Reason.MISSED_TRIGGER, Reason.NO_RECIPE, Reason.INTERNAL}


def frame(number: int, level: int) -> Frame:
    pixels = np.full((48, 64, 3), level, np.uint8)
    return Frame(number, number, 0, 0, FrameStatus.COMPLETE, PixelFormat.BGR8, 64, 48, pixels)


def test_frames_are_copied_only_while_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000_000
    monkeypatch.setattr(live, "monotonic_us", lambda: now)
    frames = LiveFrames()
    frames.offer(frame(1, 50))
    assert frames.latest() is None, "nobody had looked"
    first = frame(2, 50)
    frames.offer(first)
    first.pixels[:] = 255  # type: ignore[index]  # the camera writes there again
    number, jpeg = frames.latest() or (0, b"")
    assert number == 2
    assert abs(int(cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR).mean()) - 50) <= 2
    assert frames.latest() == (2, jpeg), "encoded once"
    frames.offer(frame(3, 90))
    assert (frames.latest() or (0, b""))[0] == 2, "too soon after the last one"
    now += live.INTERVAL_US
    frames.offer(frame(4, 90))
    assert (frames.latest() or (0, b""))[0] == 4
    now += live.LOOKED_AT_US + 1
    assert frames.latest() is None, "old frames are not shown"
    frames.offer(replace(frame(5, 90), status=FrameStatus.LOST, pixels=None))
    assert frames.latest() is None
    now += live.LOOKED_AT_US + 1
    frames.offer(frame(6, 90))
    assert frames.latest() is None, "nobody has looked for a while: not copied"


def test_a_picture_that_nobody_looks_at_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000_000
    monkeypatch.setattr(live, "monotonic_us", lambda: now)
    frames, numbers = LiveFrames(), itertools.count(1)

    def look() -> None:
        frames.latest()
        frames.offer(frame(next(numbers), 50))
        assert frames.latest() is not None
        assert frames._frame is not None
        assert frames._jpeg is not None

    look()
    now += live.LOOKED_AT_US + 1
    frames.offer(frame(next(numbers), 50))  # frames still come, and nobody asks
    assert (frames._frame, frames._jpeg) == (None, None)
    look()
    now += live.LOOKED_AT_US
    frames.forget()
    assert frames._frame is not None, "somebody may still look"
    now += 1
    frames.forget()  # no frame comes, and nobody asks
    assert (frames._frame, frames._jpeg) == (None, None)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The page of a mirror whose camera gives nothing; one stream at a time."""
    monkeypatch.setattr(server_module, "MOST_STREAMS", 1)
    made = Server("127.0.0.1:0", None)
    made.start([MirrorPage(SimpleNamespace(), LiveFrames())])  # type: ignore[arg-type]
    yield made
    made.close()


def test_a_browser_that_goes_while_the_camera_is_gone_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, screen: Server
) -> None:
    monkeypatch.setattr(mirror_module, "GONE_S", 1e6)

    def first_line() -> bytes | None:
        """Of the stream; None: it is still taken."""
        try:
            with urllib.request.urlopen(screen.url + "mirror.mjpg", timeout=30) as video:
                return bytes(video.readline())
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            return None

    end = time.monotonic() + 30
    for _ in range(3):
        while (line := first_line()) is None:
            assert time.monotonic() < end, "the stream before was not given back"
            time.sleep(0.02)
        assert line == b"--frame\r\n"


def test_a_picture_does_not_stand_still_as_if_it_were_live(monkeypatch: pytest.MonkeyPatch, screen: Server) -> None:
    monkeypatch.setattr(mirror_module, "GONE_S", 0.2)
    with (
        urllib.request.urlopen(screen.url + "mirror.mjpg", timeout=30) as video,
        pytest.raises((http.client.IncompleteRead, ConnectionResetError)),  # cut off: an error to browsers
    ):
        video.read()
