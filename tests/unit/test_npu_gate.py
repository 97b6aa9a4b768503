"""Whose turn it is on the NPU, as pure order; and the gate itself, with threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from edge_app.clock import monotonic_us
from edge_app.errors import RuntimeFault
from edge_app.npu_gate import PATIENCE_US, NpuGate, Turn, next_turn

LIMIT_US = 60_000_000


def turn(line: str, deadline_us: int | None, asked_us: int = 0) -> Turn:
    return Turn(line, deadline_us, LIMIT_US, asked_us)


def order(turns: list[Turn], now_us: int = 1, run_us: dict[str, int] | None = None) -> list[str]:
    """Lines in the order in which all of these get their turns, 1 us each."""
    waiting, served, lines = list(turns), {}, []
    while (chosen := next_turn(waiting, now_us, run_us or {}, served)) is not None:
        waiting.remove(chosen)
        served[chosen.line] = now_us
        lines.append(chosen.line)
        now_us += 1
    return lines


class TestOrder:
    """Deadline first."""

    def test_nobody(self) -> None:
        assert next_turn([], 0, {}, {}) is None

    def test_who_is_due_first_goes_first_whoever_asked_first(self) -> None:
        assert order([turn("a", 90, asked_us=1), turn("b", 50, asked_us=2), turn("c", 70, asked_us=3)]) == [
            "b",
            "c",
            "a",
        ]

    def test_of_equals_the_line_that_waited_longest_since_its_turn(self) -> None:
        equal = [turn("a", 50), turn("a", 50), turn("b", 50), turn("b", 50)]
        assert order(equal) == ["a", "b", "a", "b"]

    def test_a_frame_that_can_not_be_in_time_makes_no_other_late(self) -> None:
        """`a` takes 40 and has 30 left; by deadline alone it would go first, and make `b` (45 left, takes 10) late."""
        turns, run_us = [turn("a", 30), turn("b", 45)], {"a": 40, "b": 10}
        assert order(turns, run_us=run_us) == ["b", "a"]
        assert order([turn("a", 42), turn("b", 45)], run_us=run_us) == ["a", "b"]

    def test_a_run_without_a_deadline_waits_for_frames_but_not_for_ever(self) -> None:
        canary = turn("a", None, asked_us=0)
        assert order([canary, turn("b", 50_000)]) == ["b", "a"]
        now_us = PATIENCE_US + 1
        assert order([canary, turn("b", now_us + 50_000)], now_us=now_us) == ["a", "b"]


def eventually(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.002)


class TestGate:
    """The gate, with threads."""

    def test_one_at_a_time_in_the_order_of_deadlines(self) -> None:
        gate, now_us, ran = NpuGate(), monotonic_us(), []
        first = turn("first", now_us + LIMIT_US, now_us)
        assert gate.enter(first)

        def run(line: str, due_in_s: int) -> None:
            mine = turn(line, now_us + due_in_s * 1_000_000, now_us)
            assert gate.enter(mine)
            ran.append(line)
            gate.leave(mine)

        threads = [threading.Thread(target=run, args=(f"{due}", due)) for due in (500, 300, 400, 200)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(gate._waiting) == 4)
        assert ran == []
        gate.leave(first)
        for thread in threads:
            thread.join(30)
        assert ran == ["200", "300", "400", "500"]

    def test_who_gives_up_does_not_hold_up_the_next(self) -> None:
        gate = NpuGate()
        holder = turn("a", None, monotonic_us())
        assert gate.enter(holder)
        assert not gate.enter(turn("b", None, monotonic_us()), lambda: True)
        gate.leave(holder)
        with gate.turn("c", LIMIT_US):
            pass
        assert gate.out is None

    def test_a_run_that_never_returns_puts_the_npu_out_for_all(self) -> None:
        gate = NpuGate()
        hung = Turn("l1/a", None, 1_000)
        assert gate.enter(hung)
        assert not gate.enter(turn("l1/b", None, monotonic_us()))
        assert gate.out == "a run of l1/a did not return within 1 ms"
        with pytest.raises(RuntimeFault, match="the NPU is out for this process"), gate.turn("l1/b", LIMIT_US):
            pytest.fail("it must not run")
        gate.leave(hung)  # it did return, late: the process has gone on without the NPU
        assert not gate.enter(turn("l1/b", None, monotonic_us()))
