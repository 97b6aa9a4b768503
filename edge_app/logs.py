"""Where log lines go: text for people, JSON for collectors, fields for systemd's journal."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TextIO

from edge_app.threads import LINE

JOURNAL = Path("/run/systemd/journal/socket")


class TextFormatter(logging.Formatter):
    """For people; with the line's name where there are several in a process."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        """See logging.Formatter."""
        text = super().formatMessage(record)
        line = LINE.get()
        return f"{text[:17]}{line}: {text[17:]}" if line else text


TEXT = TextFormatter("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
"""syslog(3)'s."""
LONGEST_BYTES = 100_000
"""Of one datagram; what is longer is cut, since a log line must not be lost for its length."""


class LogFormat(StrEnum):
    """`--log-format`."""

    AUTO = "auto"
    """JOURNAL where stderr is the journal's, else TEXT."""
    TEXT = "text"
    JSON = "json"
    JOURNAL = "journal"


def start_logging(level: str, form: LogFormat, environment: Mapping[str, str]) -> None:
    """All log lines go to stderr (or the journal): stdout is for what was asked for."""
    if form is LogFormat.AUTO:
        form = LogFormat.JOURNAL if is_journal(sys.stderr, environment) else LogFormat.TEXT
    handler: logging.Handler
    if form is LogFormat.JOURNAL:
        handler = JournalHandler()
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else TEXT)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def is_journal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a stream is the journal's: JOURNAL_STREAM names its device and inode (systemd.exec(5))."""
    device, _, inode = environment.get("JOURNAL_STREAM", "").partition(":")
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return (device, inode) == (str(status.st_dev), str(status.st_ino))


def fields_of(record: logging.LogRecord) -> dict[str, str]:
    """A log line's fields, as the journal names them; with the error's text behind the message."""
    message = record.getMessage()
    fields = {
        "PRIORITY": str(PRIORITIES.get(record.levelno, 6)),
        "SYSLOG_IDENTIFIER": "edge_app",
        "LOGGER": record.name,
        "THREAD_NAME": record.threadName or "",
        "CODE_FILE": record.pathname,
        "CODE_LINE": str(record.lineno),
        "CODE_FUNC": record.funcName,
    }
    if line := LINE.get():
        fields["LINE"] = line
    if record.exc_info is not None and record.exc_info[1] is not None:
        fields["EXCEPTION"] = type(record.exc_info[1]).__name__
        message = f"{message}\n{logging.Formatter().formatException(record.exc_info)}"
    return {"MESSAGE": message, **fields}


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        fields = {name.lower(): value for name, value in fields_of(record).items()}
        return json.dumps({"t_us": round(record.created * 1e6), "level": record.levelname.lower(), **fields})


class JournalHandler(logging.Handler):
    """Sends fields in the journal's own protocol; what can't be sent there goes to stderr as text.

    Args:
        address: of the journal's socket.
    """

    def __init__(self, address: Path = JOURNAL) -> None:
        super().__init__()
        self._address = str(address)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)  # a journal that is behind must not hold up a frame
        self._stderr = logging.StreamHandler(sys.stderr)
        self._stderr.setFormatter(TEXT)

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        try:
            self._socket.sendto(journal_entry(fields_of(record)), self._address)
        except OSError:
            self._stderr.emit(record)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """See logging.Handler."""
        self._socket.close()
        super().close()


def journal_entry(fields: Mapping[str, str]) -> bytes:
    """Fields in the journal's native protocol: NAME=value, or NAME, length (64 bits, little-endian) and value."""
    entry = b""
    for name, value in fields.items():
        data = value.encode("utf-8", "replace")[:LONGEST_BYTES]
        if b"\n" in data:
            entry += name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n"
        else:
            entry += name.encode() + b"=" + data + b"\n"
    return entry
