"""The journal's file: SQLite in WAL mode. Schema, reading, writing, retention; no threads.

A result's row id is `run number * 2**40 + seq`: rows are only ever appended, a replay is a range of ids, and the
oldest rows are the smallest ids. `crc` is over the body as it was published.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby, islice, pairwise, takewhile
from pathlib import Path
from typing import Any

from edge_app.clock import utc_us
from edge_app.errors import ConfigError

SEQ_BITS = 40
SEQ_MASK = (1 << SEQ_BITS) - 1
BUSY_TIMEOUT_S = 5.0
WAL_LIMIT_BYTES = 16 * 1024 * 1024
DELETE_AT_ONCE = 2000
GIVE_BACK_PAGES = 1000

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE run (
        number INTEGER PRIMARY KEY,
        epoch TEXT NOT NULL UNIQUE,
        node TEXT NOT NULL,
        software TEXT NOT NULL,
        started_us INTEGER NOT NULL,
        ended_us INTEGER
    );
    CREATE TABLE result (
        id INTEGER PRIMARY KEY,
        t_done_us INTEGER NOT NULL,
        verdict TEXT NOT NULL,
        reason TEXT NOT NULL,
        crc INTEGER NOT NULL,
        body BLOB NOT NULL
    );
    """,
    """
    CREATE TABLE note (
        result_id INTEGER NOT NULL,
        t_us INTEGER NOT NULL,
        text TEXT NOT NULL
    );
    CREATE INDEX note_by_result ON note (result_id);
    """,
)
"""`user_version` counts how many of them a file has seen. One that was released is never changed."""
NOTES_FROM = 2
"""The `user_version` from which on there are notes."""


@dataclass(frozen=True, slots=True)
class Row:
    """One result, as it is written."""

    seq: int
    t_done_us: int
    """By a clock that nobody sets while a run lasts: for retention alone. What was published is in the body."""
    verdict: str
    reason: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Note:
    """A remark on a result, e.g. a verdict that came after its seal; it is never published as the verdict."""

    seq: int
    t_us: int
    text: str


@dataclass(frozen=True, slots=True)
class Run:
    """One epoch of a node, and what the journal holds of it."""

    number: int
    epoch: str
    node: str
    software: str
    started_us: int
    ended_us: int | None
    """None: it did not end, or not cleanly."""
    oldest_seq: int | None
    last_seq: int | None
    """None, both, where no result is held."""


def is_damage(error: BaseException) -> bool:
    """Whether SQLite says that the file itself is broken (CORRUPT, NOTADB), not that it could not write now."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def set_aside(file: Path) -> Path:
    """Keeps a damaged file, and SQLite's files beside it, under another name, which is returned. Raises OSError."""
    aside = Path(f"{file}.damaged-{utc_us()}")
    for ending in ("-wal", "-shm", ""):
        source = Path(f"{file}{ending}")
        if source.exists():
            source.rename(f"{aside}{ending}")
    return aside


