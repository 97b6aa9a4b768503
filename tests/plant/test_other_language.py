"""The subscriber in C that the README shows, against a real node: what it prints is every result, once and in order."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import NodeProcess

SOURCE = Path(__file__).with_name("subscriber.c")
HEADERS = ("zmq.h", "cjson/cJSON.h")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not all(Path("/usr/include", header).exists() for header in HEADERS):
        pytest.skip("needs a C compiler, libzmq3-dev and libcjson-dev")
    made = tmp_path_factory.mktemp("c") / "subscriber"
    subprocess.run(
        [compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", SOURCE, "-o", made, "-lzmq", "-lcjson"], check=True
    )
    return made


class Subscriber:
    """The program, running; what it printed so far."""

    def __init__(self, program: Path, node: NodeProcess, output: Path) -> None:
        topics = [f"v1/{kind}/l1/st3/" for kind in ("result", "heartbeat")]
        self._output = output
        with output.open("w") as stream:
            self.process = subprocess.Popen([program, node.publish, node.commands, *topics], stdout=stream)

    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    def results(self) -> list[tuple[str, int]]:
        """Of whole lines: the last one may be half written."""
        whole = self._output.read_text().rpartition("\n")[0].splitlines()
        return [(line.split()[0], int(line.split()[1])) for line in whole if not line.startswith("FAULT")]

    def wait(self, epoch: str, seq: int, seconds: float = 120) -> list[tuple[str, int]]:
        end = time.monotonic() + seconds
        while (epoch, seq) not in (found := self.results()):
            assert time.monotonic() < end, f"it came to {found[-1:]}"
            time.sleep(0.1)
        return found


@pytest.fixture
def subscriber(program: Path, tmp_path: Path) -> Iterator[list[Subscriber]]:
    running: list[Subscriber] = []
    yield running
    for each in running:
        each.process.kill()
        each.process.wait()


def test_the_source_is_forty_lines() -> None:
    assert len([line for line in SOURCE.read_text().splitlines() if not line.startswith("#include")]) == 40


def test_a_gap_is_replayed_and_a_restart_is_followed(
    program: Path, tmp_path: Path, subscriber: list[Subscriber]
) -> None:
    # Long results, so that what both sides queue is full while the program stands still.
    results = {"journal": {"path": tmp_path / "results.db"}}
    with NodeProcess(results, rate=500, arguments=["--detail", "8000"]) as node:
        c = Subscriber(program, node, tmp_path / "printed")
        subscriber.append(c)
        follow(node, c)


def follow(node: NodeProcess, c: Subscriber) -> None:
    first = node.epoch
    began = c.wait(first, 400)[0][1]
    c.process.send_signal(signal.SIGSTOP)
    time.sleep(6)
    c.process.send_signal(signal.SIGCONT)
    got = [seq for _, seq in c.wait(first, 4000)]
    assert got == list(range(began, got[-1] + 1)), "every result, once, in order"
    assert any(line.endswith(" replayed") for line in c.lines()), "there was a gap"
    node.kill()
    end = time.monotonic() + 60
    while "FAULT: three heartbeats missed, divert all" not in c.lines():
        assert time.monotonic() < end
        time.sleep(0.1)
    node.start()
    again = [seq for epoch, seq in c.wait(node.epoch, 300) if epoch == node.epoch]
    assert again == list(range(1, again[-1] + 1)), "the new run from its first result"
