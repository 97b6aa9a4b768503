"""Files that appear whole or not at all, also where the disk is full or the power goes."""

from __future__ import annotations

import contextlib
import os
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


def _replace(file: Path, content: bytes) -> None:
    if file.exists() and not file.is_file():  # a device or a pipe, which nothing may stand in for
        file.write_bytes(content)
        return
    part = file.with_name(f"{file.name}.part")
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with part.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def sync(path: Path) -> None:
    """Brings a file, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
