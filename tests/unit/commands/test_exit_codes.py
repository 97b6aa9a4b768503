"""What the exit code says of a command that did not come to its end: never 0, and never what a gate says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import toys

from edge_app.cli import main
from edge_app.commands import check, run_pipeline, watch
from edge_app.commands.report import print_table
from edge_app.errors import ExitCode


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (BrokenPipeError(), 141), (KeyError("a bug"), 70), (OSError(5), 70)]
)
def test_a_command_that_did_not_end_is_not_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    def run(_args: object) -> int:
        raise error

    monkeypatch.setattr(check, "run", run)
    assert main(["check", "p.yaml"]) == code
    assert ("Traceback" in capsys.readouterr().err) == (code == 70)


@pytest.mark.parametrize(
    "arguments", [["--pipeline", "FILE"], ["check", "FILE"], ["eval", "--model", "FILE", "--data", "x"]]
)
def test_a_file_that_the_system_refuses_is_no_bug(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """As root no folder is closed; a name that is too long is refused to all."""
    assert main([f"/{'x' * 300}" if word == "FILE" else word for word in arguments]) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert ("File name too long" in told, "Traceback" in told) == (True, False)


def test_a_full_disk_for_the_output_is_no_bug() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-P", "-m", "edge_app", "check", "--schema"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, "No space left" in done.stderr, "Traceback" in done.stderr) == (5, True, False)


NO_ROOM = """
import resource, sys, threading
from pathlib import Path
import numpy
from edge_app import cli
from edge_app.commands import check
from edge_app.runtime.ort import load, session_options

def run(args):
    WORK

check.run = run
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 2 * 2**20, resource.RLIM_INFINITY))
sys.exit(cli.main(["check", "FILE"]))
"""


@pytest.mark.parametrize(
    ("work", "told"),
    [
        ("[threading.Thread(target=threading.Event().wait, daemon=True).start() for _ in range(9)]", "new thread"),
        ("numpy.empty(2**24, numpy.uint8)", "MemoryError"),
        ("import cv2", "failed to map segment"),
        ("load(Path('model.onnx'), session_options(1))", "alloc"),
    ],
)
def test_no_memory_is_no_bug_and_no_fault_of_the_model(tmp_path: Path, work: str, told: str) -> None:
    """After the exit codes of a bad model or usage (4, 2) the service stays down for good."""
    model = toys.detector()
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2**23, np.float32), "large"))
    model.graph.node.append(onnx.helper.make_node("Identity", ["large"], ["unused"]))
    onnx.save(model, tmp_path / "model.onnx")
    command = [sys.executable, "-P", "-c", NO_ROOM.replace("WORK", work)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 5, done.stderr
    assert "the system gives no more memory, threads or file handles" in done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BrokenPipeError()])
def test_of_what_runs_until_it_is_stopped_it_is_the_clean_end(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def run(_args: object) -> int:
        raise error

    monkeypatch.setattr(watch, "run", run)
    monkeypatch.setattr(run_pipeline, "run", run)
    assert main(["watch"]) == 0
    assert main(["--pipeline", "p.yaml"]) == 0


def test_a_table_that_nobody_reads_is_a_broken_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", closefd=False) as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(BrokenPipeError):
            print_table("Summary", ("", ""), [("frames", 1)])
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # what is left in the buffer has somewhere to go


def test_output_that_nobody_reads_to_its_end_is_told() -> None:
    command = [sys.executable, "-P", "-m", "edge_app", "check", "--schema"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        told = process.stderr.read()
    assert (process.returncode, told) == (141, "")