def is_full(error: BaseException) -> bool:
    """Whether SQLite says that the disk is full; the connection can be used on."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF == sqlite3.SQLITE_FULL


def result_id(run: int, seq: int) -> int:
    """The row id of a result."""
    return run << SEQ_BITS | seq


def places(file: Path) -> list[tuple[int, int] | None]:
    """Device and inode of a journal and of its `-wal`; None: there is none.

    SQLite does not look again: of a file that was moved, replaced or deleted it goes on writing the old one.
    """
    found: list[tuple[int, int] | None] = []
    for name in (file, f"{file}-wal"):
        try:
            status = os.stat(name)
            found.append((status.st_dev, status.st_ino))
        except FileNotFoundError:
            found.append(None)
    return found


def open_for_writing(file: Path) -> sqlite3.Connection:
    """Opens or makes a journal, and brings its schema up to date.

    Raises:
        sqlite3.Error: it can't be opened or written.
        ConfigError: a newer edge_app wrote it.
    """
    connection = sqlite3.connect(file, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only before the first table is made
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        _migrate(connection, file)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection, file: Path) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    _refuse_newer(version, file)
    for number, script in enumerate(MIGRATIONS[version:], version + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT;")


def _refuse_newer(version: int, file: Path) -> None:
    if version > len(MIGRATIONS):
        raise ConfigError(
            "a newer edge_app wrote this journal",
            where=str(file),
            wanted=f"version {len(MIGRATIONS)} or older",
            got=f"version {version}",
            remedy="update edge_app, or set another results.journal.path",
        )


def open_for_reading(file: Path) -> sqlite3.Connection:
    """Opens a journal that may be written to meanwhile. The connection may be closed by another thread.

    Raises:
        ConfigError: there is none, it is no journal, or a newer edge_app wrote it.
    """
    try:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        immutable = "&immutable=1" if _is_on_a_read_only_disk(file) else ""
        connection = sqlite3.connect(
            f"{file.resolve().as_uri()}?mode=ro{immutable}", uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None,
            check_same_thread=False,
        )  # fmt: skip
        connection.text_factory = lambda text: text.decode("utf-8", "replace")  # damaged text is for `verify` to tell
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        connection.execute("SELECT 1 FROM run, result LIMIT 1")
    except (sqlite3.Error, OSError) as error:
        got = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError("can't read the journal", where=str(file), got=got, remedy="check the path") from error
    _refuse_newer(version, file)
    return connection


def _is_on_a_read_only_disk(file: Path) -> bool:
    """Then SQLite can't make the -shm that it wants, nor does it need it. What a -wal holds must not be left out."""
    wal = Path(f"{file}-wal")
    return bool(os.statvfs(file).f_flag & os.ST_RDONLY) and not (wal.exists() and wal.stat().st_size)


def begin_run(connection: sqlite3.Connection, epoch: str, node: str, software: str, now_us: int) -> int:
    """Writes an epoch down before its first result; returns its number. The same epoch again gets the same number.

    A new number is above that of every run, and of every result: the table of runs may be damaged.
    """
    connection.execute(
        "INSERT INTO run (number, epoch, node, software, started_us) VALUES (1 + max("
        "coalesce((SELECT max(number) FROM run), 0), coalesce((SELECT max(id) FROM result), 0) >> ?"
        "), ?, ?, ?, ?) ON CONFLICT (epoch) DO NOTHING",
        (SEQ_BITS, epoch, node, software, now_us),
    )
    return int(connection.execute("SELECT number FROM run WHERE epoch = ?", (epoch,)).fetchone()[0])


def end_run(connection: sqlite3.Connection, run: int, now_us: int) -> None:
    """Notes that a run ended cleanly."""
    connection.execute("UPDATE run SET ended_us = ? WHERE number = ?", (now_us, run))


class DamagedError(sqlite3.DatabaseError):
    """The file says what can't be; SQLite itself did not see it."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def _refuse_others(connection: sqlite3.Connection, run: int, rows: Sequence[Row]) -> None:
    """Rows that stand there already must be the same, written once before."""
    for row in rows:
        held = connection.execute("SELECT crc FROM result WHERE id = ?", (result_id(run, row.seq),)).fetchone()
        if held is None or held[0] != zlib.crc32(row.body):
            raise DamagedError(f"another result stands at seq {row.seq} of run {run}")


def append(connection: sqlite3.Connection, run: int, rows: Sequence[Row], notes: Sequence[Note] = ()) -> None:
    """Writes a batch in one transaction; it is on the disk when this returns.

    Raises:
        sqlite3.Error: nothing of it was written.
        DamagedError: another result stands where one of these belongs; nothing was written either.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        written = connection.executemany(
            "INSERT OR IGNORE INTO result VALUES (?, ?, ?, ?, ?, ?)",
            [(result_id(run, r.seq), r.t_done_us, r.verdict, r.reason, zlib.crc32(r.body), r.body) for r in rows],
        )
        if rows and written.rowcount != len(rows):
            _refuse_others(connection, run, rows)
        connection.executemany(
            "INSERT INTO note VALUES (?, ?, ?)", [(result_id(run, n.seq), n.t_us, n.text) for n in notes]
        )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


