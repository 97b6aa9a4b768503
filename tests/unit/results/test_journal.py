"""The journal with a real SQLite file: what is durable, and what an earlier run left."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from journals import PATIENCE_S, Opened, held, runs, wait_for
from wire_samples import sealed

from edge_app.errors import BusError
from edge_app.results import journal as journal_module
from edge_app.results import journal_file as jf
from edge_app.verdict import Reason


def notes_on(connection: sqlite3.Connection, run: int, seq: int) -> list[tuple[int, str]]:
    of_one = "SELECT t_us, text FROM note WHERE result_id = ? ORDER BY t_us"
    return list(connection.execute(of_one, (jf.result_id(run, seq),)))



def test_the_epoch_is_on_the_disk_before_any_result(opened: Opened, file: Path) -> None:
    (run,) = runs(file)
    assert (run.epoch, run.node, run.oldest_seq, run.last_seq, run.ended_us) == (
        opened.who.epoch, "l1/st3", None, None, None,
    )


def test_what_is_durable_reads_back_byte_for_byte(opened: Opened, file: Path) -> None:
    for seq in range(1, 501):
        opened.put(sealed(seq, Reason.DEFECT if seq % 3 == 0 else Reason.OK))
    wait_for(lambda: opened.journal.durable_seq == 500)
    assert held(file) == opened.bodies


def test_a_clean_end_is_written_down_and_so_is_all_that_waited(file: Path) -> None:
    opened = Opened(file)
    for seq in range(1, 301):
        opened.put(sealed(seq))
    opened.journal.close(PATIENCE_S)
    (run,) = runs(file)
    assert (run.last_seq, run.ended_us is not None) == (300, True)


def test_the_next_run_says_how_the_last_one_ended(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = Opened(file)
    first.put(sealed(1))
    first.journal.close(PATIENCE_S)
    with caplog.at_level("INFO"):
        Opened(file).journal.close(PATIENCE_S)
    assert f"the last one, {first.who.epoch}, ended cleanly at seq 1" in caplog.text


def test_a_run_that_was_cut_off_is_told_and_its_last_results_are_checked(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Opened(file)
    for seq in range(1, 11):
        first.put(sealed(seq))
    first.journal.close(PATIENCE_S)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE run SET ended_us = NULL")
    with caplog.at_level("INFO"):
        second = Opened(file)
    assert "was cut off after seq 10; its last results are whole" in caplog.text
    assert "JOURNAL_DAMAGED" not in second.alarms.now
    second.journal.close(PATIENCE_S)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("DELETE FROM result WHERE id & 1099511627775 = 7", "seq 7 is missing"),
        ("UPDATE result SET body = replace(body, 'PASS', 'FAIL') WHERE id & 1099511627775 = 4", "seq 4 is not what"),
        ("UPDATE result SET body = x'00' WHERE id & 1099511627775 = 10", "seq 10 is not what"),
    ],
)
def test_damaged_results_of_a_run_that_was_cut_off_are_an_alarm(file: Path, damage: str, told: str) -> None:
    first = Opened(file)
    for seq in range(1, 11):
        first.put(sealed(seq))
    first.journal.close(PATIENCE_S)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE run SET ended_us = NULL")
        assert connection.execute(damage).rowcount == 1
    second = Opened(file)
    active, text = second.alarms.now["JOURNAL_DAMAGED"]
    assert active
    assert told in text
    assert second.journal.working
    second.journal.close(PATIENCE_S)


def test_a_file_that_is_no_database_is_set_aside_not_deleted(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"this was a journal once" * 100)
    opened = Opened(file)
    opened.put(sealed(1))
    wait_for(lambda: opened.journal.durable_seq == 1)
    opened.journal.close(PATIENCE_S)
    assert opened.alarms.now["JOURNAL_DAMAGED"][0]
    (aside,) = file.parent.glob("*.damaged-*")
    assert aside.read_bytes().startswith(b"this was a journal once")


def test_a_file_of_version_1_is_brought_up_to_date_with_its_results(file: Path) -> None:
    file.parent.mkdir()
    with sqlite3.connect(file) as connection:
        connection.executescript(jf.MIGRATIONS[0] + "PRAGMA user_version = 1")
        run = jf.begin_run(connection, "old", "l1/st3", "0.0.1", 1)
        connection.execute(
            "INSERT INTO result VALUES (?, ?, 'PASS', 'OK', ?, ?)",
            (jf.result_id(run, 1), time.time_ns() // 1000, zlib.crc32(b'{"seq":1}'), b'{"seq":1}'),
        )
    opened = Opened(file)
    opened.put(sealed(1))
    wait_for(lambda: opened.journal.durable_seq == 1)
    opened.journal.note(1, "PASS came 12 ms after the deadline")
    opened.journal.close(PATIENCE_S)
    assert [(r.epoch, r.last_seq) for r in runs(file)] == [("old", 1), (opened.who.epoch, 1)]
    connection = jf.open_for_reading(file)
    assert [text for _, text in notes_on(connection, 2, 1)] == ["PASS came 12 ms after the deadline"]
    assert connection.execute("PRAGMA user_version").fetchone()[0] == len(jf.MIGRATIONS)
    connection.close()


def take_away(file: Path, how: str) -> Path | None:
    """What becomes of a journal by hand; where its results are then."""
    aside = file.with_name("aside.db")
    match how:
        case "moved":
            file.rename(aside)
        case "replaced":
            file.rename(aside)
            file.write_bytes(b"something else" * 1000)
        case "deleted":
            file.unlink()
        case "wal deleted":
            Path(f"{file}-wal").unlink()
        case "folder deleted":
            shutil.rmtree(file.parent)
    return aside if aside.exists() else None


@pytest.mark.parametrize("how", ["moved", "replaced", "deleted", "wal deleted", "folder deleted"])
def test_a_file_that_is_taken_away_is_told_and_durable_is_in_the_one_at_its_place(file: Path, how: str) -> None:
    """SQLite would go on writing to the old file: the results would be durable where nobody finds them."""
    opened = Opened(file)
    for seq in range(1, 11):
        opened.put(sealed(seq))
    wait_for(lambda: opened.journal.durable_seq == 10)
    aside = take_away(file, how)
    for seq in range(11, 21):
        opened.put(sealed(seq))
        time.sleep(0.001)
    wait_for(lambda: opened.journal.durable_seq == 20)
    active, text = opened.alarms.now["JOURNAL_DAMAGED"]
    assert active
    assert str(file) in text
    found = held(file)  # as it is now: what was called durable may not wait for a clean end
    if aside is not None:
        found |= held(aside)
    kept = range(11 if how in ("deleted", "folder deleted") else 1, 21)
    assert {seq: found.get(seq) for seq in kept} == {seq: opened.bodies[seq] for seq in kept}
    assert opened.journal.oldest_seq == min(held(file))
    opened.journal.close(PATIENCE_S)
    assert runs(file)[-1].ended_us is not None


def test_remarks_and_results_are_one_commit(tmp_path: Path) -> None:
    """A line that is late all the time makes as many remarks as results: each must not cost an fsync of its own."""
    statements: list[str] = []
    with closing(jf.open_for_writing(tmp_path / "results.db")) as connection:
        run = jf.begin_run(connection, "e", "l1/st3", "0.1.0", 1)
        connection.set_trace_callback(statements.append)
        rows = [jf.Row(seq, 1, "UNKNOWN", "LATE", b"{}") for seq in range(1, 21)]
        jf.append(connection, run, rows, [jf.Note(seq, 2, "came late") for seq in range(1, 21)])
        assert statements.count("COMMIT") == 1
        assert [notes_on(connection, run, seq) for seq in (1, 20)] == [[(2, "came late")]] * 2


def test_a_run_that_the_table_of_runs_has_lost_is_not_written_over(file: Path) -> None:
    """The next run got its number: its results were taken to be written already, and another run's stood for them."""
    first = Opened(file)
    for seq in range(1, 11):
        first.put(sealed(seq))
    first.journal.close(PATIENCE_S)
    with sqlite3.connect(file) as connection:
        connection.execute("DELETE FROM run")
    second = Opened(file)
    for seq in range(1, 8):
        second.put(sealed(seq, Reason.DEFECT))
    wait_for(lambda: second.journal.durable_seq == 7)
    second.journal.close(PATIENCE_S)
    assert held(file) == second.bodies


