"""One process at a time has its plans on the NPU: a lock that the kernel takes back however its holder ends.

Two processes that use one HTP wait for each other inside the driver, and both miss their deadlines. Several lines of
one board belong into one process, which orders their runs (edge_app.npu_gate).
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from edge_app.errors import RuntimeFault
from edge_app.file_lock import HeldError, take_lock

log = logging.getLogger(__name__)
BOARD_LOCK = Path("/run/lock/edge_app-npu.lock")
_held: dict[Path, int] = {}
"""Lock files that this process holds, and their descriptors."""
_told: set[Path] = set()
"""Those that were taken away and can't be had again."""


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
        _held[file] = take_lock(file)
    except OSError as error:
        log.error("nothing keeps other processes from the NPU: %s: %s; see systemd/edge_app.tmpfiles", file, error)
    except HeldError as error:
        raise RuntimeFault(
            "another process uses the NPU",
            where=str(file),
            wanted="one process for all lines of a board: two of them make each other late",
            got=str(error),
            remedy="name all pipelines in one process (--pipeline A --pipeline B, or a folder), or end the other one;"
            " or set runtime.provider: cpu",
        ) from error


def keep_npu() -> None:
    """Called now and then: a lock file that was deleted under its holder would let a second process in."""
    for file, descriptor in list(_held.items()):
        if _is_at(file, descriptor) or file in _told:
            continue
        try:
            _held[file] = take_lock(file)
        except (OSError, HeldError) as error:
            _told.add(file)
            log.error("%s was taken away, and nothing keeps other processes from the NPU any more: %s", file, error)
            continue
        os.close(descriptor)
        log.error("%s was taken away while this process held it; it is made again: leave it alone", file)


def _is_at(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(file), os.fstat(descriptor))
    except OSError:
        return False
