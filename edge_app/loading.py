"""Work that a driver may never return from, done beside: whoever waits is told in time, and can go on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from edge_app import threads
from edge_app.errors import RuntimeFault

log = logging.getLogger(__name__)
T = TypeVar("T")


class Loading(Generic[T]):
    """One piece of work on a thread of its own."""

    def __init__(self, work: Callable[[], T], let_go: Callable[[T], None], what: str) -> None:
        """Begins.

        Args:
            work: what may hang.
            let_go: given what came after nobody waited for it any more.
            what: for people.
        """
        self._work, self._let_go, self.what = work, let_go, what
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._given_up = False
        self._made: T | None = None
        self._error: BaseException | None = None
        self._thread = threads.daemon(self._run, "loading")
        self._thread.start()

    @property
    def hangs(self) -> bool:
        """Nobody waits for it any more, and it has not come back."""
        return self._given_up and not self._done.is_set()

    def result(self, within_s: float) -> T:
        """What was made; raises what the work raised, and RuntimeFault if it has not come back in time."""
        if not self._done.wait(within_s):
            with self._lock:
                self._given_up = not self._done.is_set()
        if self._given_up:
            raise RuntimeFault(
                f"{self.what} did not end", wanted=f"an end within {within_s:g} s", got="none: something hangs",
                remedy="restart the service before the next update",
            )  # fmt: skip
        made, error = self._made, self._error
        self._made = self._error = None  # not held: a model is let go of later, and an error holds what it met
        if error is not None:
            raise error
        return made  # type: ignore[return-value]

    def _run(self) -> None:
        try:
            self._made = self._work()
        except BaseException as error:
            self._error = error
        with self._lock:
            self._done.set()
            late = self._given_up
        if late:
            log.warning("%s has ended after all; nobody waited for it any more", self.what)
            if self._error is None:
                self._let_go(self._made)  # type: ignore[arg-type]
                self._made = None