def test_another_result_at_a_place_that_is_to_be_written_is_damage(file: Path) -> None:
    opened = Opened(file)
    with sqlite3.connect(file) as connection:
        number = jf.read_runs(connection)[-1].number
        connection.execute("INSERT INTO result VALUES (?, 0, 'PASS', 'OK', 0, X'00')", (jf.result_id(number, 3),))
    for seq in range(1, 6):
        opened.put(sealed(seq))
    wait_for(lambda: "JOURNAL_DAMAGED" in opened.alarms.now)
    wait_for(lambda: opened.journal.durable_seq == 5)
    opened.journal.close(PATIENCE_S)
    assert held(file) == opened.bodies


def test_a_newer_file_is_left_alone_and_told(file: Path) -> None:
    file.parent.mkdir()
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 99")
    opened = Opened(file)
    assert not opened.journal.working
    assert "a newer edge_app wrote this journal" in opened.alarms.now["JOURNAL_FAILED"][1]
    opened.journal.close(PATIENCE_S)
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 99


def test_two_nodes_never_write_one_journal(opened: Opened, file: Path) -> None:
    with pytest.raises(BusError, match="another node writes to this journal") as caught:
        Opened(file)
    assert caught.value.exit_code == 6


def test_a_file_that_can_not_be_made_is_an_alarm_and_tried_again(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.parent.write_text("a file stands where the folder should be")
    opened = Opened(file)
    for seq in range(1, 101):
        opened.put(sealed(seq))
    assert not opened.journal.working
    assert opened.alarms.now["JOURNAL_FAILED"][0]
    assert "Error" not in opened.alarms.now["JOURNAL_FAILED"][1]  # in words, not in Python's
    assert not [record.exc_info for record in caplog.records if record.exc_info]
    file.parent.unlink()
    file.parent.mkdir()
    wait_for(lambda: opened.journal.durable_seq == 100)
    wait_for(lambda: opened.alarms.now["JOURNAL_FAILED"][0] is False)
    assert held(file) == opened.bodies
    opened.journal.close(PATIENCE_S)


def test_a_trouble_that_can_not_even_be_told_loses_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened = Opened(file)
    real, tell, troubles = jf.append, opened.alarms.__call__, iter([sqlite3.OperationalError("disk I/O error")])

    def append(*args: object) -> None:
        for error in troubles:
            raise error
        real(*args)  # type: ignore[arg-type]

    def alarm(name: str, active: bool, text: str, remedy: str) -> None:
        if active and not opened.alarms.now:
            opened.alarms.now[name] = (active, "not told")
            raise MemoryError
        tell(name, active, text, remedy)

    monkeypatch.setattr(jf, "append", append)
    opened.journal._alarm = alarm
    for seq in range(1, 51):
        opened.put(sealed(seq))
    wait_for(lambda: opened.journal.durable_seq == 50)
    assert held(file) == opened.bodies
    assert "it begins again" in caplog.text
    assert opened.journal.working
    opened.journal.close(PATIENCE_S)
    assert opened.alarms.now["JOURNAL_FAILED"][0] is False


def test_what_finds_the_queue_full_is_lost_counted_and_never_called_durable(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.parent.write_text("no folder: nothing is written")
    monkeypatch.setattr(journal_module, "MAX_WAITING", 50)
    opened = Opened(file)
    for seq in range(1, 101):
        opened.put(sealed(seq))
    lost = opened.journal.lost
    assert 0 < lost <= 50
    file.parent.unlink()
    file.parent.mkdir()
    wait_for(lambda: opened.journal.durable_seq == 100 - lost)
    wait_for(lambda: "JOURNAL_LOST" in opened.alarms.now)
    assert opened.alarms.now["JOURNAL_LOST"][1].startswith(f"{lost} results of this run are not in ")
    opened.put(sealed(101))
    wait_for(lambda: 101 in held(file))
    assert opened.journal.durable_seq == 100 - lost
    opened.journal.close(PATIENCE_S)


def test_bodies_are_the_messages_as_they_were_sent(opened: Opened, file: Path) -> None:
    opened.put(sealed(1, Reason.DEFECT))
    wait_for(lambda: opened.journal.durable_seq == 1)
    message = json.loads(held(file)[1])
    assert (message["seq"], message["verdict"], message["replayed"]) == (1, "FAIL", False)
