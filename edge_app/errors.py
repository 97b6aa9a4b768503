"""Errors a person can act on.

Every error that reaches a user says what went wrong and, where it is known, where (file and line), what was wanted,
what was got and what to do. The exit code of the process belongs to the error's kind; see :class:`ExitCode`.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every `edge_app` command (documented in the README)."""

    OK = 0
    CHECK_FAILED = 1
    USAGE = 2
    CAMERA = 3
    MODEL = 4
    RUNTIME = 5
    BUS = 6
    INTERNAL = 70
    INTERRUPTED = 130
    """By Ctrl-C before it was done, as shells tell it (128 + SIGINT)."""
    PIPE_CLOSED = 141
    """Nobody read its output to the end (128 + SIGPIPE)."""


class EdgeAppError(Exception):
    """Base of all errors that edge_app raises on purpose.

    Args:
        what: one sentence, what went wrong.
        where: file, line and key, or the device or endpoint.
        wanted: what would have been accepted.
        got: what was found instead.
        remedy: what the reader can do about it.
    """

    exit_code: ExitCode = ExitCode.INTERNAL

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        wanted: str | None = None,
        got: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.wanted = wanted
        self.got = got
        self.remedy = remedy
        super().__init__(what)

    def __str__(self) -> str:
        return self.text()

    @property
    def brief(self) -> str:
        """What went wrong, and what was got where that is known: for alarms and tables."""
        return self.what if self.got is None else f"{self.what}: {self.got}"

    def text(self) -> str:
        """The whole error, one aspect a line; this is what the command line prints."""
        head = f"{self.where}: {self.what}" if self.where else self.what
        lines = [head]
        for name, value in (("wanted", self.wanted), ("got", self.got), ("do", self.remedy)):
            if value is not None:
                lines.append(f"  {name}: {value}")
        return "\n".join(lines)


class ConfigError(EdgeAppError):
    """Bad usage, pipeline YAML, manifest or key file."""

    exit_code = ExitCode.USAGE


class FrameMisfit(ConfigError):
    """A frame in which the pipeline's region does not lie: it can't be inspected, others can."""


class CameraError(EdgeAppError):
    """The camera, folder or stream can't be opened, or has no frame to give."""

    exit_code = ExitCode.CAMERA


class ModelError(EdgeAppError):
    """A model file is absent, damaged, or not what its manifest says."""

    exit_code = ExitCode.MODEL


class RuntimeFault(EdgeAppError):
    """A session failed to load or to run."""

    exit_code = ExitCode.RUNTIME


class BusError(EdgeAppError):
    """The wire can't be opened or was refused."""

    exit_code = ExitCode.BUS


class InvalidOutput(EdgeAppError):
    """A model's output holds NaN or Inf, or has another shape than its manifest says. Never an empty detection list."""

    exit_code = ExitCode.RUNTIME


SCARCE = (
    "can't start new thread", "failed to map segment", "annot allocate memory", "Failed to allocate memory",
    "bad_alloc", "bad allocation", "Too many open files",
)  # fmt: skip
"""Words of Python's threads, the loader of libraries, the C library, onnxruntime and libzmq."""


def scarcity(error: BaseException) -> RuntimeFault | None:
    """The system gave no memory, thread or file handle, as everybody tells it otherwise; None: it is another error."""
    if not isinstance(error, MemoryError) and not any(words in str(error) for words in SCARCE):
        return None
    return RuntimeFault(
        "the system gives no more memory, threads or file handles",
        got=f"{type(error).__name__}: {error}".rstrip(": ")[:300],
        remedy="see who takes them, and the limits: free, ulimit -a; of the service MemoryMax, TasksMax, LimitNOFILE",
    )
