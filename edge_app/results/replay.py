"""Replay: results after a seq, from memory's tail if it reaches back so far, else from the journal."""

from __future__ import annotations

import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice

from edge_app.errors import ConfigError
from edge_app.results import journal_file as jf
from edge_app.results import wire
from edge_app.results.commands import Code, Deferred, RefusedError, Reply, Request
from edge_app.results.identity import NodeIdentity
from edge_app.results.journal import MAX_WAITING, Journal

log = logging.getLogger(__name__)

TAIL_RESULTS = MAX_WAITING
"""As many as may wait for the disk: what is not in the journal yet is here."""
TAIL_BYTES = 64 * 1024 * 1024
REPLY_BYTES = 1024 * 1024

Results = Sequence[tuple[int, bytes]]
"""Seq and body, in order."""


class Tail:
    """The last results, without a hole. Belongs to the bus thread."""

    def __init__(self) -> None:
        self._results: deque[tuple[int, bytes]] = deque()
        self._bytes = 0

    def append(self, seq: int, body: bytes) -> None:
        """Adds a result; after a hole only what follows is kept."""
        if self._results and seq != self._results[-1][0] + 1:
            self._results.clear()
            self._bytes = 0
        self._results.append((seq, body))
        self._bytes += len(body)
        while len(self._results) > TAIL_RESULTS or self._bytes > TAIL_BYTES:
            self._bytes -= len(self._results.popleft()[1])

    @property
    def oldest_seq(self) -> int | None:
        """None: there is none yet."""
        return self._results[0][0] if self._results else None

    def after(self, seq: int, limit: int) -> Results:
        """Up to `limit` results after a seq."""
        if not self._results:
            return []
        skip = max(0, seq + 1 - self._results[0][0])
        wanted = len(self._results) - skip
        if wanted <= skip:  # nearer to the end, as most are: walk from there
            return list(islice(reversed(self._results), max(wanted, 0)))[::-1][:limit]
        return list(islice(self._results, skip, skip + limit))