_RUNS = (
    "SELECT number, epoch, node, software, started_us, ended_us,"
    f" (SELECT min(id) FROM result WHERE id BETWEEN number << {SEQ_BITS} AND (number << {SEQ_BITS}) + {SEQ_MASK}),"
    f" (SELECT max(id) FROM result WHERE id BETWEEN number << {SEQ_BITS} AND (number << {SEQ_BITS}) + {SEQ_MASK})"
    " FROM run"
)


def read_runs(connection: sqlite3.Connection) -> list[Run]:
    """All runs, oldest first."""
    return [_run(row) for row in connection.execute(f"{_RUNS} ORDER BY number")]


def read_run(connection: sqlite3.Connection, epoch: str) -> Run | None:
    """One run; None if it is not there."""
    row = connection.execute(f"{_RUNS} WHERE epoch = ?", (epoch,)).fetchone()
    return None if row is None else _run(row)


def _run(row: tuple[Any, ...]) -> Run:
    *fields, oldest, last = row
    return Run(*fields, *(None if i is None else i & SEQ_MASK for i in (oldest, last)))


def read_after(
    connection: sqlite3.Connection, run: Run, after_seq: int, limit: int, damage: Callable[[str], None]
) -> list[tuple[int, bytes]]:
    """Seq and body of the results of a run after a seq, in order; one that is not what was written is left out.

    So are those of a damaged page, and `damage` is told: a bad block costs what was in it, and nothing behind it.
    """
    try:
        return _whole_between(connection, result_id(run.number, after_seq), result_id(run.number, SEQ_MASK), limit)
    except sqlite3.Error as error:
        _told_if_damage(error, run, damage)
    found: list[tuple[int, bytes]] = []
    first = max(after_seq, (run.oldest_seq or 1) - 1)  # what retention has deleted is not looked for one by one
    for i in range(result_id(run.number, first), result_id(run.number, run.last_seq or 0)):
        try:
            found += _whole_between(connection, i, i + 1, 1)
        except sqlite3.Error as error:
            _told_if_damage(error, run, damage)
        if len(found) == limit:
            break
    return found


def _told_if_damage(error: sqlite3.Error, run: Run, damage: Callable[[str], None]) -> None:
    if not is_damage(error):
        raise error
    damage(f"run {run.epoch}: pages of the file are damaged ({error}); a replay leaves out what they held")


def _whole_between(connection: sqlite3.Connection, after_id: int, last_id: int, limit: int) -> list[tuple[int, bytes]]:
    between = "SELECT id, body, crc FROM result WHERE id > ? AND id <= ? ORDER BY id"
    with closing(connection.execute(between, (after_id, last_id))) as rows:
        return list(islice(((i & SEQ_MASK, body) for i, body, crc in rows if is_whole(body, crc)), limit))


def is_whole(body: object, crc: int) -> bool:
    """Whether a body is the one that was written."""
    return isinstance(body, bytes) and zlib.crc32(body) == crc


def oldest_seq(connection: sqlite3.Connection, run: int) -> int | None:
    """The first result of a run that is held; None: none is."""
    oldest = connection.execute(
        "SELECT min(id) FROM result WHERE id BETWEEN ? AND ?", (result_id(run, 0), result_id(run, SEQ_MASK))
    ).fetchone()[0]
    return None if oldest is None else oldest & SEQ_MASK


def read_all(connection: sqlite3.Connection, run: int) -> Iterator[tuple[Row, int]]:
    """The results of a run, in order, each with its checksum as stored."""
    rows = connection.execute(
        "SELECT id, t_done_us, verdict, reason, body, crc FROM result WHERE id BETWEEN ? AND ? ORDER BY id",
        (result_id(run, 0), result_id(run, SEQ_MASK)),
    )
    for i, t_done_us, verdict, reason, body, crc in rows:
        yield Row(i & SEQ_MASK, t_done_us, verdict, reason, body), crc


