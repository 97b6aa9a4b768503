"""A small service manager: systemd's contract with a Type=notify service, over a real notify socket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE_S = 60.0


class Supervisor:
    """Starts a command, and starts it again when it fails to say that it lives.

    Args:
        command: to run.
        folder: where it runs, and where the socket is.
        watchdog_s: after READY=1, so long may pass without WATCHDOG=1; then SIGABRT.

    Before the first word the process has PATIENCE_S; from then on it starts only as long as its EXTEND_TIMEOUT_USEC
    lasts. systemd's own time-out is the longer of that and TimeoutStartSec: this manager is the stricter one.
    """

    def __init__(self, command: Sequence[str], folder: Path, watchdog_s: float) -> None:
        self._command, self._folder, self._watchdog_s = command, folder, watchdog_s
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._address = str(folder / "notify")
        self._socket.bind(self._address)
        self._socket.settimeout(0.05)
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in __exit__
        self.words: list[str] = []
        """All that the present process has said, a line each."""
        self.ended: list[str] = []
        """Why each process before it was ended."""

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        self._socket.close()
        self._log.close()

    def _start(self) -> None:
        environment = {
            **os.environ, "NOTIFY_SOCKET": self._address, "WATCHDOG_USEC": str(round(self._watchdog_s * 1e6))
        }  # fmt: skip
        self.words = []
        self._ready = False
        self._process = subprocess.Popen(self._command, cwd=self._folder, env=environment, stderr=self._log)
        self._until = time.monotonic() + PATIENCE_S

    def log(self) -> str:
        """What the processes wrote to stderr."""
        self._log.seek(0)
        return self._log.read()

    def run_until(self, holds: Callable[[], bool]) -> None:
        """Supervises until something holds."""
        end = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < end, f"never came: {self.words} {self.ended} {self.log()}"
            self._turn()

    def stop(self) -> int:
        """Ends the service as `systemctl stop` does; its exit code."""
        self._process.terminate()
        code = self._process.wait(PATIENCE_S)
        self._hear()
        return code

    def _turn(self) -> None:
        self._hear()
        if self._process.poll() is not None:
            self._again(f"exit {self._process.returncode}")
        elif time.monotonic() > self._until:
            self._process.send_signal(signal.SIGABRT)
            try:
                self._process.wait(PATIENCE_S)
            finally:
                self._process.kill()
            self._again("watchdog" if self._ready else "start time-out")

    def _again(self, why: str) -> None:
        self._hear()
        self.ended.append(f"{why}; last words {self.words[-3:]}")
        self._start()

    def _hear(self) -> None:
        while True:
            try:
                lines = self._socket.recv(4096).decode().split("\n")
            except TimeoutError:
                return
            now = time.monotonic()
            self.words += lines
            for line in lines:
                key, _, value = line.partition("=")
                if key == "EXTEND_TIMEOUT_USEC" and not self._ready:
                    self._until = now + int(value) / 1e6
                elif line == "READY=1":
                    self._ready = True
                    self._until = now + self._watchdog_s
                elif line == "WATCHDOG=1" and self._ready:
                    self._until = now + self._watchdog_s
