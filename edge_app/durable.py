"""Small files that survive a power cut: after it, the one content or the other is there, and nothing between."""

from __future__ import annotations

import os
from pathlib import Path


def replace_durably(file: Path, text: str) -> None:
    """Writes a file, whole or not at all; it is on the disk when this returns.

    Raises:
        OSError: it can't be written; what was before stands.
    """
    part = file.with_name(f"{file.name}.part")
    file.parent.mkdir(parents=True, exist_ok=True)
    with part.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(file)
    sync(file.parent)


def sync(path: Path) -> None:
    """Brings a file, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
