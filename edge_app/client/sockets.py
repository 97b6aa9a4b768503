"""The two sockets of a client, with the options that protocol v1 asks of both sides."""

from __future__ import annotations

import re
from typing import Any

import zmq

from edge_app.client.access import Keys

RCVHWM = 1000
"""As the node's own bound for one subscriber: who is further behind asks for a replay."""


def check_endpoint(endpoint: str) -> None:
    """Raises ValueError unless it is one that can be connected to."""
    tcp = re.fullmatch(r"tcp://(\[[0-9A-Fa-f:.%\w]+\]|[^\s:/]+):(\d{1,5})", endpoint)
    if not (tcp and 0 < int(tcp[2]) < 65536) and not re.fullmatch(r"ipc://\S+", endpoint):
        raise ValueError(f"not an endpoint: wanted tcp://HOST:PORT, e.g. tcp://127.0.0.1:5560, got {endpoint!a}")


def port_after(publish: str) -> str | None:
    """Where a node that publishes there takes commands, unless it is told otherwise; None: not by TCP, not known."""
    head, _, port = publish.rpartition(":")
    return f"{head}:{int(port) + 1}" if publish.startswith("tcp://") and port.isdecimal() else None


def open_sub(context: zmq.Context[Any], endpoint: str, node: str | None, keys: Keys | None) -> Any:
    """A SUB for one node's messages, or all that come if the node is not known yet."""
    sub = context.socket(zmq.SUB)
    sub.set(zmq.RCVHWM, RCVHWM)
    _prepare(sub, endpoint, keys)
    for kind in ("result", "heartbeat", "state", "alarm"):
        sub.subscribe(f"v1/{kind}/{node}/" if node is not None else f"v1/{kind}/")
    sub.connect(endpoint)
    return sub


def open_dealer(context: zmq.Context[Any], endpoint: str, keys: Keys | None) -> Any:
    """A DEALER for commands. It queues nothing while there is no connection: what is not answered is asked again."""
    dealer = context.socket(zmq.DEALER)
    dealer.set(zmq.IMMEDIATE, 1)
    _prepare(dealer, endpoint, keys)
    dealer.connect(endpoint)
    return dealer


def _prepare(sock: Any, endpoint: str, keys: Keys | None) -> None:
    """No ZMTP heartbeats: libzmq 4.3 aborts a process that has them and stands still until its queue is full (its
    issues 4364 and 4767). Dead connections show by the node's own heartbeats, and by the kernel's keepalive."""
    sock.set(zmq.LINGER, 0)
    sock.set(zmq.IPV6, int("[" in endpoint))
    sock.set(zmq.HANDSHAKE_IVL, 3000)
    sock.set(zmq.TCP_KEEPALIVE, 1)
    sock.set(zmq.TCP_KEEPALIVE_IDLE, 2)
    sock.set(zmq.TCP_KEEPALIVE_INTVL, 1)
    sock.set(zmq.TCP_KEEPALIVE_CNT, 3)
    sock.set(zmq.TCP_MAXRT, 5000)
    sock.set(zmq.CONNECT_TIMEOUT, 2000)
    sock.set(zmq.RECONNECT_IVL, 100)
    sock.set(zmq.RECONNECT_IVL_MAX, 1000)
    if keys is not None:
        sock.curve_publickey = keys.own.public.encode()
        sock.curve_secretkey = (keys.own.secret or "").encode()
        sock.curve_serverkey = keys.node_public.encode()
