"""The wire's test of itself at start-up: strangers are turned away, and a known key gets in."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

import zmq

from edge_app.errors import BusError
from edge_app.keys import KeyPair
from edge_app.results.monitor_event import read_event

TIMEOUT_S = 3.0
STRANGERS = 2
"""Connections to each socket that must be refused."""
_names = itertools.count()
REFUSED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_DISCONNECTED
)  # fmt: skip


def prove_locks(
    context: zmq.Context[Any], endpoints: Mapping[str, tuple[str, int]], node_public: str, own: KeyPair
) -> None:
    """Connects to each socket with a random key, without any, and with the node's own client key.

    Args:
        endpoints: by YAML key: where it is bound, and the kind of socket that connects to it.
        own: a pair that the gate knows.

    Raises:
        BusError: a stranger was let in, or the known key was not.
    """
    public, secret = (key.decode() for key in zmq.curve_keypair())
    for key, (endpoint, kind) in endpoints.items():
        where = f"results.{key} ({endpoint})"
        for who, pair, welcome in (
            ("a client with an unknown key", KeyPair("stranger", public, secret), False),
            ("a client without a key", None, False),
            ("the node's own key", own, True),
        ):
            if let_in(context, reachable(endpoint), kind, node_public, pair) is not welcome:
                raise BusError(
                    f"the wire's locks do not hold: {who} was {'not let in' if welcome else 'not refused'}",
                    where=where,
                    wanted="strangers refused, known keys let in",
                    remedy="this is a bug: report it; the node does not start like this",
                )


def let_in(
    context: zmq.Context[Any], endpoint: str, kind: int, node_public: str, pair: KeyPair | None
) -> bool | None:
    """Whether a handshake succeeds; None if that could not be told in time."""
    sock = context.socket(kind)
    sock.set(zmq.LINGER, 0)
    sock.set(zmq.RECONNECT_IVL, -1)
    sock.set(zmq.IPV6, int("[" in endpoint))
    if pair is not None:
        sock.curve_publickey, sock.curve_secretkey = pair.public.encode(), (pair.secret or "").encode()
        sock.curve_serverkey = node_public.encode()
    name = f"inproc://selftest-{next(_names)}"
    sock.monitor(name, zmq.EVENT_HANDSHAKE_SUCCEEDED | REFUSED)
    monitor = context.socket(zmq.PAIR)
    monitor.set(zmq.LINGER, 0)
    monitor.connect(name)
    try:
        sock.connect(endpoint)
        end = time.monotonic() + TIMEOUT_S
        while monitor.poll(max(0, int((end - time.monotonic()) * 1000))):
            event = read_event(monitor.recv_multipart())[0]
            return bool(event == zmq.EVENT_HANDSHAKE_SUCCEEDED)
        return None
    finally:
        sock.disable_monitor()
        monitor.close()
        sock.close()


def reachable(endpoint: str) -> str:
    """Where to connect to reach a bound endpoint from this machine."""
    for anywhere, here in (("tcp://0.0.0.0:", "tcp://127.0.0.1:"), ("tcp://[::]:", "tcp://[::1]:")):
        if endpoint.startswith(anywhere):
            return here + endpoint.removeprefix(anywhere)
    return endpoint
