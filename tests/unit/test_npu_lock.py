"""The lock on the NPU by real processes: whatever stands at its place, and whatever becomes of it while it is held."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HOLDER = """\
import sys
from pathlib import Path
from edge_app.npu_lock import hold_npu, keep_npu
hold_npu(Path(sys.argv[1]))
print("held", flush=True)
for _ in sys.stdin:
    keep_npu()
    print("kept", flush=True)
"""
PATIENCE_S = 60.0


@contextmanager
def holder(file: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the NPU, or has ended because another one has it; each line to it makes it look again."""
    command = [sys.executable, "-c", HOLDER, str(file)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def said(process: subprocess.Popen[str], look_again: bool = False) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    if look_again:
        process.stdin.write("\n")
        process.stdin.flush()
    return process.stdout.readline().strip()


def refused(file: Path) -> bool:
    """Whether a second process is; it must not hang."""
    command = [sys.executable, "-c", HOLDER, str(file)]
    ended = subprocess.run(command, input="", capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    return ended.returncode != 0 and "another process uses the NPU" in ended.stderr


def place(file: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()


@pytest.mark.parametrize("kind", ["nothing", "pipe", "folder"])
def test_whatever_stands_at_its_place_one_process_has_it(tmp_path: Path, kind: str) -> None:
    """A pipe held up the start for ever: it was opened, and waited for somebody to write."""
    file = tmp_path / "npu.lock"
    place(file, kind)
    with holder(file) as first:
        assert said(first) == "held"
        assert refused(file)
    assert not refused(file)


@pytest.mark.parametrize("instead", ["nothing", "pipe", "folder"])
def test_a_file_that_is_taken_away_while_it_is_held_is_made_again(tmp_path: Path, instead: str) -> None:
    file = tmp_path / "npu.lock"
    with holder(file) as first:
        assert said(first) == "held"
        file.unlink()
        place(file, instead)
        assert said(first, look_again=True) == "kept"
        assert refused(file)


def test_one_that_another_process_got_meanwhile_is_told_once(tmp_path: Path) -> None:
    file = tmp_path / "npu.lock"
    with holder(file) as first:
        assert said(first) == "held"
        file.unlink()
        with holder(file) as second:
            assert said(second) == "held"
            for _ in range(3):
                assert said(first, look_again=True) == "kept"
            first.kill()
            assert first.stderr is not None
            told = first.stderr.read()
            assert told.count("nothing keeps other processes from the NPU any more") == 1, told
            assert f"pid {second.pid} (" in told
