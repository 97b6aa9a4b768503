"""Pictures of what did not pass: encoded and written behind the line's back, by content, under a quota.

A picture is a file named by the SHA-256 of its JPEG; `index.db` beside them says which result it belongs to. Pictures
are the first thing to go: a full queue, quota or disk drops pictures, never results.
"""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import re
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2

from edge_app import clock, threads
from edge_app.config.results import Evidence as EvidenceSection
from edge_app.errors import BusError
from edge_app.file_lock import HeldError, take_lock
from edge_app.frame import Frame
from edge_app.results.commands import Code, Deferred, RefusedError, Reply, Request
from edge_app.results.journal_file import is_damage, places, set_aside
from edge_app.results.jpeg import to_jpeg
from edge_app.verdict import Reason, Sealed

log = logging.getLogger(__name__)

MIB = 1024 * 1024
ALARM = "EVIDENCE_FAILED"
REMEDY = "free the disk, or lower results.evidence.keep_mib; results are not touched by this"
MAX_EXPECTED = 256
RETRY_S = 1.0
FULL_BYTES, ROOM_BYTES = MIB, 4 * MIB
"""Of a disk that is called full, and what its index and the journal's need to go on."""
WITHOUT_PICTURE = frozenset({
    Reason.MISSED_TRIGGER, Reason.CAMERA_LOST, Reason.INCOMPLETE_FRAME, Reason.STALE_FRAME, Reason.NOT_RUNNING,
    Reason.OVERLOAD,
})  # fmt: skip
"""There is none, or it would show a line that is not inspected."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS image (
    number INTEGER PRIMARY KEY,
    epoch TEXT NOT NULL,
    seq INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    t_us INTEGER NOT NULL,
    UNIQUE (epoch, seq)
);
CREATE INDEX IF NOT EXISTS image_by_content ON image (sha256);
"""
_BY_CONTENT = re.compile(r"sha256:([0-9a-f]{64})")
_BY_RESULT = re.compile(r"([0-9a-f]{1,32})/([1-9][0-9]{0,15})")

RaiseAlarm = Callable[[str, bool, str, str], None]
GiveBack = Callable[[Frame], None]


@dataclass(frozen=True, slots=True)
class _Job:
    frame: Frame
    seq: int
    give_back: GiveBack


