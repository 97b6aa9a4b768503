"""One process at a time has its plans on the NPU: a lock that the kernel takes back however its holder ends.

Two processes that use one HTP wait for each other inside the driver, and both miss their deadlines. Several lines of
one board belong into one process, which orders their runs (edge_app.npu_gate).
"""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

from edge_app.errors import RuntimeFault

log = logging.getLogger(__name__)
BOARD_LOCK = Path("/run/lock/edge_app-npu.lock")
LOCKS = Path("/proc/locks")
_held: dict[Path, int] = {}
"""Lock files that this process holds, and their descriptors."""


def hold_npu(file: Path) -> None:
    """From here to its end, only this process may use the NPU that `file` stands for. Again: nothing happens.

    A lock that can't be had for want of a file or of permission is told in the log, and the line goes on: it is no
    worse off than without it.

    Raises:
        RuntimeFault: another process holds it; says which, and what to do.
    """
    file = file.absolute()
    if file in _held:
        return
    try:
        descriptor = _opened(file)
    except OSError as error:
        log.error("nothing keeps other processes from the NPU: %s: %s; see systemd/edge_app.tmpfiles", file, error)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = holder_of(descriptor)
        os.close(descriptor)
        raise RuntimeFault(
            "another process uses the NPU",
            where=str(file),
            wanted="one process for all lines of a board: two of them make each other late",
            got=holder,
            remedy="name all pipelines in one process (--pipeline A --pipeline B, or a folder), or end the other one;"
            " or set runtime.provider: cpu",
        ) from error
    _held[file] = descriptor


def _opened(file: Path) -> int:
    try:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)  # enough for flock(2), and the service may not write there
    except FileNotFoundError:
        descriptor = os.open(file, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.chmod(descriptor, 0o644)  # whatever the umask: other users must be able to see that it is held
        return descriptor


def holder_of(descriptor: int) -> str:
    """Who holds the lock on an open file, as `pid N (command line)`."""
    status = os.fstat(descriptor)
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        for line in LOCKS.read_text(encoding="ascii").splitlines():
            fields = line.split()
            if "FLOCK" in fields and "->" not in fields and fields[5] == wanted:
                return f"pid {fields[4]} ({_command_of(fields[4])})"
    except (OSError, IndexError):
        pass
    return "a process that can't be seen from here"


def _command_of(pid: str) -> str:
    try:
        words = Path("/proc", pid, "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "its command line can't be read"
    return " ".join(words).strip()[:200] or "no command line"
