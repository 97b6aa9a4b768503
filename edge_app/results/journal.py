"""The journal: one writer thread between the line and the disk. Nothing here ever makes a frame wait."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from edge_app import clock, threads
from edge_app.config.results import Journal as JournalSection
from edge_app.errors import BusError, EdgeAppError
from edge_app.file_lock import HeldError, take_lock
from edge_app.results import journal_file as jf
from edge_app.results.identity import NodeIdentity
from edge_app.results.record import Record

log = logging.getLogger(__name__)

MAX_WAITING = 8192
"""Results that wait for the disk; at 200 a second it may stand still for 40 s."""
BATCH = 32
BATCH_S = 0.02
MAX_BATCH = 512
"""Once the disk is behind, it is given more at a time."""
LOOK_S = 0.1
"""Results of a node without a wire, or with a bus that stands still, are seen so soon."""
RETRY_S = 1.0
OPEN_TIMEOUT_S = 10.0
CHECKED_AT_START = 1000
FULL_BYTES = 1024 * 1024
RETENTION_EVERY_S = 5.0

RaiseAlarm = Callable[[str, bool, str, str], None]
ALARM = "JOURNAL_FAILED"
LOST_ALARM = "JOURNAL_LOST"
REMEDY = "free the disk, or check results.journal.path; what waits is written when it works again"


MOVED_REMEDY = "leave it alone while the node runs; `edge_app journal export` copies results at any time"


class _MovedError(Exception):
    """The file that is written is not the one at its place."""


class Journal:
    """Writes results in batches: one commit for up to 32 results or 20 ms, whichever is first.

    Args:
        section: `results.journal`, with a path.
        identity: of this run.
        alarm: raises and clears JOURNAL_FAILED, JOURNAL_DAMAGED and JOURNAL_LOST; called on the writer's thread.
        make_room: asked for disk space when the disk is full (pictures go first); called on the writer's thread.
    """

    def __init__(
        self, section: JournalSection, identity: NodeIdentity, alarm: RaiseAlarm, make_room: Callable[[], None]
    ) -> None:
        assert section.path is not None
        self.file = section.path
        self._section = section
        self._identity = identity
        self._alarm = alarm
        self._make_room = make_room
        self._queue: deque[Record | jf.Note] = deque()
        self._batch: list[Record | jf.Note] = []
        """What the writer's thread has in hand."""
        self._wakeup = threading.Event()
        self._idle = False
        self._thread = threads.daemon(self._run, "journal")
        self._opened = threading.Event()
        self._closing = threading.Event()
        self._lock_fd: int | None = None
        self._connection: sqlite3.Connection | None = None
        self._run_number = 0
        self._places: list[tuple[int, int] | None] = []
        self._failing = False
        self._lost_told = 0
        self._clock_start = (clock.utc_us(), clock.monotonic_us())
        self._next_retention_s = 0.0
        self.working = False
        """What is handed over reaches the disk."""
        self.durable_seq = 0
        """All results up to this one are on the disk."""
        self.written_seq = 0
        """All up to this one were written, or are lost: none of them waits any more."""
        self.oldest_seq: int | None = None
        """Of this run, on the disk."""
        self.lost = 0
        """Results that found the queue full: they are nowhere but in memory's tail."""
        self.size_bytes = 0
        self.free_bytes: int | None = None
        """Of the disk."""

    def start(self) -> None:
        """Opens the file and writes the epoch down. A file that can't be used is an alarm, and tried again.

        Raises:
            BusError: another node writes to it.
        """
        self._take_lock()
        self._thread.start()
        if not self._opened.wait(OPEN_TIMEOUT_S):
            self._fail(f"{self.file}: not open after {OPEN_TIMEOUT_S:.0f} s")

    def _take_lock(self) -> None:
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._lock_fd = take_lock(Path(f"{self.file}.lock"))
        except HeldError as error:
            raise BusError(
                "another node writes to this journal",
                where="results.journal.path",
                wanted="one node for each journal",
                got=f"{error} has {self.file}",
                remedy="stop it, or give each node a journal of its own",
            ) from error
        except OSError as error:  # a read-only disk: nobody else can write there either
            log.warning("journal: can't lock %s: %s", self.file, error.strerror)

    def put(self, record: Record) -> None:
        """Hands a result over; never blocks, and wakes nobody (see `wake`). What finds the queue full is lost."""
        if len(self._queue) >= MAX_WAITING:
            self.lost += 1
        else:
            self._queue.append(record)

    def wake(self) -> None:
        """Says that there is something in the queue. The bus thread does so, to spare the frame thread the time."""
        if self._idle or len(self._queue) >= BATCH:
            self._wakeup.set()

    def note(self, seq: int, text: str) -> None:
        """Keeps a remark on a result of this run."""
        if len(self._queue) < MAX_WAITING:
            self._queue.append(jf.Note(seq, clock.utc_us(), text))

    def tell_damage(self, text: str) -> None:
        """Raises the alarm that the file is not what was written; from any thread."""
        self._alarm("JOURNAL_DAMAGED", True, text, "look with `edge_app journal verify`")

    def close(self, timeout_s: float) -> None:
        """Writes what waits, and that the run ended cleanly."""
        self._closing.set()
        self._wakeup.set()
        if self._thread.is_alive():  # it may never have been started
            self._thread.join(timeout_s)
        if self._thread.is_alive():
            log.error("the journal's thread did not end within %.1f s", timeout_s)
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    # -- the writer's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        """What can't even be told (no memory, an alarm that raises) is no end either: the batch in hand is kept."""
        while True:
            try:
                self._write_all()
                return
            except Exception:
                log.critical("the journal's thread failed; it begins again", exc_info=True)
            if self._closing.wait(RETRY_S):
                return

    def _write_all(self) -> None:
        while True:
            if not self._batch:
                self._await_batch()
                while self._queue and len(self._batch) < MAX_BATCH:
                    self._batch.append(self._queue.popleft())
            closing = self._closing.is_set()
            try:
                self._write(self._batch)
                self._batch = []  # not to be written twice, whatever becomes of the rest
                self._look_after()
            except Exception as error:
                self._broke(error)
                if closing:
                    break
                self._closing.wait(RETRY_S)
            if closing and not self._batch and not self._queue:
                break
        self._end([*self._batch, *self._queue])

    def _await_batch(self) -> None:
        """Returns when there are BATCH results, or the first has waited for BATCH_S, or there is other work."""
        self._idle = True
        while self.working and not self._queue and not self._closing.is_set():
            wait_s = self._next_retention_s - time.monotonic()
            if wait_s <= 0:
                break
            self._wakeup.wait(min(wait_s, LOOK_S))
            self._wakeup.clear()
        self._idle = False
        until_s = time.monotonic() + BATCH_S
        while 0 < len(self._queue) < BATCH and not self._closing.is_set():
            wait_s = until_s - time.monotonic()
            if wait_s <= 0:
                break
            self._wakeup.wait(wait_s)
            self._wakeup.clear()

    def _write(self, batch: list[Record | jf.Note]) -> None:
        if self._connection is None:
            self._open()
        assert self._connection is not None
        if not self._places:
            self._begin(self._connection)
        records = [item for item in batch if isinstance(item, Record)]
        notes = [item for item in batch if isinstance(item, jf.Note)]
        if batch:
            now_us = self._now_us()
            jf.append(self._connection, self._run_number, [_row(record, now_us) for record in records], notes)
        self._still_in_place(self._connection)
        self._now_durable(records)

    def _look_after(self) -> None:
        if time.monotonic() >= self._next_retention_s:
            self._retain()
        self._works()

    def _still_in_place(self, connection: sqlite3.Connection) -> None:
        """What was written is durable only where the next start, and a replay, look for it."""
        if jf.places(self.file) != self._places:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # so that the one that was moved is whole
            raise _MovedError

    def _now_durable(self, records: list[Record]) -> None:
        """Goes up only as far as there is no hole: a result that was lost is never called durable."""
        if self.oldest_seq is None and records:
            self.oldest_seq = records[0].seq
        for record in records:
            self.written_seq = record.seq
            if record.seq == self.durable_seq + 1:
                self.durable_seq = record.seq

    def _open(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._connection = jf.open_for_writing(self.file)
            found = self._look_back(self._connection)
        except sqlite3.DatabaseError as error:
            if not jf.is_damage(error):
                raise
            self._set_aside(error)
            self._connection = jf.open_for_writing(self.file)
            found = "a new file"
        log.info("journal %s: %s", self.file, found)

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Writes the epoch down, before any result of it. A full disk may refuse that to a file that is open."""
        node = self._identity
        self._run_number = jf.begin_run(connection, node.epoch, node.node, node.software, self._clock_start[0])
        self.oldest_seq = jf.oldest_seq(connection, self._run_number)
        self._places = jf.places(self.file)

    def _close_file(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._places = None, []

    def _look_back(self, connection: sqlite3.Connection) -> str:
        """What an earlier run left, in words; the last results of a run that did not end cleanly are checked."""
        runs = [run for run in jf.read_runs(connection) if run.epoch != self._identity.epoch]
        if not runs:
            return "empty"
        last = runs[-1]
        text = f"{len(runs)} earlier runs, {jf.size_bytes(connection)} bytes"
        if last.ended_us is not None:
            return f"{text}; the last one, {last.epoch}, ended cleanly at seq {last.last_seq or 0}"
        bad = damaged(connection, last)
        if bad:
            self.tell_damage(f"run {last.epoch}: {bad}")
        checked = bad or "its last results are whole"
        return f"{text}; the last one, {last.epoch}, was cut off after seq {last.last_seq or 0}; {checked}"

    def _set_aside(self, error: Exception) -> None:
        """A file that SQLite can't read is kept under another name, and a new one begun."""
        self._close_file()
        self.oldest_seq = None
        aside = jf.set_aside(self.file)
        text = f"{self.file} can't be read ({error}); it is kept as {aside.name}, and a new one was begun"
        log.error("journal: %s", text)
        self._alarm("JOURNAL_DAMAGED", True, text, "earlier runs can't be replayed; check the disk")

    def _begin_again(self) -> None:
        """Somebody moved, replaced or deleted the file: what was not called durable yet is written again."""
        self.oldest_seq = None
        text = (
            f"{self.file} was moved, replaced or deleted while the node wrote to it; results 1 to {self.durable_seq}"
            " of this run may be missing in the one that is written now"
        )
        log.error("journal: %s", text)
        self._alarm("JOURNAL_DAMAGED", True, text, MOVED_REMEDY)

    def _retain(self) -> None:
        """Deletes what is too old or too much, a step at a time."""
        assert self._connection is not None
        self._next_retention_s = time.monotonic() + RETENTION_EVERY_S
        keep_us, keep_bytes = round(self._section.keep_days * 86_400e6), self._section.keep_mib * 1024 * 1024
        deleted = jf.delete_oldest(self._connection, now_us=self._now_us(), keep_us=keep_us, keep_bytes=keep_bytes)
        more = jf.give_back(self._connection)
        if deleted or more:
            self._next_retention_s = 0.0  # go on after the next batch
            self.oldest_seq = jf.oldest_seq(self._connection, self._run_number)
        self.size_bytes = jf.size_bytes(self._connection)
        disk = os.statvfs(self.file.parent)
        self.free_bytes = disk.f_bavail * disk.f_frsize

    def _now_us(self) -> int:
        """The clock at the start, and the monotonic clock since: a clock that is set meanwhile deletes nothing."""
        utc_us, monotonic_us = self._clock_start
        return utc_us + clock.monotonic_us() - monotonic_us

    def _works(self) -> None:
        self.working = True
        if self._failing:
            self._failing = False
            self._alarm(ALARM, False, f"{self.file} is written again; {self.lost} results were lost", "")
        if self.lost > self._lost_told:
            self._lost_told = self.lost
            text = f"{self.lost} results of this run are not in {self.file}: the disk was too slow, or did not work"
            self._alarm(LOST_ALARM, True, text, "give the journal a faster disk, or find what stalls it")
        self._opened.set()

    def _broke(self, error: Exception) -> None:
        if not jf.is_full(error):  # open, a full disk can at least be read
            self._close_file()
        if jf.is_damage(error):
            try:
                self._set_aside(error)
                return
            except OSError as worse:  # a read-only disk, on top of it
                error = worse
        if isinstance(error, _MovedError):
            self._begin_again()
            return
        expected = isinstance(error, (sqlite3.Error, OSError, EdgeAppError))
        log.warning("journal %s: %s", self.file, text := _words_of(error), exc_info=not expected)
        if jf.is_full(error) or self._disk_is_full():
            self._make_room()
        self._fail(f"{self.file}: {text}")

    def _disk_is_full(self) -> bool:
        """SQLite may tell it in other words, e.g. if it can't make its -shm."""
        try:
            disk = os.statvfs(self.file.parent)
        except OSError:
            return False
        return disk.f_bavail * disk.f_frsize < FULL_BYTES

    def _fail(self, text: str) -> None:
        self.working = False
        self._failing = True
        self._alarm(ALARM, True, text, REMEDY)
        self._opened.set()

    def _end(self, unwritten: list[Record | jf.Note]) -> None:
        """A run of which results are missing has not ended cleanly: nothing else would tell that there were more."""
        results = [item.seq for item in unwritten if isinstance(item, Record)]
        if results:
            log.error("journal: %d results are not in %s: %d to %d", len(results), self.file, results[0], results[-1])
        if self._connection is None:
            return
        try:
            if not results:
                jf.end_run(self._connection, self._run_number, clock.utc_us())
            self._connection.close()
        except sqlite3.Error as error:
            log.error("journal: could not note the clean end: %s", error)


def _row(record: Record, now_us: int) -> jf.Row:
    body = record.body
    sealed = record.sealed  # as it was encoded
    return jf.Row(sealed.seq, now_us, sealed.verdict, sealed.reason, body)


def damaged(connection: sqlite3.Connection, run: jf.Run) -> str | None:
    """What is wrong with the last results of a run; None: nothing."""
    if run.last_seq is None:
        return None
    expected = max(run.oldest_seq or 1, run.last_seq - CHECKED_AT_START + 1)
    rows = connection.execute(
        "SELECT id, crc, body FROM result WHERE id BETWEEN ? AND ? ORDER BY id",
        (jf.result_id(run.number, expected), jf.result_id(run.number, run.last_seq)),
    )
    for row_id, crc, body in rows:
        seq = row_id & jf.SEQ_MASK
        if seq != expected:
            return f"seq {expected} is missing"
        if not jf.is_whole(body, crc):
            return f"seq {seq} is not what was written"
        expected += 1
    return None


def _words_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
    return error.what if isinstance(error, EdgeAppError) else f"{type(error).__name__}: {error}"