class Evidence:
    """Keeps pictures. `wants` and `take` are called by the line and never block; all else is the writer's thread.

    Args:
        section: `results.evidence`, with a path.
        epoch: of this run.
        alarm: raises and clears EVIDENCE_FAILED; called on the writer's thread.
    """

    def __init__(self, section: EvidenceSection, epoch: str, alarm: RaiseAlarm) -> None:
        assert section.path is not None
        self.folder = section.path
        self._section = section
        self._epoch = epoch
        self._alarm = alarm
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._queued_bytes = 0
        self._queued_lock = threading.Lock()
        self._expected: dict[int, int] = {}
        self._pending: set[int] = set()
        self._room_wanted = threading.Event()
        self._thread = threads.daemon(self._run, "evidence")
        self._lock_fd: int | None = None
        self._connection: sqlite3.Connection | None = None
        self._places: list[tuple[int, int] | None] = []
        self._failing = False
        self._ended = False
        self._not_before_s = 0.0
        self.bytes = 0
        """Of all pictures kept."""
        self.written = 0
        self.dropped = 0

    def start(self) -> None:
        """Starts the writer.

        Raises:
            BusError: another process keeps pictures here.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock_fd = take_lock(self.folder)
        except HeldError as error:
            raise BusError(
                "another node keeps its pictures in this folder: each would delete the other's",
                where="results.evidence.path",
                wanted="a folder for each node",
                got=f"{error} has {self.folder}",
                remedy="stop it, or give each node a folder of its own",
            ) from error
        except OSError as error:  # the writer tells it, should it need to write there
            log.warning("evidence: can't lock %s: %s", self.folder, error.strerror)
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Writes what waits, if there is time."""
        self._queue.put(None)
        if self._thread.is_alive():  # it may never have been started
            self._thread.join(timeout_s)
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    # -- the line's side --------------------------------------------------------------------------------------------

    def wants(self, sealed: Sealed) -> dict[str, Any] | None:
        """The `image` field of a result; None: no picture of it is kept. `take` must follow with its frame.

        A result without a frame (frame_id 0: sealed before its picture was taken) has none.
        """
        if sealed.frame_id == 0:
            return None
        if sealed.reason is Reason.OK:
            every = self._section.pass_every
            if every == 0 or sealed.seq % every:
                return None
        elif sealed.reason in WITHOUT_PICTURE:
            return None
        if self._ended or self._queued_bytes >= self._section.queue_mib * MIB:
            self.dropped += 1
            return {"id": None, "state": "dropped"}
        self._expected[sealed.frame_id] = sealed.seq
        self._pending.add(sealed.seq)
        return {"id": f"{self._epoch}/{sealed.seq}", "state": "pending"}

    def take(self, frame: Frame, give_back: GiveBack) -> bool:
        """Takes a frame whose result wanted a picture. True: its pixels are held until `give_back(frame)` is called."""
        seq = self._expected.pop(frame.frame_id, None)
        if seq is None:
            return False
        if frame.pixels is None:
            self._pending.discard(seq)
            return False
        with self._queued_lock:
            self._queued_bytes += frame.pixels.nbytes
        self._queue.put(_Job(frame, seq, give_back))
        return True

    def make_room(self) -> None:
        """The disk is full, and the journal needs some of it."""
        self._room_wanted.set()

    # -- commands ---------------------------------------------------------------------------------------------------

    def image(self, request: Request) -> Deferred:
        """`image{id}`: by the id of a result's `image`, or by content."""
        by_content, by_result = (form.fullmatch(request.args["id"]) for form in (_BY_CONTENT, _BY_RESULT))
        if by_content:
            return Deferred(lambda: self._find("sha256 = ?", (by_content[1],)))
        if by_result:
            return Deferred(lambda: self._find("epoch = ? AND seq = ?", (by_result[1], int(by_result[2]))))
        raise RefusedError(Code.BAD_REQUEST, "id: wanted sha256:<64 hex digits> or <epoch>/<seq>")

    def _find(self, condition: str, values: tuple[object, ...]) -> Reply:
        if values[0] == self._epoch and values[1] in self._pending:
            raise RefusedError(Code.NOT_FOUND, "the picture is not written yet", state="pending")
        try:
            with closing(sqlite3.connect(f"{self._index.resolve().as_uri()}?mode=ro", uri=True)) as connection:
                row = connection.execute(f"SELECT sha256, epoch, seq FROM image WHERE {condition}", values).fetchone()
            body = b"" if row is None else self._file(row[0]).read_bytes()
        except (sqlite3.Error, OSError) as error:
            log.warning("evidence: %s", error)
            row = None
        if row is None:
            raise RefusedError(Code.NOT_FOUND, "no such picture: dropped, or deleted by the quota", state="gone")
        if hashlib.sha256(body).hexdigest() != row[0]:
            raise RefusedError(Code.NOT_FOUND, "the picture's file is damaged", state="damaged")
        return Reply({"id": f"sha256:{row[0]}", "state": "stored", "type": "image/jpeg", "bytes": len(body),
                      "epoch": row[1], "seq": row[2]}, blob=body)  # fmt: skip

    # -- the writer's thread ----------------------------------------------------------------------------------------

    @property
    def _index(self) -> Path:
        return self.folder / "index.db"

    def _file(self, sha256: str) -> Path:
        return self.folder / sha256[:2] / f"{sha256}.jpg"

    def _run(self) -> None:
        try:
            self._write_all()
        except Exception as error:
            self._ended = True
            log.critical("the thread for pictures ends on an error; none is kept any more", exc_info=True)
            text = f"no picture is kept any more: {type(error).__name__}: {error}"
            self._alarm(ALARM, True, text, "restart the service; results are not touched by this")

    def _write_all(self) -> None:
        while True:
            try:
                job = self._queue.get(timeout=1.0)
            except queue.Empty:
                self._look_after_disk()
                continue
            if job is None:
                break
            try:
                self._handle(job)
            except Exception as error:  # of the camera that takes its frame back, or of the alarm
                log.error("evidence: a frame was not given back", exc_info=error)
                self._broke(error)
        if self._connection is not None:
            self._connection.close()

    def _handle(self, job: _Job) -> None:
        """One picture: whatever goes wrong drops it, counts it, and is told."""
        self._look_after_disk()
        assert job.frame.pixels is not None
        size = job.frame.pixels.nbytes
        try:
            if time.monotonic() < self._not_before_s:
                self.dropped += 1
                return
            self._store(job.seq, to_jpeg(job.frame, self._section.quality))
            self.written += 1
            self._works()
        except Exception as error:
            self.dropped += 1
            self._broke(error)
        finally:
            self._pending.discard(job.seq)
            with self._queued_lock:
                self._queued_bytes -= size
            self._forget_expected()
            job.give_back(job.frame)

    def _forget_expected(self) -> None:
        """Frames that never came (a line that ended): their results said `pending`, and now there is none."""
        for frame_id in list(self._expected)[:-MAX_EXPECTED]:
            seq = self._expected.pop(frame_id, None)
            if seq is not None:
                self._pending.discard(seq)

    def _store(self, seq: int, jpeg: bytes) -> None:
        connection = self._open()
        if not self._make_room(connection, len(jpeg)):
            raise OSError(f"less than {self._section.free_mib} MiB free on the disk of {self.folder}")
        sha256 = hashlib.sha256(jpeg).hexdigest()
        file = self._file(sha256)
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            part = file.with_suffix(".part")
            part.write_bytes(jpeg)
            os.replace(part, file)
        connection.execute(
            "INSERT OR IGNORE INTO image (epoch, seq, sha256, bytes, t_us) VALUES (?, ?, ?, ?, ?)",
            (self._epoch, seq, sha256, len(jpeg), clock.utc_us()),
        )
        self.bytes += len(jpeg)
        while self.bytes > self._section.keep_mib * MIB and self._delete_oldest(connection):
            pass

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and places(self._index) != self._places:
            self._connection.close()  # it was moved or deleted: nobody would find what is noted in it
            self._connection = None
        if self._connection is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self._index, isolation_level=None)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.executescript(SCHEMA)
                self._adopt(connection)
                self.bytes = int(connection.execute("SELECT coalesce(sum(bytes), 0) FROM image").fetchone()[0])
            except BaseException:
                connection.close()
                raise
            self._connection, self._places = connection, places(self._index)
        return self._connection

    def _adopt(self, connection: sqlite3.Connection) -> None:
        """Pictures that the index does not know (it was lost, or a power cut came between) count too, by their age."""
        for part in self.folder.glob("*/*.part"):
            part.unlink()
        known = {sha256 for (sha256,) in connection.execute("SELECT sha256 FROM image")}
        for file in self._files_by_age():
            if file.stem not in known and file == self._file(file.stem):
                connection.execute(
                    "INSERT INTO image (epoch, seq, sha256, bytes, t_us)"
                    " SELECT 'unknown', coalesce(max(seq), 0) + 1, ?, ?, ? FROM image WHERE epoch = 'unknown'",
                    (file.stem, file.stat().st_size, clock.utc_us()),
                )

    def _files_by_age(self) -> list[Path]:
        """The oldest first."""
        return sorted(self.folder.glob("*/*.jpg"), key=lambda file: file.stat().st_mtime_ns)

    def _make_room(self, connection: sqlite3.Connection, wanted: int) -> bool:
        """Deletes the oldest pictures until the disk has what it should have free; False: there were not enough."""
        while self._free_bytes() < self._section.free_mib * MIB + wanted:
            if not self._delete_oldest(connection):
                return False
        return True

    def _free_bytes(self) -> int:
        disk = os.statvfs(self.folder)
        return disk.f_bavail * disk.f_frsize

    def _delete_oldest(self, connection: sqlite3.Connection) -> bool:
        row = connection.execute("SELECT number, sha256, bytes FROM image ORDER BY number LIMIT 1").fetchone()
        if row is None:
            return False
        number, sha256, size = row
        connection.execute("DELETE FROM image WHERE number = ?", (number,))
        self.bytes -= size
        if connection.execute("SELECT 1 FROM image WHERE sha256 = ?", (sha256,)).fetchone() is None:
            self._file(sha256).unlink(missing_ok=True)
        return True

    def _unlink_on_a_full_disk(self) -> None:
        """There not even the index can be written, or opened, that says which picture is the oldest: files tell it too.

        What the index still says of them goes as the next ones are deleted.
        """
        if self._free_bytes() >= FULL_BYTES:
            return
        for count, file in enumerate(self._files_by_age(), 1):
            file.unlink()
            if self._free_bytes() >= ROOM_BYTES:
                log.warning("evidence: the disk is full; the %d oldest pictures are deleted", count)
                return

    def _look_after_disk(self) -> None:
        if not self._room_wanted.is_set():
            return
        self._room_wanted.clear()
        try:
            before = self.bytes
            connection = self._open()
            self._make_room(connection, ROOM_BYTES)
            log.warning("evidence: %d bytes of pictures deleted to make room for the journal", before - self.bytes)
        except Exception as error:
            self._broke(error)

    def _works(self) -> None:
        if self._failing:
            self._failing = False
            self._alarm(ALARM, False, "pictures are written again", "")

    def _broke(self, error: Exception) -> None:
        """Tells it once; further pictures are dropped for a moment, so that a broken disk is not hammered."""
        log.warning("evidence: %s", error, exc_info=not isinstance(error, (OSError, sqlite3.Error, cv2.error)))
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if is_damage(error):
            with suppress(OSError):
                set_aside(self._index)  # the pictures are still there: a new index adopts them
        with suppress(OSError):
            self._unlink_on_a_full_disk()
        self._failing = True
        self._not_before_s = time.monotonic() + RETRY_S
        self._alarm(ALARM, True, f"pictures are dropped: {type(error).__name__}: {error}", REMEDY)
