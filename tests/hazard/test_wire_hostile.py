"""Ten thousand hostile frames on both sockets, with and without keys: refused, counted, told, and the line runs on."""

from __future__ import annotations

import json
import random
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from nodes import NodeProcess
from wire_samples import until

from edge_app.client import CommandRefused, Keys, Line
from edge_app.keys import KeyPair, write_pair
from edge_app.results.auth import new_key_pair
from edge_app.results.commands import COMMANDS

RATE = 200
BATCH, BATCHES, RANDOM = 50, 20, 4
"""Hypothesis makes BATCH * BATCHES commands for each node; RANDOM cheaper ones go with each: 5,000. As many to PUB."""
FRAMES = BATCH * BATCHES * (RANDOM + 1)


class Station:
    """A node process, a healthy subscriber's keys, and an attacker's."""

    def __init__(self, folder: Path, *, keys: bool) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        results: dict[str, Any] = {"journal": {"path": folder / "results.db"}}
        self.good: Keys | None = None
        self.viewer: Keys | None = None
        self.node_public = new_key_pair("nobody").public
        if keys:
            node, good, viewer = (new_key_pair(name) for name in ("node", "good", "viewer"))
            write_pair(folder, node)
            clients = folder / "clients.toml"
            clients.write_text("".join(
                f'[[client]]\nname = "{p.name}"\npublic = "{p.public}"\nrole = "{role}"\n'
                for p, role in ((good, "engineer"), (viewer, "viewer"))
            ))  # fmt: skip
            results["security"] = {"key": folder / "node.secret.toml", "clients": clients}
            self.node_public = node.public
            self.good, self.viewer = Keys(good, node.public), Keys(viewer, node.public)
        self.node = NodeProcess(results, rate=RATE).start()

    def socket(self, kind: int, endpoint: str, keys: Keys | None) -> zmq.Socket[bytes]:
        sock = self.context.socket(kind)
        sock.set(zmq.LINGER, 0)
        sock.set(zmq.SNDTIMEO, 60_000)
        if keys is not None:
            sock.curve_publickey, sock.curve_secretkey = keys.own.public.encode(), (keys.own.secret or "").encode()
            sock.curve_serverkey = keys.node_public.encode()
        sock.connect(endpoint)
        return sock

    def line(self) -> Line:
        return self.node.line(keys=self.good)

    def close(self) -> None:
        self.context.destroy(linger=0)
        self.node.stop()


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "keys"])
def station(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    made = Station(tmp_path_factory.mktemp("hostile"), keys=request.param)
    yield made
    made.close()


@pytest.fixture
def witness(station: Station) -> Iterator[Line]:
    """A healthy subscriber: before and after, it is given every result in order."""
    with station.line() as line:
        until(lambda: line.next(0.05) is not None)
        yield line
        got = [line.next(60) for _ in range(RATE // 2)]
        seqs = [result.seq for result in got if result is not None]
        assert seqs == list(range(seqs[0], seqs[0] + RATE // 2)), "the line keeps running"
        assert line.command("status")["mode"] == "RUNNING"
        assert line.lost == 0


def hostile_json() -> st.SearchStrategy[bytes]:
    """Requests that are almost right: a real command with fields of any kind."""
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=5,
    )
    names = sorted({name for command in COMMANDS.values() for name in command.arguments} | {"v", "mode"})
    return st.builds(
        lambda name, request, fields: json.dumps({**fields, "command": name, "request_id": request}).encode(),
        # Not the commands by which a controller may rightly stop the line: they would only be obeyed.
        st.sampled_from(sorted(set(COMMANDS) - {"stop", "hold"})) | st.text(max_size=20) | anything,
        st.text(max_size=20) | anything,
        st.dictionaries(st.sampled_from(names), anything, max_size=4),
    )


HOSTILE = st.lists(st.binary(max_size=300) | hostile_json(), min_size=BATCH, max_size=BATCH)


@settings(max_examples=BATCHES, deadline=None, phases=[Phase.generate], database=None,
          suppress_health_check=list(HealthCheck))  # fmt: skip
@given(frames=HOSTILE, seed=st.integers(0, 2**32))
def attack_router(station: Station, sock: zmq.Socket[bytes], frames: list[bytes], seed: int) -> None:
    chance = random.Random(seed)
    for frame in frames:
        parts = [frame] if chance.random() < 0.9 else [frame, b"", chance.randbytes(30)]
        sock.send_multipart(parts)
        for _ in range(RANDOM):
            sock.send(chance.choice([random_bytes, spoilt_request])(chance))
        take_replies(sock, 1 + RANDOM)


def random_bytes(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice([0, 1, 9, 200, 3000]))


def spoilt_request(chance: random.Random) -> bytes:
    """A good request with a few bytes changed, cut out or doubled."""
    name = chance.choice(["hello", "status", "replay", "announce", "trigger", "image", "ack_alarm", "epochs"])
    fields = {"epoch": "ab", "after_seq": 1, "trigger_id": 7, "part_id": "A", "id": "ab/1", "alarm": "X"}
    frame = bytearray(json.dumps({"v": 1, "command": name, "request_id": "r", **fields}).encode())
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(frame))
        frame[at : at + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
    return bytes(frame)


def take_replies(sock: zmq.Socket[bytes], count: int) -> None:
    for _ in range(count):
        assert sock.poll(60_000), "every frame is answered"
        reply = json.loads(sock.recv_multipart()[0])
        assert reply["ok"] is True or (reply["code"].isupper() and reply["message"].isprintable())


def test_hostile_commands_are_refused_counted_and_told(station: Station, witness: Line) -> None:
    sock = station.socket(zmq.DEALER, station.node.commands, station.viewer)
    attack_router(station, sock)
    sock.close()
    status = witness.command("status")
    assert status["wire"]["commands_refused"] > FRAMES / 2
    assert "COMMANDS_REFUSED" in [alarm["alarm"] for alarm in status["alarms"]]


def test_hostile_subscriptions_harm_nobody(station: Station, witness: Line) -> None:
    """XSUB sends raw frames upstream: subscriptions to nonsense, and messages that are none."""
    chance = random.Random(7)
    sock = station.socket(zmq.XSUB, station.node.publish, station.viewer)
    for _ in range(FRAMES):
        topic = chance.choice([b"", b"v1/", b"v1/result/l1/st3/", chance.randbytes(chance.randint(1, 200))])
        sock.send(chance.choice([b"\x01", b"\x00", b"", chance.randbytes(1)]) + topic)
    assert sock.poll(60_000), "one of them was a subscription"
    sock.close()


def test_a_frame_over_the_limit_ends_only_its_own_connection(station: Station, witness: Line) -> None:
    for kind, endpoint in ((zmq.DEALER, station.node.commands), (zmq.XSUB, station.node.publish)):
        sock = station.socket(kind, endpoint, station.viewer)
        sock.send(b"\x01" + b"x" * (64 * 1024 + 1))
        assert sock.poll(300) == 0
        sock.close()


def test_bytes_that_are_no_zmtp_are_turned_away(station: Station, witness: Line) -> None:
    chance = random.Random(3)
    before = witness.command("status")["wire"]["connections_refused"]
    greeting = b"\xff" + b"\0" * 8 + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" * 32
    for n in range(200):
        endpoint = station.node.publish if n % 2 else station.node.commands
        host, port = re.fullmatch(r"tcp://(.+):(\d+)", endpoint).groups()  # type: ignore[union-attr]
        with socket.create_connection((host, int(port)), timeout=5) as raw:
            raw.sendall(chance.choice([
                chance.randbytes(200),
                b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                greeting + chance.randbytes(100),
                greeting + b"\x06" + struct.pack(">Q", 2**62) + b"x" * 50,
            ]))  # fmt: skip
            if chance.random() < 0.3:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    until(lambda: witness.command("status")["wire"]["connections_refused"] - before >= 100)
    assert "CONNECTIONS_REFUSED" in [alarm["alarm"] for alarm in witness.command("status")["alarms"]]


def test_who_has_no_right_key_gets_nothing(station: Station, witness: Line) -> None:
    if station.good is None:
        pytest.skip("this node has no keys")
    before = witness.command("status")["wire"]["connections_refused"]
    stranger = new_key_pair("stranger")
    mixed = KeyPair("x", station.good.own.public, stranger.secret)
    tries: list[Keys | None] = [None, Keys(stranger, station.node_public), Keys(station.good.own, stranger.public),
                                Keys(mixed, station.node_public)]  # fmt: skip
    for keys in tries * 3:
        for kind, endpoint in ((zmq.SUB, station.node.publish), (zmq.DEALER, station.node.commands)):
            sock = station.socket(kind, endpoint, keys)
            if kind == zmq.SUB:
                sock.subscribe(b"")
            else:
                sock.send(b'{"command":"hello","request_id":"1"}')
            assert sock.poll(100) == 0
            sock.close()
    until(lambda: witness.command("status")["wire"]["connections_refused"] - before >= 12)


def test_a_viewer_commands_nothing(station: Station, witness: Line) -> None:
    if station.viewer is None:
        pytest.skip("this node has no keys")
    before = witness.command("status")["wire"]["commands_refused"]
    with station.node.line(keys=station.viewer) as viewer:
        for command in ("stop", "hold", "start", "self_test"):
            with pytest.raises(CommandRefused) as caught:
                viewer.command(command)
            assert caught.value.code == "FORBIDDEN"
    assert witness.command("status")["wire"]["commands_refused"] == before + 4


FLOOD = """
import os, sys, zmq
sock = zmq.Context().socket(zmq.DEALER)
sock.set(zmq.SNDHWM, 0)
public, secret, server = sys.argv[2:]
if server:
    sock.curve_publickey, sock.curve_secretkey, sock.curve_serverkey = public.encode(), secret.encode(), server.encode()
sock.connect(sys.argv[1])
for number in range(60000):
    sock.send(b'{"command":"hello","request_id":"%d"}' % number)
assert sock.poll(60000)
os.kill(os.getpid(), 9)
"""


def test_who_floods_and_dies_takes_nobody_along(station: Station, witness: Line) -> None:
    """A queue that is full when its connection ends made libzmq abort the node; see results/sockets.py."""
    keys = ("", "", "")
    if station.viewer is not None:
        keys = (station.viewer.own.public, str(station.viewer.own.secret), station.viewer.node_public)
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", FLOOD, station.node.commands, *keys], check=False, timeout=120)
        assert done.returncode == -9
    resident_kib = int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{station.node.pid}/status").read_text())[1])  # type: ignore[index]
    assert resident_kib < 400 * 1024


def test_nothing_hostile_reached_the_log_raw(station: Station, witness: Line) -> None:
    """Comes last: whatever was sent, the log is printable, and short."""
    log = station.node.log()
    assert [c for c in log if not (c.isprintable() or c == "\n")] == []
    assert log.isascii()
    assert "Traceback" not in log
    assert len(log) < 200_000
