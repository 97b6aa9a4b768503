from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_app.camera.base import Births, Handover, Pace, PixelPool, Silence, missed_between
from edge_app.frame import Frame, FrameStatus, PixelFormat


def frame(births: Births) -> Frame:
    return births.complete(np.zeros((2, 3), np.uint8), 3, 2, name="a")


def test_ids_count_from_one_and_trigger_themselves() -> None:
    births = Births(PixelFormat.GRAY8)
    frames = [frame(births), births.failed(FrameStatus.INCOMPLETE, "why"), frame(births)]
    assert [f.frame_id for f in frames] == [1, 2, 3]
    assert [f.trigger_id for f in frames] == [1, 2, 3]
    assert frames[1].pixels is None
    assert frames[1].note == "why"
    assert abs(frames[0].t_capture_us - time.time_ns() // 1000) < 60_000_000
    assert frames[0].t_capture_mono_us <= frames[2].t_capture_mono_us <= time.monotonic_ns() // 1000


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_every_id_of_a_gap_is_reported_once(skips: list[int]) -> None:
    births = Births(PixelFormat.GRAY8)
    seen: list[Frame] = []
    last: Frame | None = None
    for skip in skips:
        births.skip(skip)
        now = frame(births)
        seen += [*missed_between(last, now), now]
        last = now
    assert [f.frame_id for f in seen] == list(range(1, sum(skips) + len(skips) + 1))
    missed = [f for f in seen if f.status is FrameStatus.MISSED]
    assert len(missed) == sum(skips)
    assert all(f.pixels is None and f.trigger_id == f.frame_id and f.note for f in missed)


def test_ids_that_do_not_rise_are_an_error() -> None:
    births = Births(PixelFormat.GRAY8)
    first, second = frame(births), frame(births)
    with pytest.raises(ValueError, match="wanted more than 2, got 1"):
        list(missed_between(second, first))


def test_the_pool_lends_what_came_back_and_only_that() -> None:
    pool = PixelPool()
    one = pool.lend((4, 5, 3), row_bytes=16)
    assert (one.shape, one.strides) == ((4, 5, 3), (16, 3, 1))
    two = pool.lend((4, 5, 3), row_bytes=16)
    assert two is not one
    pool.take_back(one)
    pool.take_back(one)  # twice: must not be lent to two frames
    pool.take_back(np.zeros((4, 5, 3), np.uint8))  # foreign
    pool.take_back(None)
    three, four = pool.lend((4, 5, 3), row_bytes=16), pool.lend((4, 5, 3), row_bytes=16)
    assert three is one
    assert four is not one
    assert pool.lend((4, 5, 3)).strides == (15, 3, 1)


def test_pace_keeps_its_rate_and_wakes_for_a_stop() -> None:
    pace, stopped = Pace(0.01), threading.Event()
    assert pace.period_us == 100_000_000
    pace.wait(stopped)  # the first frame is due at once
    threading.Timer(0.05, stopped.set).start()
    pace.wait(stopped)  # would take 100 s
    assert stopped.is_set()


def test_handover_in_order_with_an_end() -> None:
    handover: Handover[int] = Handover(2)
    assert [handover.put(item, wait=False) for item in (1, 2, 3)] == [True, True, False]
    handover.end()
    assert [handover.get(), handover.get(), handover.get(), handover.get()] == [1, 2, None, None]


def test_handover_says_silence_and_what_the_reader_died_of() -> None:
    handover: Handover[int] = Handover(2)
    with pytest.raises(Silence):
        handover.get(timeout_s=0.01)
    handover.put(1, wait=True)
    handover.end(RuntimeError("broken"))
    assert handover.get() == 1
    with pytest.raises(RuntimeError, match="broken"):
        handover.get()


@pytest.mark.parametrize("side", ["reader", "line"])
def test_stop_wakes_a_waiting_side(side: str) -> None:
    handover: Handover[int] = Handover(1)
    got: list[object] = []
    if side == "reader":
        handover.put(1, wait=True)
    work = {"reader": lambda: got.append(handover.put(2, wait=True)), "line": lambda: got.append(handover.get())}
    thread = threading.Thread(target=work[side])
    thread.start()
    handover.stop()
    thread.join(timeout=10)
    assert got == [False if side == "reader" else None]
