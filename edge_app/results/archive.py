"""Work that a command needs the disk for, or time, on a thread of its own: the bus never waits."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable

from edge_app import threads

log = logging.getLogger(__name__)

MAX_WAITING = 64


class Archive:
    """Runs jobs one after the other. `submit` never blocks."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threads.daemon(self._run, name)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> bool:
        """False: too many wait, ask again later."""
        if self._jobs.qsize() >= MAX_WAITING:
            return False
        self._jobs.put(job)
        return True

    def close(self) -> None:
        """Ends after the job at hand; a disk that does not answer is not waited for."""
        self._jobs.put(None)
        if self._thread.is_alive():  # it may never have been started
            self._thread.join(0.2)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("a job of the archive failed")