def read_notes(connection: sqlite3.Connection, run: int) -> Iterator[tuple[int, list[Note]]]:
    """Seq and remarks of the results of a run that have any, in order; none in a journal from before there were any."""
    if connection.execute("PRAGMA user_version").fetchone()[0] < NOTES_FROM:
        return
    rows = connection.execute(
        "SELECT result_id, t_us, text FROM note WHERE result_id BETWEEN ? AND ? ORDER BY result_id, rowid",
        (result_id(run, 0), result_id(run, SEQ_MASK)),
    )
    notes = (Note(i & SEQ_MASK, t_us, text) for i, t_us, text in rows)
    for seq, same in groupby(notes, lambda note: note.seq):
        yield seq, list(same)


def size_bytes(connection: sqlite3.Connection) -> int:
    """Bytes in use; pages that wait to be used again do not count."""
    pages, free, page = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * page)


def delete_oldest(connection: sqlite3.Connection, *, now_us: int, keep_us: int, keep_bytes: int) -> int:
    """One step of retention: deletes up to DELETE_AT_ONCE of the oldest results, and runs that are empty then.

    Returns the number of results deleted; 0: there is nothing to do. Only ever a beginning is deleted: results whose
    stamps are old because the clock was set stay, as long as a younger one stands before them. The newest run stays.
    """
    if size_bytes(connection) > keep_bytes:
        oldest = connection.execute("SELECT id FROM result ORDER BY id LIMIT ?", (DELETE_AT_ONCE,)).fetchall()
    else:
        oldest = _too_old(connection, now_us, keep_us)
    if not oldest:
        return 0
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute("DELETE FROM result WHERE id <= ?", (oldest[-1][0],))
        connection.execute("DELETE FROM note WHERE result_id <= ?", (oldest[-1][0],))
        first = connection.execute("SELECT min(id) FROM result").fetchone()[0]
        connection.execute(
            "DELETE FROM run WHERE number < coalesce(?, (SELECT max(number) FROM run))",
            (None if first is None else first >> SEQ_BITS,),
        )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return len(oldest)


def _too_old(connection: sqlite3.Connection, now_us: int, keep_us: int) -> list[tuple[int, int]]:
    """Id and stamp of the oldest results, of one run, if they are older than `keep_us`."""
    first = connection.execute("SELECT min(id) FROM result").fetchone()[0]
    if first is None:
        return []
    run = first >> SEQ_BITS
    older_than_us = now_us - keep_us - _leaps_us(connection, run, keep_us)
    rows = connection.execute(
        "SELECT id, t_done_us FROM result WHERE id <= ? ORDER BY id LIMIT ?", (result_id(run, SEQ_MASK), DELETE_AT_ONCE)
    )
    oldest = list(takewhile(lambda row: row[1] < older_than_us, rows))
    rows.close()
    return oldest


def _leaps_us(connection: sqlite3.Connection, run: int, longest_us: int) -> int:
    """How far the clock leapt between this run and the newest: wherever it went back, or on by more than `longest_us`.

    The latter may also be a node that was switched off. Nobody can tell, so it ages nothing: a start whose clock is
    years ahead would delete all that earlier runs left.
    """
    stamps = connection.execute(
        "SELECT started_us, coalesce((SELECT t_done_us FROM result"
        f" WHERE id BETWEEN number << {SEQ_BITS} AND (number << {SEQ_BITS}) + {SEQ_MASK} ORDER BY id DESC LIMIT 1),"
        " started_us) FROM run WHERE number >= ? ORDER BY number",
        (run,),
    )
    pauses = [later[0] - earlier[1] for earlier, later in pairwise(stamps)]
    return sum(pause for pause in pauses if not 0 <= pause <= longest_us)


def give_back(connection: sqlite3.Connection) -> bool:
    """Gives pages that are free back to the disk, up to GIVE_BACK_PAGES; True if there are more."""
    free = int(connection.execute("PRAGMA freelist_count").fetchone()[0])
    if free:
        # Not execute(): this pragma takes a step for each page, and execute() takes one.
        connection.executescript(f"PRAGMA incremental_vacuum({GIVE_BACK_PAGES})")
    return free > GIVE_BACK_PAGES
