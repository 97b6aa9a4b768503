"""Files that appear whole or not at all, also where the disk is full or the power goes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from edge_app.errors import EdgeAppError


def replace_durably(file: Path, text: str) -> None:
    """Writes a file, whole or not at all; it is on the disk when this returns.

    Raises:
        OSError: it can't be written; what was before stands.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(file.parent, os.O_RDONLY)  # before anything is changed: it may be one that can't be read
    try:
        _replace(file, text.encode())
        os.fsync(folder)
    finally:
        os.close(folder)


def write_whole(file: Path, content: str | bytes, what: str, kind: type[EdgeAppError]) -> None:
    """Writes a file that a person asked for, called `what` in the error.

    Raises:
        EdgeAppError: of the given kind: no space, or no permission; what was before stands.
    """
    try:
        _replace(file, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise kind(
            f"can't write {what}",
            where=str(file),
            got=error.strerror or str(error),
            remedy="see its owner and free space, or choose another folder",
        ) from error


@contextlib.contextmanager
def whole(file: Path) -> Iterator[Path]:
    """Where to write, a part at a time, what then appears as this file; it does not if anything is raised.

    Raises:
        OSError: it can't be brought to the disk; what was before stands.
    """
    if file.exists() and not file.is_file():  # a device or a pipe, which nothing may stand in for
        yield file
        return
    part = file.with_name(f"{file.name}.part")
    try:
        yield part
        sync(part)
        part.replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def _replace(file: Path, content: bytes) -> None:
    with whole(file) as place:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def sync(path: Path) -> None:
    """Brings a file, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
