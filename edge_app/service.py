"""Speaks with the service manager that started this process (systemd): ready, alive, stopping.

The protocol is datagrams of `KEY=VALUE` lines to the socket that NOTIFY_SOCKET names (sd_notify(3)); WATCHDOG_USEC says
how often a sign of life is wanted. Both variables are systemd's own; without them everything here does nothing.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from edge_app.clock import monotonic_us

log = logging.getLogger(__name__)

EXTEND_EVERY_S = 10.0
EXTEND_BY_US = 30_000_000
LONGEST_START_US = 30 * 60 * 1_000_000
"""Loading is given more time so long; a start that takes longer hangs, and is left to the manager's time-out."""
FEEDS_A_PERIOD = 4


class ServiceManager:
    """Tells systemd how this process is. All methods may be called where there is none.

    Args:
        address: of the manager's socket; `@name` is an abstract one. None: nobody listens.
        watchdog_us: how often a sign of life must come; None: none is wanted.
    """

    def __init__(self, address: str | None, watchdog_us: int | None) -> None:
        self._address = None if address is None else "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_us = watchdog_us
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._trouble: str | None = None
        self._status = ""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> ServiceManager:
        """As sd_notify(3) and sd_watchdog_enabled(3) read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID."""
        wanted_us = environment.get("WATCHDOG_USEC", "")
        for_us = environment.get("WATCHDOG_PID") in (None, "", str(os.getpid()))
        watchdog_us = int(wanted_us) if for_us and wanted_us.isdigit() and int(wanted_us) > 0 else None
        return cls(environment.get("NOTIFY_SOCKET") or None, watchdog_us)

    @property
    def present(self) -> bool:
        """Whether somebody listens."""
        return self._address is not None

    @contextmanager
    def starting(self) -> Iterator[None]:
        """While models are loaded and warmed: asks for more time again and again, so that slow is not dead."""
        if not self.present:
            yield
            return
        faulthandler.enable()  # the watchdog's SIGABRT then shows what every thread was at
        loaded = threading.Event()
        begun_us = monotonic_us()

        def extend() -> None:
            while monotonic_us() - begun_us < LONGEST_START_US:
                self._send(f"EXTEND_TIMEOUT_USEC={EXTEND_BY_US}", "STATUS=loading and warming the models")
                if loaded.wait(EXTEND_EVERY_S):
                    return

        thread = threading.Thread(target=extend, name="starting", daemon=True)
        thread.start()
        try:
            yield
        finally:
            loaded.set()
            thread.join()

    def ready(self, trouble: Callable[[], str | None], status: str) -> None:
        """The line runs. From here on the watchdog is fed, unless something is stuck.

        Args:
            trouble: what is stuck, None if nothing is. It may itself get stuck: then nothing is fed either.
            status: for `systemctl status`.
        """
        self._status = status
        self._send("READY=1", f"STATUS={status}")
        if not self.present or self._watchdog_us is None:
            return
        self._thread = threading.Thread(
            target=self._feed, args=(trouble, self._watchdog_us), name="watchdog", daemon=True
        )
        self._thread.start()

    def tell(self, status: str) -> None:
        """Another status; what is stuck stays told."""
        if status != self._status:
            self._status = status
            if self._trouble is None:
                self._send(f"STATUS={status}")

    def stopping(self) -> None:
        """The line was asked to end; the manager's stop time-out counts from here."""
        self._stopped.set()
        self._send("STOPPING=1", "STATUS=stopping")

    def _feed(self, trouble: Callable[[], str | None], watchdog_us: int) -> None:
        while not self._stopped.is_set():
            found = trouble()
            if found is None:
                self._send("WATCHDOG=1")
            if found != self._trouble:
                self._trouble = found
                self._send(f"STATUS={found or self._status}")
                if found is not None:
                    log.critical("%s: the watchdog is not fed any more", found)
            self._stopped.wait(watchdog_us / 1e6 / FEEDS_A_PERIOD)

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(1.0)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            log.error("the service manager can't be told %s: %s", lines[0], error)
