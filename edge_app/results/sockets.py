"""The node's sockets: their options, their locks, and what their monitors tell."""

from __future__ import annotations

import errno
import itertools
import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field

import zmq

from edge_app import clock
from edge_app.errors import BusError
from edge_app.keys import KeyPair
from edge_app.results import wire
from edge_app.results.auth import ZAP_DOMAIN, Gate
from edge_app.results.monitor_event import read_event
from edge_app.results.refusals import WATCHED, Connections

PUB_SNDHWM = 1000
ROUTER_SNDHWM = 64
"""Replies that wait for one client; a batch of a replay is up to a megabyte."""
LINGER_MS = 200
DEAD_MS = 5000
"""A peer that acknowledges nothing for so long is gone."""
REBIND_PATIENCE_S = 2.0
_names = itertools.count()

Socket = zmq.Socket[bytes]


@dataclass
class Bound:
    """One socket that listens, and the monitor that tells who comes and goes."""

    endpoint: str
    socket: Socket
    monitor: Socket
    connections: Connections = field(default_factory=Connections)

    def newly_refused(self) -> int:
        """Takes in what the monitor tells; how many connections were refused since the last call."""
        now_us = clock.monotonic_us()
        while self.monitor.poll(0):
            event, value = read_event(self.monitor.recv_multipart())
            self.connections.event(event, value, now_us)
        return self.connections.newly_refused(now_us)

    def close(self) -> None:
        """What waits to be sent has LINGER_MS."""
        self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close(linger=LINGER_MS)


