"""Locks on files and folders that the kernel takes back however their holder ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

LOCKS = Path("/proc/locks")


class HeldError(Exception):
    """Another process has it; says which, as `pid N (command line)`."""


def take_lock(path: Path) -> int:
    """Locks a folder, or a file, which is made if it is not there. It holds until the descriptor is closed.

    Raises:
        HeldError: another process has it.
        OSError: it can't be opened or made.
    """
    descriptor = _opened(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _holder_of(descriptor)
        os.close(descriptor)
        raise HeldError(holder) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _opened(path: Path) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # enough for flock(2); a pipe at this place is not waited for
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        descriptor = os.open(path, flags | os.O_CREAT, 0o644)
        os.chmod(descriptor, 0o644)  # whatever the umask: other users must be able to see that it is held
        return descriptor


def _holder_of(descriptor: int) -> str:
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
