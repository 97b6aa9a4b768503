"""The machine under the node misbehaves: the network is cut, the disk fills or goes read-only, the clock is set."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
import zmq
from nodes import NodeProcess
from wire_samples import identity, sealed, until

from edge_app.cli import main
from edge_app.client import Keys, Line, Position, Result, Start
from edge_app.config.results import Journal as JournalSection
from edge_app.keys import write_pair
from edge_app.results.auth import new_key_pair
from edge_app.results.journal import Journal
from edge_app.results.journal_file import SEQ_BITS, open_for_reading, read_runs
from edge_app.results.record import Record

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts and network namespaces")
needs_ip = pytest.mark.skipif(shutil.which("ip") is None, reason="needs iproute2")
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def take(line: Line, until_seq: int, seconds: float = 120) -> list[Result]:
    """Results up to a seq."""
    got: list[Result] = []
    end = time.monotonic() + seconds
    while not got or got[-1].seq < until_seq:
        assert time.monotonic() < end, f"only up to {[r.seq for r in got[-1:]]}"
        if (result := line.next(0.2)) is not None:
            got.append(result)
    return got


# -- network ----------------------------------------------------------------------------------------------------------

NODE_ADDRESS, HERE = "10.213.7.1", "10.213.7.2"


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network of its own for the node, joined to this one by a cable that can be pulled."""
    name = f"edge{os.getpid()}"
    try:
        run("ip", "netns", "add", name)
        run("ip", "link", "add", f"v{name}", "type", "veth", "peer", "name", "cable", "netns", name)
        run("ip", "addr", "add", f"{HERE}/30", "dev", f"v{name}")
        run("ip", "link", "set", f"v{name}", "up")
        run("ip", "-n", name, "addr", "add", f"{NODE_ADDRESS}/30", "dev", "cable")
        run("ip", "-n", name, "link", "set", "cable", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    yield name
    subprocess.run(["ip", "link", "del", f"v{name}"], check=False, capture_output=True)
    run("ip", "netns", "del", name)


@needs_root
@needs_ip
def test_a_cut_cable_is_a_fault_within_three_heartbeats_and_then_nothing_is_missing(
    namespace: str, tmp_path: Path
) -> None:
    node_pair, own = new_key_pair("node"), new_key_pair("plc")
    write_pair(tmp_path, node_pair)
    clients = tmp_path / "clients.toml"
    clients.write_text(f'[[client]]\nname = "plc"\npublic = "{own.public}"\nrole = "viewer"\n')
    results = {
        "journal": {"path": tmp_path / "results.db"},
        "security": {"key": tmp_path / "node.secret.toml", "clients": clients},
    }
    wrapper = ("ip", "netns", "exec", namespace)
    node = NodeProcess(results, rate=200, host=NODE_ADDRESS, wrapper=wrapper, arguments=["--not-simulated"])
    with node, node.line(start=Start.OLDEST, keys=Keys(own, node_pair.public)) as line:
        got = take(line, 200)
        run("ip", "-n", namespace, "link", "set", "cable", "down")  # no FIN, no RST: both ends are half-open
        while line.fault is None:
            if (result := line.next(0.1)) is not None:
                got.append(result)
        assert line.fault.startswith("no heartbeat for ")
        time.sleep(3)
        run("ip", "-n", namespace, "link", "set", "cable", "up")
        got += take(line, got[-1].seq + 1000)
        assert [r.seq for r in got] == list(range(1, got[-1].seq + 1))
        assert line.lost == 0
        assert "replayed" in {str(r.delivery) for r in got[200:]}
        until(lambda: line.next(0.05) is None or line.fault is None)


# -- disk -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mounts a disk of so many MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def mount(mib: int) -> Path:
        run("mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(disk))
        return disk

    yield mount
    subprocess.run(["umount", "-l", str(disk)], check=False, capture_output=True)


def status_of(line: Line) -> dict[str, object]:
    return dict(line.command("status"))


def fifty_results(disk: Path) -> str:
    """A run that is on the disk, and over; its epoch."""
    with NodeProcess({"journal": {"path": disk / "results.db"}}, rate=100, count=50) as node, node.line() as line:
        until(lambda: status_of(line)["durable_seq"] == 50)
        return node.epoch


def replayed(line: Line, epoch: str) -> list[int]:
    return [result["seq"] for result in line.command("replay", epoch=epoch, after_seq=0)["results"]]


@needs_root
def test_a_full_disk_stops_no_result_and_what_waited_is_written_when_there_is_room(
    small_disk: Callable[[int], Path],
) -> None:
    disk = small_disk(3)
    earlier = fifty_results(disk)
    ballast = disk / "ballast"
    ballast.write_bytes(b"x" * 2 * 1024 * 1024)
    with NodeProcess({"journal": {"path": disk / "results.db"}}, rate=400) as node, node.line() as line:
        until(lambda: status_of(line)["journal"] is False)
        assert replayed(line, earlier) == list(range(1, 51)), "what is on a full disk can be read"
        status = status_of(line)
        assert [a["alarm"] for a in status["alarms"]] == ["JOURNAL_FAILED"]  # type: ignore[attr-defined]
        assert "full" in status["alarms"][0]["text"]  # type: ignore[index]
        while (result := line.next(60)) is None or "journal_off" not in result.data["degraded"]:
            assert result is not None, "results go on"
        ballast.unlink()
        until(lambda: status_of(line)["journal"] is True)
        reached = result.seq
        until(lambda: status_of(line)["durable_seq"] >= reached)  # type: ignore[operator]
        status = status_of(line)
        assert status["alarms"] == []
        assert status["disk"]["journal_lost"] == 0  # type: ignore[index]
        with node.line(start=Position(node.epoch, 0)) as books:
            assert [r.seq for r in take(books, reached)] == list(range(1, reached + 1))
        assert node.stop() == 0
    assert main(["journal", "verify", str(disk / "results.db")]) == 0


@needs_root
def test_a_run_that_ends_on_a_full_disk_has_not_ended_cleanly(
    small_disk: Callable[[int], Path], caplog: pytest.LogCaptureFixture
) -> None:
    disk, told, who = small_disk(3), dict[str, bool](), identity()
    section = JournalSection(path=disk / "results.db")
    journal = Journal(section, who, lambda name, active, _text, _do: told.update({name: active}), lambda: None)
    journal.start()
    ballast = disk / "ballast"
    ballast.write_bytes(b"x" * (shutil.disk_usage(disk).free - 20_000))
    for seq in range(1, 301):
        journal.put(Record(sealed(seq), who, None, (), None))
    until(lambda: told.get("JOURNAL_FAILED"))
    journal.close(60)
    ballast.unlink()
    assert "300 results are not in" in caplog.text
    with closing(open_for_reading(disk / "results.db")) as connection:
        assert [run.ended_us for run in read_runs(connection)] == [None]


@needs_root
def test_a_start_on_a_full_disk_begins_its_run_when_there_is_room(small_disk: Callable[[int], Path]) -> None:
    """The results were written without their run, and then the file was called moved."""
    disk = small_disk(3)
    file, ballast = disk / "results.db", disk / "ballast"
    node = NodeProcess({"journal": {"path": file}}, rate=100)
    with node, node.line() as line:
        earlier = node.epoch
        until(lambda: status_of(line)["durable_seq"] >= 50)  # type: ignore[operator]
        node.kill()  # its -wal and -shm stay, so that the file can be opened though the disk is full
    ballast.write_bytes(b"x" * shutil.disk_usage(disk).free)
    with node, node.line() as line:
        until(lambda: status_of(line)["journal"] is False)
        first = line.next(60)
        assert first is not None
        assert replayed(line, earlier)[:50] == list(range(1, 51))
        ballast.unlink()
        until(lambda: status_of(line)["durable_seq"] >= first.seq)  # type: ignore[operator]
        until(lambda: status_of(line)["alarms"] == [])
    with closing(open_for_reading(file)) as connection:
        assert [run.epoch for run in read_runs(connection)] == [earlier, node.epoch]
        assert connection.execute(f"SELECT DISTINCT id >> {SEQ_BITS} FROM result").fetchall() == [(1,), (2,)]
    assert main(["journal", "verify", str(file)]) == 0


@needs_root
def test_a_full_disk_drops_pictures_before_results(small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(8)
    results = {
        "journal": {"path": disk / "results.db"},
        "evidence": {"path": disk / "evidence", "free_mib": 4, "pass_every": 1, "quality": 100},
    }
    with NodeProcess(results, rate=300, count=3000) as node, node.line(start=Start.OLDEST) as line:
        got = take(line, 3000)
        until(lambda: status_of(line)["durable_seq"] == 3000)
        status = status_of(line)
        free = status["disk"]["free_bytes"]  # type: ignore[index]
        assert status["journal"] is True
        assert status["disk"]["journal_lost"] == 0  # type: ignore[index]
        assert [r.seq for r in got] == list(range(1, 3001))
        kept = sum(file.stat().st_size for file in (disk / "evidence").glob("*/*.jpg"))
        assert kept < 4 * 1024 * 1024
        assert free > 0


@needs_root
@pytest.mark.parametrize(
    ("when", "free_mib"), [("while it runs", 1), ("while it runs", 0), ("before it starts again", 1)]
)
def test_on_a_disk_that_others_fill_pictures_make_room_for_results(
    small_disk: Callable[[int], Path], when: str, free_mib: int
) -> None:
    """Which picture is the oldest is told by an index, and a full disk takes no change of that either."""
    disk = small_disk(24)
    evidence, ballast = disk / "evidence", disk / "ballast"
    for number in range(60):
        picture = number.to_bytes() * 200_000
        name = hashlib.sha256(picture).hexdigest()
        (evidence / name[:2]).mkdir(parents=True, exist_ok=True)
        (evidence / name[:2] / f"{name}.jpg").write_bytes(picture)
        os.utime(evidence / name[:2] / f"{name}.jpg", (number, number))
    pictures = {"path": evidence, "free_mib": free_mib, "pass_every": 1}
    results = {"journal": {"path": disk / "results.db"}, "evidence": pictures}
    node = NodeProcess(results, rate=100)
    with node, node.line() as line:
        until(lambda: status_of(line)["disk"]["evidence_bytes"] > 12_000_000)  # type: ignore[index]
        if when == "before it starts again":
            node.kill()
        with ballast.open("wb") as stream, contextlib.suppress(OSError):
            while True:
                os.write(stream.fileno(), bytes(4096))
        if when == "before it starts again":
            node.start()
        reached = line.command("status")["last_seq"]
        until(lambda: status_of(line)["durable_seq"] > reached)  # type: ignore[operator]
        until(lambda: status_of(line)["alarms"] == [])
        assert status_of(line)["disk"]["journal_lost"] == 0  # type: ignore[index]
    kept = sorted(int(file.stat().st_mtime) for file in evidence.glob("*/*.jpg") if file.stat().st_mtime < 60)
    assert kept[-10:] == list(range(50, 60)), "the oldest went"


@needs_root
def test_a_node_starts_on_a_read_only_disk(small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(8)
    earlier = fifty_results(disk)
    run("mount", "-o", "remount,ro", str(disk))
    with NodeProcess({"journal": {"path": disk / "results.db"}}, rate=100) as node, node.line() as line:
        status = status_of(line)
        assert status["journal"] is False
        assert replayed(line, earlier) == list(range(1, 51))
        assert str(disk) in status["alarms"][0]["text"]  # type: ignore[index]
        first = line.next(60)
        assert first is not None
        assert "journal_off" in first.data["degraded"]
        run("mount", "-o", "remount,rw", str(disk))
        until(lambda: status_of(line)["journal"] is True)
        assert status_of(line)["alarms"] == []


# -- clock ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(FAKETIME is None, reason="needs libfaketime")
@pytest.mark.parametrize("step", ["+3600", "-3600"])
def test_a_clock_that_is_set_by_an_hour_breaks_nothing(tmp_path: Path, step: str) -> None:
    wanted_time = tmp_path / "faketime"
    wanted_time.write_text("+0")
    environment = {
        **os.environ, "LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(wanted_time),
        "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip
    file = tmp_path / "results.db"
    with NodeProcess({"journal": {"path": file, "keep_days": 0.01}}, rate=100, environment=environment) as node:
        with node.line(start=Start.OLDEST) as line:
            got = take(line, 150)
            wanted_time.write_text(step)
            got += take(line, 500)
            jumps_s = [(b.t_done_us - a.t_done_us) / 1e6 for a, b in pairwise(got)]
            assert abs(max(jumps_s, key=abs) - int(step)) < 60, "the clock was set"
            assert [r.seq for r in got] == list(range(1, got[-1].seq + 1))
            assert line.lost == 0
            until(lambda: is_live(line))  # heartbeats keep their second, and the age is told by the clock as it is now
            until(lambda: line.command("status")["durable_seq"] >= 500)
            assert line.command("status")["oldest_seq"] == 1, "a clock that is set deletes nothing"
        assert node.stop() == 0
    assert main(["journal", "verify", str(file)]) == 0


def is_live(line: Line) -> bool:
    result = line.next(1)
    return line.fault is None and result is not None and result.delivery == "live"


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(linger=0)


def test_two_nodes_of_one_name_are_a_fault_and_nothing_of_them_is_live(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    """Through a forwarder, as plants join their stations: both speak on the same topics."""
    inlet, outlet = context.socket(zmq.XSUB), context.socket(zmq.XPUB)
    port = outlet.bind_to_random_port("tcp://127.0.0.1")
    with NodeProcess(rate=50) as first, Line(f"tcp://127.0.0.1:{port}", first.commands) as line:
        inlet.connect(first.publish)
        poller = zmq.Poller()
        for sock in (inlet, outlet):
            poller.register(sock, zmq.POLLIN)

        def forward(seconds: float) -> list[Result]:
            got, end = [], time.monotonic() + seconds
            while time.monotonic() < end:
                for sock, _ in poller.poll(5):
                    other = outlet if sock is inlet else inlet
                    other.send_multipart(sock.recv_multipart())
                if (result := line.next(0)) is not None:
                    got.append(result)
            return got

        until(lambda: "live" in {str(r.delivery) for r in forward(0.5)})
        with NodeProcess(rate=50) as twin:
            inlet.connect(twin.publish)
            until(lambda: forward(0.5) is not None and line.fault == "two nodes have the same name")
            assert "live" not in {str(r.delivery) for r in forward(1)}


def test_a_second_node_on_the_same_journal_or_port_does_not_start(tmp_path: Path) -> None:
    results = {"journal": {"path": tmp_path / "results.db"}}
    with NodeProcess(results) as first:
        with pytest.raises(RuntimeError, match="another node writes to this journal"):
            NodeProcess(results).start()
        twin = NodeProcess()
        twin._command = [json.dumps({"publish": first.publish, "commands": None}) if c.startswith("{") else c
                         for c in twin._command]  # fmt: skip
        with pytest.raises(RuntimeError, match="the port is in use"):
            twin.start()


def test_two_nodes_never_keep_pictures_in_one_folder(tmp_path: Path) -> None:
    """Each deleted the other's oldest for its own quota, and at its start what the other was writing."""
    evidence = {"path": tmp_path / "evidence", "free_mib": 0}
    with NodeProcess({"evidence": evidence}) as first:
        with pytest.raises(RuntimeError, match="another node keeps its pictures in this folder") as refused:
            NodeProcess({"journal": {"path": tmp_path / "second.db"}, "evidence": evidence}).start()
        assert f"pid {first.pid} (" in str(refused.value)
        first.kill()
        first.start()  # a lock that outlived its holder would keep the line down
