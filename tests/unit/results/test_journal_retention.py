"""What the journal keeps, by age and by size."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from journals import PATIENCE_S, Opened, held, runs, wait_for
from wire_samples import sealed

from edge_app.results import journal as journal_module
from edge_app.results import journal_file as jf

DAY_US = 86_400_000_000


def pages(file: Path) -> tuple[int, int]:
    """Bytes in use, as they stand now (the journal itself tells them after each retention), and free pages."""
    connection = jf.open_for_reading(file)
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    used = jf.size_bytes(connection)
    connection.close()
    return used, int(free)


class Retention:
    """How often it was done."""

    def __init__(self) -> None:
        self.steps = 0

    def wait(self, steps: int) -> None:
        wanted = self.steps + steps
        wait_for(lambda: self.steps >= wanted)


@pytest.fixture
def eager_retention(monkeypatch: pytest.MonkeyPatch) -> Retention:
    retention, delete_oldest = Retention(), jf.delete_oldest

    def counted(*arguments: Any, **keep: Any) -> int:
        retention.steps += 1
        return delete_oldest(*arguments, **keep)

    monkeypatch.setattr(journal_module, "RETENTION_EVERY_S", 0.05)
    monkeypatch.setattr(jf, "delete_oldest", counted)
    return retention


def earlier_run(file: Path, epoch: str, began_days: float, *ages_days: float) -> None:
    """A run as the journal would have left it: its start and its results, days before now."""
    now = time.time_ns() // 1000
    file.parent.mkdir(exist_ok=True)
    with closing(jf.open_for_writing(file)) as connection:
        run = jf.begin_run(connection, epoch, "l1/st3", "0.1.0", round(now - began_days * DAY_US))
        stamps = [round(now - days * DAY_US) for days in ages_days]
        jf.append(connection, run, [jf.Row(seq, stamp, "PASS", "OK", b"{}") for seq, stamp in enumerate(stamps, 1)])


def oldest(file: Path) -> list[tuple[str, int | None]]:
    """Of each run that is held, its first result."""
    return [(run.epoch, run.oldest_seq) for run in runs(file)[:-1]]


def test_results_go_by_age(file: Path, eager_retention: Retention) -> None:
    earlier_run(file, "a", 4.0, *[3.5] * 10)
    earlier_run(file, "b", 3.2, *[3.0] * 700, *[1.0] * 500)
    opened = Opened(file, keep_days=2)
    wait_for(lambda: oldest(file) == [("b", 701)])
    eager_retention.wait(3)
    assert oldest(file) == [("b", 701)]
    opened.journal.close(PATIENCE_S)


def test_old_stamps_behind_young_ones_punch_no_hole(file: Path, eager_retention: Retention) -> None:
    earlier_run(file, "a", 3.0, *[3.0] * 10, *[0.5] * 5, *[3.0] * 5, 0.5)
    opened = Opened(file, keep_days=2)
    wait_for(lambda: oldest(file) == [("a", 11)])
    eager_retention.wait(3)
    with closing(jf.open_for_reading(file)) as connection:
        (run, *_) = jf.read_runs(connection)
        assert [seq for seq, _ in jf.read_after(connection, run, 0, 100, pytest.fail)] == list(range(11, 22))
    opened.journal.close(PATIENCE_S)


@pytest.mark.parametrize("days_ahead", [60, 73 * 365])
def test_a_start_with_a_clock_far_in_the_future_deletes_nothing_of_earlier_runs(
    file: Path, eager_retention: Retention, days_ahead: float
) -> None:
    """Also the second start: the first one's own results are as far ahead."""
    earlier_run(file, "a", days_ahead + 3, days_ahead + 3, days_ahead + 1)
    earlier_run(file, "b", days_ahead + 1, days_ahead)
    earlier_run(file, "c", 0.1, 0.1)
    opened = Opened(file, keep_days=30)
    opened.put(sealed(1))
    eager_retention.wait(3)
    assert oldest(file) == [("a", 1), ("b", 1), ("c", 1)]
    opened.journal.close(PATIENCE_S)


def test_a_run_from_the_future_ages_with_the_others_once_the_clock_is_right(
    file: Path, eager_retention: Retention
) -> None:
    ahead = 73 * 365
    earlier_run(file, "right", 40.0, 39.0, 36.0)
    earlier_run(file, "ahead", 35.0 - ahead, 35.0 - ahead, 34.0 - ahead)
    earlier_run(file, "right again", 33.0, 31.0, 2.0)
    opened = Opened(file, keep_days=30)
    opened.put(sealed(1))
    wait_for(lambda: oldest(file) == [("right again", 2)])
    eager_retention.wait(3)
    assert oldest(file) == [("right again", 2)]
    opened.journal.close(PATIENCE_S)


@pytest.mark.usefixtures("eager_retention")
def test_results_go_by_size_and_emptied_runs_with_them(file: Path) -> None:
    first = Opened(file)
    for seq in range(1, 201):
        first.put(sealed(seq))
    first.journal.close(PATIENCE_S)
    second = Opened(file, keep_mib=4)
    for seq in range(1, 8001):
        second.put(sealed(seq, detail="x" * 500))
    wait_for(lambda: second.journal.durable_seq == 8000)
    wait_for(lambda: [run.epoch for run in runs(file)] == [second.who.epoch])
    wait_for(lambda: pages(file)[0] <= 4 * 1024 * 1024 and pages(file)[1] == 0)
    wait_for(lambda: second.journal.size_bytes == pages(file)[0])
    seqs = sorted(held(file))
    assert seqs == list(range(seqs[0], 8001))
    assert seqs[0] > 1
    second.journal.close(PATIENCE_S)
    assert file.stat().st_size <= 4 * 1024 * 1024


@pytest.mark.parametrize("days", [400, -400])
def test_a_clock_that_is_set_while_the_node_runs_deletes_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch, eager_retention: Retention, days: int
) -> None:
    """Nor does the next start."""
    earlier_run(file, "a", 0.5, 0.4)
    opened = Opened(file, keep_days=1)
    real = time.time_ns
    monkeypatch.setattr("edge_app.clock.time.time_ns", lambda: real() + days * DAY_US * 1000)
    opened.put(sealed(1))
    wait_for(lambda: opened.journal.durable_seq == 1)
    eager_retention.wait(3)
    assert oldest(file) == [("a", 1)]
    assert sorted(held(file)) == [1]
    opened.journal.close(PATIENCE_S)
    again = Opened(file, keep_days=1)
    eager_retention.wait(3)
    assert oldest(file) == [("a", 1), (opened.who.epoch, 1)]
    again.journal.close(PATIENCE_S)


def test_results_of_a_run_that_began_in_the_future_are_kept_once_the_clock_is_set_right(
    file: Path, monkeypatch: pytest.MonkeyPatch, eager_retention: Retention
) -> None:
    real = time.time_ns
    with monkeypatch.context() as ahead:
        ahead.setattr("edge_app.clock.time.time_ns", lambda: real() + 400 * DAY_US * 1000)
        opened = Opened(file, keep_days=1)
    opened.put(sealed(1))
    wait_for(lambda: opened.journal.durable_seq == 1)
    eager_retention.wait(3)
    assert sorted(held(file)) == [1]
    opened.journal.close(PATIENCE_S)
