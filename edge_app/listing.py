"""Text files that hold one entry a line: labels, lists of pictures."""

from __future__ import annotations

from pathlib import Path

from edge_app.errors import ConfigError, EdgeAppError


def read_text(file: Path, what: str, kind: type[EdgeAppError] = ConfigError) -> str:
    """The text of a file that is called `what` in errors.

    Raises:
        EdgeAppError: of the given kind: it can't be read, or is no text.
    """
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        got, remedy = error.strerror or str(error), "check the path and its permissions"
    except UnicodeDecodeError as error:
        got, remedy = f"no text in UTF-8: {error.reason} at byte {error.start}", "save it as UTF-8"
    raise kind(f"can't read {what}", where=str(file), wanted="a text file, one entry a line", got=got, remedy=remedy)


def read_lines(file: Path, what: str, kind: type[EdgeAppError] = ConfigError) -> list[str]:
    """Its lines, without empty ones and outer blanks. Raises as `read_text` does."""
    lines = (line.strip() for line in read_text(file, what, kind).splitlines())
    return [line for line in lines if line]


def read_paths(file: Path, root: Path, kind: type[EdgeAppError] = ConfigError) -> list[Path]:
    """The pictures that a list names, relative to `root`; # begins a comment. Raises as `read_text` does."""
    lines = (line.partition("#")[0].strip() for line in read_text(file, "the list of pictures", kind).splitlines())
    return [root / line for line in lines if line]
