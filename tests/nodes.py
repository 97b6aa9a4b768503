"""Starts `plant/wire_node.py` as a process of its own, and ends it: cleanly, by SIGKILL, or by a stop and go."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from edge_app.client import AsyncLine, Keys, Line, Position, Start

PATIENCE_S = 30.0
"""With a node that is asked to end; a busy machine is no reason to fail."""
SCRIPT = Path(__file__).parent / "plant" / "wire_node.py"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PatientLine(Line):
    """A client that waits for its answers as long as a busy machine needs."""

    def command(self, name: str, /, timeout_s: float = PATIENCE_S, **fields: Any) -> Mapping[str, Any]:
        """As `Line.command`."""
        return super().command(name, timeout_s, **fields)


class NodeProcess:
    """One node. Restarted with `start` it listens at the same places and writes the same journal.

    Args:
        results: `results:` without endpoints; they are chosen here.
        rate, count: see wire_node.py.
        wrapper: a command that runs it, e.g. `ip netns exec NAME`.
    """

    def __init__(
        self,
        results: Mapping[str, Any] | None = None,
        *,
        rate: float = 0,
        count: int | None = None,
        host: str = "127.0.0.1",
        node: str = "l1/st3",
        wrapper: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self.publish, self.commands = (f"tcp://{host}:{free_port()}" for _ in range(2))
        config = json.dumps({"publish": self.publish, "commands": self.commands, **(results or {})}, default=str)
        python = [sys.executable, "-X", "faulthandler"]
        self._command = [*wrapper, *python, str(SCRIPT), "--config", config, "--node", node, "--rate", str(rate)]
        self._command += [*(["--count", str(count)] if count is not None else []), *arguments]
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self.epoch = ""

    def start(self) -> Self:
        """Starts it, and waits until it listens."""
        # To a file: a pipe that nobody reads would stop the node at its 64 KiB.
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._log, text=True, env=self._environment
        )
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        if not first:
            raise RuntimeError(f"the node did not start: {self.log()}")
        self.epoch = json.loads(first)["epoch"]
        return self

    def log(self) -> str:
        """What it wrote to stderr so far."""
        self._log.seek(0)
        return self._log.read()

    def line(self, **more: Any) -> Line:
        """A client of it."""
        return PatientLine(self.publish, self.commands, **more)

    def async_line(self, *, start: Position | Start = Start.NOW, keys: Keys | None = None) -> AsyncLine:
        """A client of it, for asyncio."""
        return AsyncLine(self.publish, self.commands, start=start, keys=keys)

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """As a power cut ends it."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def stop(self) -> int:
        """As an operator ends it; its exit code.

        Raises:
            AssertionError: it did not end; with what each of its threads was at.
        """
        assert self._process is not None
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)  # faulthandler writes the stacks
            self._process.communicate()
            raise AssertionError(f"the node did not end:\n{self.log()}") from None
        return self._process.returncode

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()
