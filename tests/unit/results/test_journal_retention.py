"""What the journal keeps, by age and by size."""

from __future__ import annotations

import time
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


@pytest.mark.usefixtures("eager_retention")
def test_results_go_by_age(file: Path) -> None:
    opened = Opened(file, keep_days=2)
    now = time.time_ns() // 1000
    for seq in range(1, 1201):
        opened.put(sealed(seq, t_done_us=now - (3 if seq <= 700 else 1) * DAY_US))
    wait_for(lambda: opened.journal.durable_seq == 1200)
    wait_for(lambda: opened.journal.oldest_seq == 701)
    assert min(held(file)) == 701
    opened.journal.close(PATIENCE_S)


def test_a_clock_that_was_set_back_punches_no_hole(file: Path, eager_retention: Retention) -> None:
    opened = Opened(file, keep_days=2)
    now = time.time_ns() // 1000
    for seq in range(1, 31):
        days_old = 3 if seq <= 10 or 16 <= seq <= 20 else 0
        opened.put(sealed(seq, t_done_us=now - days_old * DAY_US))
    wait_for(lambda: opened.journal.oldest_seq == 11)
    eager_retention.wait(3)
    assert sorted(held(file)) == list(range(11, 31))
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


def test_a_clock_that_is_set_while_the_node_runs_deletes_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch, eager_retention: Retention
) -> None:
    opened = Opened(file, keep_days=1)
    opened.put(sealed(1))
    wait_for(lambda: opened.journal.durable_seq == 1)
    real = time.time_ns
    monkeypatch.setattr("edge_app.clock.time.time_ns", lambda: real() + 400 * DAY_US * 1000)
    opened.put(sealed(2))
    wait_for(lambda: opened.journal.durable_seq == 2)
    eager_retention.wait(3)
    assert sorted(held(file)) == [1, 2]
    opened.journal.close(PATIENCE_S)
