"""A program that stood still while its connection was made anew reads on: libzmq must not end its process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import zmq

RCVHWM = 1000
PROGRAM = """
import sys
from edge_app.client import Line
with Line(sys.argv[1], None) as line:
    while line.bad_messages == 0:
        line.next(0.05)
    print("subscribed", flush=True)
    sys.stdin.readline()
    while line.bad_messages < int(sys.argv[2]):
        line.next(0.05)
print("read on", flush=True)
"""


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(linger=0)


def publisher(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    pub = context.socket(zmq.PUB)
    pub.set(zmq.SNDHWM, 0)
    pub.set(zmq.LINGER, 0)
    pub.bind(endpoint)
    return pub


def test_a_full_queue_outlives_a_new_connection(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    first = publisher(context, "tcp://127.0.0.1:*")
    endpoint = first.get_string(zmq.LAST_ENDPOINT)
    message = [b"v1/result/l1/st3/", b"x" * 4000]
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, endpoint, str(RCVHWM + 10)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        assert program.stdout is not None
        subscribed: list[str] = []
        poller = zmq.Poller()
        poller.register(program.stdout, zmq.POLLIN)
        while not subscribed:
            first.send_multipart(message)
            if poller.poll(10):
                subscribed.append(program.stdout.readline())
        assert subscribed == ["subscribed\n"]
        for _ in range(20 * RCVHWM):
            first.send_multipart(message)
        first.unbind(endpoint)
        first.close()
        second = publisher(context, endpoint)
        monitor = second.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        assert monitor.poll(60_000), "the program's sockets are connected again"
        program.stdin.write("go on\n")  # type: ignore[union-attr]
        program.stdin.flush()  # type: ignore[union-attr]
        while program.poll() is None and not poller.poll(10):
            second.send_multipart(message)
        assert program.stdout.readline() == "read on\n", program.communicate()[1]
        assert program.wait(60) == 0
    finally:
        program.kill()
        program.communicate()
