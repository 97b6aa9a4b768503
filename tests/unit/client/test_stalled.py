"""A program that stood still while its connection was made anew reads on: libzmq must not end its process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import zmq
from wire_samples import until

RCVHWM = 1000
STALL_S = 1.5
"""Longer than the heartbeats' period was that ended it."""
WITH_LINE = """
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
WITH_ASYNC_LINE = """
import asyncio, sys
from edge_app.client import AsyncLine
async def main():
    async with AsyncLine(sys.argv[1], None) as line:
        while line.bad_messages == 0:
            await line.next(0.05)
        print("subscribed", flush=True)
        sys.stdin.readline()
        while line.bad_messages < int(sys.argv[2]):
            await line.next(0.05)
    print("read on", flush=True)
asyncio.run(main())
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
    try:
        pub.bind(endpoint)
    except zmq.ZMQError:
        pub.close()
        raise
    return pub


def rebound(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """A publisher at a place that libzmq lets go of a moment later."""
    made: list[zmq.Socket[bytes]] = []

    def binds() -> bool:
        try:
            made.append(publisher(context, endpoint))
        except zmq.ZMQError:
            return False
        return True

    until(binds)
    return made[0]


@pytest.mark.parametrize("code", [WITH_LINE, WITH_ASYNC_LINE], ids=["Line", "AsyncLine"])
def test_a_full_queue_outlives_a_new_connection(context: zmq.Context[zmq.Socket[bytes]], code: str) -> None:
    first = publisher(context, "tcp://127.0.0.1:*")
    endpoint = first.get_string(zmq.LAST_ENDPOINT)
    message = [b"v1/result/l1/st3/", b"x" * 4000]
    program = subprocess.Popen([sys.executable, "-c", code, endpoint, str(RCVHWM + 10)], stdin=subprocess.PIPE,
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
        time.sleep(STALL_S)
        second = rebound(context, endpoint)
        program.stdin.write("go on\n")  # type: ignore[union-attr]
        program.stdin.flush()  # type: ignore[union-attr]
        while program.poll() is None and not poller.poll(10):
            second.send_multipart(message)
        assert program.stdout.readline() == "read on\n", program.communicate()[1]
        assert program.wait(60) == 0
    finally:
        program.kill()
        program.communicate()
