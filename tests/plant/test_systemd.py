"""What systemd is told, and what it is given: the watchdog's contract with a real socket, and the unit itself."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import cv2
import pytest
import toys
from supervisor import Supervisor

from edge_app.service import ServiceManager

UNITS = Path(__file__).resolve().parents[2] / "systemd"
TROUBLED = Path(__file__).with_name("troubled_node.py")
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="needs systemd-analyze: apt-get install systemd")


@pytest.fixture
def folder(tmp_path: Path, toy_model: Path) -> Path:
    """A pipeline that runs for ever, as `line.yaml`."""
    (tmp_path / "pictures").mkdir()
    for number in range(4):
        cv2.imwrite(str(tmp_path / "pictures" / f"{number}.png"), toys.detector_picture([], seed=number))
    (tmp_path / "line.yaml").write_text(f"""\
camera: {{type: folder, path: pictures, loop: true, rate_fps: 30}}
model: {{path: {toy_model}}}
runtime: {{provider: cpu, threads: 1, timeout_ms: 500}}
limits: {{pacing: offline, slots: 1}}
results: {{publish: "tcp://127.0.0.1:*", commands: null}}
""")
    return tmp_path


def supervise(folder: Path, trouble: str, watchdog_s: float) -> Supervisor:
    command = [sys.executable, "-P", str(TROUBLED), trouble, "--pipeline", "line.yaml"]
    return Supervisor(command, folder, watchdog_s)


def test_a_line_that_goes_round_feeds_the_watchdog(folder: Path) -> None:
    with supervise(folder, "none", watchdog_s=8) as manager:
        manager.run_until(lambda: manager.words.count("WATCHDOG=1") >= 3)
        assert manager.ended == []
        assert "STATUS=inspecting as l1/st1" in manager.words
        assert manager.words.index("READY=1") < manager.words.index("WATCHDOG=1")
        assert manager.stop() == 0
        assert "STOPPING=1" in manager.words


@pytest.mark.parametrize(
    ("trouble", "what"), [("frame-loop", "the frame loop is stuck"), ("bus", "the bus is stuck"), ("lock", None)]
)
def test_what_is_stuck_is_started_again(folder: Path, trouble: str, what: str | None) -> None:
    with supervise(folder, trouble, watchdog_s=3) as manager:
        manager.run_until(lambda: "READY=1" in manager.words)
        (folder / "healed").touch()  # the next one will do
        manager.run_until(lambda: len(manager.ended) == 1)
        assert manager.ended[0].startswith("watchdog")
        if what is not None:
            assert f"STATUS={what}" in manager.ended[0]
        manager.run_until(lambda: manager.words.count("WATCHDOG=1") >= 2)
        log = manager.log()
        assert "Fatal Python error: Aborted" in log  # and every thread's stack, so that somebody can find out why
        assert len(re.findall(r"^Thread 0x", log, re.MULTILINE)) >= 5
        assert manager.stop() == 0


def test_a_slow_model_is_waited_for(folder: Path) -> None:
    with supervise(folder, "slow-load", watchdog_s=30) as manager:
        manager.run_until(lambda: "READY=1" in manager.words)
        assert manager.ended == []
        before = manager.words[: manager.words.index("READY=1")]
        assert before.count("EXTEND_TIMEOUT_USEC=3000000") >= 3  # it took longer than any one of them gives
        assert "WATCHDOG=1" not in before
        assert manager.stop() == 0


class TestEnvironment:
    """NOTIFY_SOCKET and the watchdog's variables, as sd_notify(3) has them."""

    def listen(self, address: str) -> socket.socket:
        heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        heard.bind(address)
        heard.settimeout(30)
        return heard

    def test_without_a_manager_nothing_happens(self) -> None:
        manager = ServiceManager.of({"WATCHDOG_USEC": "1000"})
        assert not manager.present
        with manager.starting():
            pass
        manager.ready(lambda: pytest.fail("nobody asks"), "running")
        manager.stopping()

    def test_an_abstract_socket(self) -> None:
        name = f"edge_app-test-{os.getpid()}"
        with self.listen(f"\0{name}") as heard:
            ServiceManager.of({"NOTIFY_SOCKET": f"@{name}"}).stopping()
            assert heard.recv(4096) == b"STOPPING=1\nSTATUS=stopping"

    @pytest.mark.parametrize(
        ("environment", "fed"),
        [
            ({"WATCHDOG_USEC": "40000"}, True),
            ({"WATCHDOG_USEC": "40000", "WATCHDOG_PID": str(os.getpid())}, True),
            ({"WATCHDOG_USEC": "40000", "WATCHDOG_PID": "1"}, False),
            ({}, False),
            ({"WATCHDOG_USEC": "0"}, False),
        ],
    )
    def test_the_watchdog_is_fed_if_it_is_ours(self, tmp_path: Path, environment: dict[str, str], fed: bool) -> None:
        with self.listen(str(tmp_path / "n")) as heard:
            manager = ServiceManager.of({"NOTIFY_SOCKET": str(tmp_path / "n"), **environment})
            manager.ready(lambda: None, "running")
            assert heard.recv(4096) == b"READY=1\nSTATUS=running"
            if fed:
                assert heard.recv(4096) == heard.recv(4096) == b"WATCHDOG=1"
            manager.stopping()
            while (word := heard.recv(4096)) == b"WATCHDOG=1":
                assert fed
            assert word.startswith(b"STOPPING=1")

    def test_trouble_is_told_once_and_so_is_its_end(self, tmp_path: Path) -> None:
        found = iter([None, "stuck", "stuck", None, None])
        with self.listen(str(tmp_path / "n")) as heard:
            manager = ServiceManager.of({"NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "20000"})
            manager.ready(lambda: next(found, None), "running")
            words = [heard.recv(4096).decode() for _ in range(5)]
            manager.stopping()
        assert words == ["READY=1\nSTATUS=running", "WATCHDOG=1", "STATUS=stuck", "WATCHDOG=1", "STATUS=running"]

    def test_another_status_is_told_once(self, tmp_path: Path) -> None:
        with self.listen(str(tmp_path / "n")) as heard:
            manager = ServiceManager.of({"NOTIFY_SOCKET": str(tmp_path / "n")})
            manager.ready(lambda: None, "inspecting as l1/a, l1/b")
            down = "inspecting as l1/a; l1/b is down"
            for status in ("inspecting as l1/a, l1/b", down, down):
                manager.tell(status)
            manager.stopping()
            words = [heard.recv(4096).decode() for _ in range(3)]
        assert words[1] == f"STATUS={down}"
        assert words[2].startswith("STOPPING=1")

    def test_a_manager_that_is_gone_ends_nothing(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        ServiceManager.of({"NOTIFY_SOCKET": str(tmp_path / "gone")}).stopping()
        assert "can't be told STOPPING=1" in caplog.text


@needs_systemd
class TestUnit:
    """The unit, as systemd reads it."""

    @pytest.fixture
    def unit(self, tmp_path: Path) -> Path:
        """The unit, for a program that is there."""
        text = (UNITS / "edge_app@.service").read_text()
        assert "ExecStart=/opt/edge_app/bin/edge_app --pipeline /etc/edge_app/%i\n" in text
        file = tmp_path / "edge_app@.service"
        file.write_text(text.replace("/opt/edge_app/bin/edge_app", "/bin/true"))
        return file

    def analyze(self, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
        assert ANALYZE is not None
        return subprocess.run([ANALYZE, *arguments], capture_output=True, text=True, check=False, cwd=folder)

    def test_systemd_understands_every_line(self, unit: Path) -> None:
        result = self.analyze("verify", f"./{unit.name}", folder=unit.parent)
        assert (result.returncode, result.stderr) == (0, "")

    def test_a_line_it_does_not_understand_would_be_seen(self, unit: Path) -> None:
        unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchDogSec="))
        result = self.analyze("verify", f"./{unit.name}", folder=unit.parent)
        assert re.search(r"Unknown key.* 'WatchDogSec'", result.stderr)

    def test_its_documentation_is_where_the_steps_put_it(self, unit: Path) -> None:
        told = re.search(r"^Documentation=file:/opt/edge_app/(\S+)$", unit.read_text(), re.MULTILINE)
        assert told is not None
        assert (UNITS.parent / told[1]).is_file()
        assert "sudo cp -r models pipelines systemd /opt/edge_app/" in (UNITS / "README.md").read_text()

    def test_keys_go_with_it(self, unit: Path) -> None:
        drop_in = unit.parent / f"{unit.name}.d"
        drop_in.mkdir()
        shutil.copy(UNITS / "keys.conf", drop_in)
        result = self.analyze("verify", f"./{unit.name}", folder=unit.parent)
        assert (result.returncode, result.stderr) == (0, "")

    def test_it_is_locked_up(self, unit: Path) -> None:
        """By systemd's count, in which 0.4 are of a clock that it may ask; that it can't set it takes no account of."""
        assert "CapabilityBoundingSet=\n" in unit.read_text()
        result = self.analyze("security", "--offline=yes", "--threshold=24", f"./{unit.name}", folder=unit.parent)
        assert result.returncode == 0, result.stdout