class Replay:
    """Answers `replay` and `epochs`.

    Args:
        journal: None where there is none.
        identity: of this run.
        last_seq: of the last result that was sent.
    """

    def __init__(
        self, journal: Journal | None, identity: Callable[[], NodeIdentity], last_seq: Callable[[], int]
    ) -> None:
        self.tail = Tail()
        self._journal = journal
        self._identity = identity
        self._last_seq = last_seq

    @property
    def oldest_seq(self) -> int | None:
        """The oldest result of this run that can be replayed; None: none."""
        in_journal = self._journal.oldest_seq if self._journal is not None else None
        return min((seq for seq in (in_journal, self.tail.oldest_seq) if seq is not None), default=None)

    def replay(self, request: Request) -> Reply | Deferred:
        """`replay{epoch, after_seq, limit}`: a batch, and whether there is more.

        A seq that is missing in a batch is lost. Results before the oldest that is kept are GONE. BUSY: what comes
        next is on its way to the disk, or the journal can't be read just now.
        """
        epoch, after_seq = request.args["epoch"], request.args["after_seq"]
        limit = request.args.get("limit", wire.MAX_REPLAY)
        if epoch != self._identity().epoch:
            return Deferred(lambda: self._earlier_run(epoch, after_seq, limit))
        last_seq, oldest_seq = self._last_seq(), self.oldest_seq
        if after_seq >= last_seq:
            return _batch(epoch, [], last_seq)
        if oldest_seq is None or after_seq + 1 < oldest_seq:
            raise _gone(oldest_seq if oldest_seq is not None else last_seq + 1)
        from_tail = self.tail.after(after_seq, limit)
        if from_tail and from_tail[0][0] == after_seq + 1:
            return _batch(epoch, from_tail, last_seq)
        return Deferred(lambda: self._this_run(epoch, after_seq, limit, last_seq, from_tail))

    def epochs(self, _request: Request) -> Reply | Deferred:
        """`epochs`: the runs that can be replayed, oldest first; the present one is the last."""
        present, last_seq, oldest_seq = self._identity(), self._last_seq(), self.oldest_seq
        return Deferred(lambda: self._runs(present, last_seq, oldest_seq))

    def _this_run(self, epoch: str, after_seq: int, limit: int, last_seq: int, from_tail: Results) -> Reply:
        """The journal's results, then the tail's."""
        works = self._journal is not None and self._journal.working
        written_seq = self._journal.written_seq if self._journal is not None and works else last_seq
        rows: Results = []
        with self._reading(from_tail[0][0] if from_tail else last_seq + 1) as connection:
            run = jf.read_run(connection, epoch)
            if run is not None:
                rows = self._read_after(connection, run, after_seq, limit)
        reached = rows[-1][0] if rows else after_seq
        found = settled([*rows, *(item for item in from_tail if item[0] > reached)], after_seq, written_seq)
        if not found and written_seq < last_seq:
            raise RefusedError(Code.BUSY, "these results are on their way to the disk; ask again")
        return _batch(epoch, found[:limit], last_seq)

    def _earlier_run(self, epoch: str, after_seq: int, limit: int) -> Reply:
        with self._reading(None) as connection:
            run = jf.read_run(connection, epoch)
            if run is None:
                raise _gone(None)
            if run.last_seq is None or run.oldest_seq is None or after_seq >= run.last_seq:
                return _batch(epoch, [], run.last_seq or 0)
            if after_seq + 1 < run.oldest_seq:
                raise _gone(run.oldest_seq)
            return _batch(epoch, self._read_after(connection, run, after_seq, limit), run.last_seq)

    def _runs(self, present: NodeIdentity, last_seq: int, oldest_seq: int | None) -> Reply:
        runs: list[jf.Run] = []
        try:
            with self._reading(None) as connection:
                runs = jf.read_runs(connection)
        except RefusedError as refusal:
            if refusal.code is not Code.GONE:
                raise
        started_us = next((run.started_us for run in runs if run.epoch == present.epoch), 0)
        earlier = [run for run in runs if run.epoch != present.epoch]
        now = jf.Run(0, present.epoch, present.node, present.software, started_us, None, oldest_seq, last_seq)
        return Reply({"epochs": [_run_fields(run) for run in (*earlier, now)]})

    def _read_after(self, connection: sqlite3.Connection, run: jf.Run, after_seq: int, limit: int) -> Results:
        assert self._journal is not None
        return jf.read_after(connection, run, after_seq, limit, self._journal.tell_damage)

    @contextmanager
    def _reading(self, oldest_seq: int | None) -> Iterator[sqlite3.Connection]:
        """The journal, also while it can't be written.

        Raises:
            RefusedError: GONE where there is none, or none that works: `oldest_seq` is what memory has; BUSY if it
                works, but can't be read just now.
        """
        if self._journal is None:
            raise _gone(oldest_seq)
        try:
            with closing(jf.open_for_reading(self._journal.file)) as connection:
                yield connection
        except (ConfigError, sqlite3.Error) as error:
            log.debug("replay: %s", error)  # the client is told; it may ask very often
            if any(one is not None and jf.is_damage(one) for one in (error, error.__cause__)):
                self._journal.tell_damage(f"{self._journal.file} can't be read: {error.__cause__ or error}")
                raise _gone(oldest_seq) from error
            if not self._journal.working:
                raise _gone(oldest_seq) from error
            raise RefusedError(Code.BUSY, "the journal can't be read just now; ask again") from error


def settled(found: Results, after_seq: int, written_seq: int) -> Results:
    """Results up to the first hole that may yet be filled: what is missing up to `written_seq` is lost."""
    expected = after_seq + 1
    for index, (seq, _) in enumerate(found):
        if seq != expected and expected > written_seq:
            return found[:index]
        expected = seq + 1
    return found


def _gone(oldest_seq: int | None) -> RefusedError:
    return RefusedError(Code.GONE, "these results are no longer kept", oldest_seq=oldest_seq)


def _run_fields(run: jf.Run) -> dict[str, object]:
    names = ("epoch", "software", "started_us", "ended_us", "oldest_seq", "last_seq")
    return {name: getattr(run, name) for name in names}


def _batch(epoch: str, results: Results, last_seq: int) -> Reply:
    """Results as they were published, but for `replayed`; as many as fit into a reply."""
    bodies: list[bytes] = []
    size = 0
    for _, body in results:
        size += len(body)
        if bodies and size > REPLY_BYTES:
            break
        bodies.append(wire.as_replayed(body))
    more = bool(bodies) and results[len(bodies) - 1][0] < last_seq
    return Reply(
        {"epoch": epoch, "last_seq": last_seq, "more": more}, raw=b'"results":[' + b",".join(bodies) + b"]"
    )