class Sockets:
    """PUB and ROUTER, either of which may be absent. Opened by one thread, then used by the bus thread alone.

    Args:
        publish, commands: endpoints.
        pair: the node's key pair; None: no encryption.
        gate: answers ZAP; with `pair` only.
    """

    def __init__(self, publish: str | None, commands: str | None, pair: KeyPair | None, gate: Gate | None) -> None:
        self._wanted = {"publish": (publish, zmq.PUB), "commands": (commands, zmq.ROUTER)}
        self._pair = pair
        self._gate = gate
        self._bound: dict[str, Bound] = {}
        self.context: zmq.Context[Socket] | None = None

    def open(self) -> None:
        """Binds: the gate first, so that no handshake ever finds it absent.

        Raises:
            BusError: a port is in use, or the address is not this machine's.
        """
        self.context = zmq.Context()  # one a process, made after any fork
        self.context.set(zmq.BLOCKY, 0)
        try:
            if self._gate is not None:
                self._gate.open(self.context)
            for key, (endpoint, kind) in self._wanted.items():
                if endpoint is not None:
                    self._bound[key] = self._bind(key, endpoint, kind)
        except BaseException:
            self.close()
            raise

    def reopen(self, keys: Collection[str] = ("publish", "commands")) -> None:
        """Ends every connection, and listens again at the same places. Clients come back by themselves, and replay.

        What waits on these sockets, in or out, is dropped.

        Raises:
            BusError: the port was taken meanwhile.
        """
        places = {key: bound.endpoint for key, bound in self._bound.items() if key in keys}
        for key in places:
            bound = self._bound.pop(key)
            bound.socket.unbind(bound.endpoint)  # ends its connections too, without linger
            bound.close()
        until_s = time.monotonic() + REBIND_PATIENCE_S
        for key, endpoint in places.items():
            while True:
                try:
                    self._bound[key] = self._bind(key, endpoint, self._wanted[key][1])
                    break
                except BusError:  # libzmq lets go of the port a moment later
                    if time.monotonic() > until_s:
                        raise
                    time.sleep(0.005)

    def close(self) -> None:
        """Closes all; what waits to be sent has LINGER_MS."""
        for bound in self._bound.values():
            bound.close()
        self._bound = {}
        if self._gate is not None:
            self._gate.close()
        if self.context is not None:
            self.context.term()  # waits for LINGER at most

    @property
    def endpoints(self) -> dict[str, str | None]:
        """Where each listens; with a port of `*`, the one that was given."""
        return {key: self._bound[key].endpoint if key in self._bound else None for key in self._wanted}

    @property
    def connected(self) -> dict[str, int]:
        """Peers that are connected to each socket, by what its monitor told last. From any thread."""
        return {key: bound.connections.established for key, bound in list(self._bound.items())}

    @property
    def pub(self) -> Socket | None:
        """Results, heartbeats, states, alarms."""
        return self._bound["publish"].socket if "publish" in self._bound else None

    @property
    def router(self) -> Socket | None:
        """Commands and replies."""
        return self._bound["commands"].socket if "commands" in self._bound else None

    def poller(self, wakeup_fd: int) -> zmq.Poller:
        """Waits for a wake-up, commands, handshakes and monitors."""
        poller = zmq.Poller()
        poller.register(wakeup_fd, zmq.POLLIN)
        for sock in (self.router, self.pub):  # PUB never has a message, but takes in subscriptions as it is looked at
            if sock is not None:
                poller.register(sock, zmq.POLLIN)
        if self._gate is not None and self._gate.socket is not None:
            poller.register(self._gate.socket, zmq.POLLIN)
        for bound in self._bound.values():
            poller.register(bound.monitor, zmq.POLLIN)
        return poller

    def newly_refused(self) -> int:
        """Connections that were refused since the last call."""
        return sum(bound.newly_refused() for bound in self._bound.values())

    def _bind(self, key: str, endpoint: str, kind: int) -> Bound:
        assert self.context is not None
        with ExitStack() as failed:  # a socket that is left open would keep the context from its end, for ever
            sock: Socket = self.context.socket(kind)
            failed.callback(sock.close, linger=0)
            self._set_options(sock, kind)
            self._lock(sock)
            name = f"inproc://monitor-{next(_names)}"
            sock.monitor(name, WATCHED)
            failed.callback(sock.disable_monitor)
            monitor: Socket = self.context.socket(zmq.PAIR)
            failed.callback(monitor.close, linger=0)
            monitor.connect(name)
            sock.set(zmq.IPV6, int("[" in endpoint))
            self._listen(sock, key, endpoint)
            failed.pop_all()
        return Bound(sock.get_string(zmq.LAST_ENDPOINT), sock, monitor)

    def _listen(self, sock: Socket, key: str, endpoint: str) -> None:
        try:
            sock.bind(endpoint)
        except zmq.ZMQError as error:
            in_use = error.errno == errno.EADDRINUSE
            raise BusError(
                "the port is in use" if in_use else "can't listen there",
                where=f"results.{key}",
                wanted="an address of this machine and a free port",
                got=f"{endpoint}: {error.strerror}",
                remedy="is another node running? stop it, or set another port" if in_use else "check the address",
            ) from error

    def _set_options(self, sock: Socket, kind: int) -> None:
        """Without ZMTP heartbeats and without a bound on what comes in, on purpose.

        libzmq 4.3 stops reading from a peer whose queue here is full. If that peer then goes, its heartbeat timer
        (and its answer to the peer's) aborts the process, `Assertion failed: !_io_error` (its issue 4364): whoever
        sends commands faster than they are served, and dies, would end the node. A queue without a bound is never
        full; who sends too much is cut off by the bus (FLOOD_US). Dead connections are the kernel's business.
        """
        sock.set(zmq.RCVHWM, 0)
        sock.set(zmq.HANDSHAKE_IVL, 3000)
        sock.set(zmq.TCP_KEEPALIVE, 1)
        sock.set(zmq.TCP_KEEPALIVE_IDLE, 2)
        sock.set(zmq.TCP_KEEPALIVE_INTVL, 1)
        sock.set(zmq.TCP_KEEPALIVE_CNT, 3)
        sock.set(zmq.TCP_MAXRT, DEAD_MS)
        sock.set(zmq.MAXMSGSIZE, wire.MAX_COMMAND_BYTES)
        if kind == zmq.ROUTER:
            sock.set(zmq.ROUTER_MANDATORY, 1)
            # Else a client that chose its own identity meets silence for ever, if its old connection is half-open
            # when it comes back.
            sock.set(zmq.ROUTER_HANDOVER, 1)
            sock.set(zmq.SNDHWM, ROUTER_SNDHWM)
        else:
            sock.set(zmq.SNDHWM, PUB_SNDHWM)

    def _lock(self, sock: Socket) -> None:
        """CURVE. ZAP_ENFORCE_DOMAIN: without it, libzmq lets an unknown key in while nobody answers ZAP."""
        if self._pair is None:
            return
        sock.curve_server = True
        sock.curve_secretkey = (self._pair.secret or "").encode()
        sock.set(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
        sock.set(zmq.ZAP_ENFORCE_DOMAIN, 1)
