"""Log lines as text, JSON and journal fields; the journal is a real datagram socket."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_app import threads
from edge_app.logs import (
    LONGEST_BYTES,
    TEXT,
    JournalHandler,
    LogFormat,
    fields_of,
    is_journal,
    journal_entry,
    start_logging,
)


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "journal"))
        heard.settimeout(30)
        yield heard


def parse(entry: bytes) -> dict[str, str]:
    """As journald reads its native protocol."""
    fields = {}
    while entry:
        line, _, rest = entry.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            length = int.from_bytes(rest[:8], "little")
            value, rest = rest[8 : 8 + length], rest[8 + length :]
            assert rest[:1] == b"\n"
            rest = rest[1:]
        fields[name.decode()] = value.decode()
        entry = rest
    return fields


@given(st.dictionaries(st.from_regex(r"[A-Z][A-Z_]{0,20}", fullmatch=True), st.text(st.characters(codec="utf-8"))))
def test_every_text_comes_through(fields: dict[str, str]) -> None:
    assert parse(journal_entry(fields)) == fields


def test_what_is_too_long_is_cut_not_lost() -> None:
    assert len(parse(journal_entry({"MESSAGE": "x" * (LONGEST_BYTES + 5)}))["MESSAGE"]) == LONGEST_BYTES


def test_the_journal_gets_fields(journal: socket.socket, tmp_path: Path) -> None:
    log = logging.Logger("edge_app.test")
    log.addHandler(JournalHandler(tmp_path / "journal"))
    log.warning("alarm %s", "HOT")
    fields = parse(journal.recv(1 << 16))
    assert (fields["MESSAGE"], fields["PRIORITY"], fields["LOGGER"]) == ("alarm HOT", "4", "edge_app.test")
    assert (fields["SYSLOG_IDENTIFIER"], fields["CODE_FUNC"]) == ("edge_app", "test_the_journal_gets_fields")
    try:
        raise OSError("the disk is gone")
    except OSError:
        log.exception("stage %s failed", "judge")
    fields = parse(journal.recv(1 << 16))
    assert fields["EXCEPTION"] == "OSError"
    assert fields["MESSAGE"].startswith("stage judge failed\nTraceback")
    assert fields["MESSAGE"].endswith("OSError: the disk is gone")
    assert fields["PRIORITY"] == "3"


def test_a_journal_that_is_gone_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.Logger("edge_app.test")
    log.addHandler(JournalHandler(tmp_path / "nobody"))
    log.error("it matters")
    assert capsys.readouterr().err.endswith("ERROR   it matters\n")


def test_a_full_journal_holds_nobody_up(
    journal: socket.socket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.Logger("edge_app.test")
    log.addHandler(JournalHandler(tmp_path / "journal"))
    for number in range(5000):  # far more than a socket's queue; nobody reads
        log.info("line %d", number)
    heard = []
    journal.setblocking(False)
    while True:
        try:
            heard.append(parse(journal.recv(1 << 16))["MESSAGE"])
        except BlockingIOError:
            break
    printed = [line.split("    ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert printed
    assert sorted(heard + printed) == sorted(f"line {number}" for number in range(5000))


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging("info", LogFormat.JSON, {})
    logging.getLogger("edge_app.x").info("two\nlines of %s", "text")
    logging.getLogger("edge_app.x").debug("not wanted")
    (line,) = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert entry["message"] == "two\nlines of text"
    assert (entry["level"], entry["logger"]) == ("info", "edge_app.x")
    assert isinstance(entry["t_us"], int)


def test_auto_is_the_journal_where_stderr_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "stderr").open("w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        status = os.fstat(stream.fileno())
        ours = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        assert is_journal(stream, ours)
        for other in ({}, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino + 1}"}, {"JOURNAL_STREAM": "x"}):
            assert not is_journal(stream, other)
        start_logging("info", LogFormat.AUTO, ours)
        assert [type(handler) for handler in logging.getLogger().handlers] == [JournalHandler]
        start_logging("info", LogFormat.AUTO, {})
        assert [type(handler) for handler in logging.getLogger().handlers] == [logging.StreamHandler]


def test_a_thread_says_whose_line_it_works_for() -> None:
    record = logging.LogRecord("edge_app.line", logging.INFO, "line.py", 1, "mode %s", ("RUNNING",), None)
    told: list[tuple[str, str | None]] = []

    def work() -> None:
        told.append((TEXT.format(record), fields_of(record).get("LINE")))

    with threads.working_for("l1/st2"):
        thread = threads.daemon(work, "camera")
    thread.start()
    thread.join()
    work()
    assert [(text[8:], line) for text, line in told] == [
        (" INFO    l1/st2: mode RUNNING", "l1/st2"),
        (" INFO    mode RUNNING", None),
    ]
