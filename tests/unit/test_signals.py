"""Signals while the main thread is inside a lock that the action needs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from edge_app.signals import on_signals


@pytest.fixture(autouse=True)
def handlers_as_they_were() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_an_action_may_need_a_lock_that_the_main_thread_holds() -> None:
    lock, done = threading.Lock(), threading.Event()

    def action() -> None:
        with lock:
            done.set()

    on_signals({signal.SIGUSR1: action})
    with lock:
        signal.raise_signal(signal.SIGUSR1)
        assert not done.is_set()
    assert done.wait(30)


def test_after_an_action_that_failed_the_next_signal_is_taken_care_of(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def broken() -> None:
        raise KeyError("a bug")

    on_signals({signal.SIGUSR1: broken, signal.SIGUSR2: done.set})
    signal.raise_signal(signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR2)
    assert done.wait(30)
    assert "what was to be done at SIGUSR1 failed" in caplog.text
