"""Who may connect, and as what: clients.toml, and the ZAP handler that libzmq asks at every handshake."""

from __future__ import annotations

import logging
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
from zmq.utils import z85

from edge_app import clock
from edge_app.config.results import Security
from edge_app.errors import ConfigError
from edge_app.keys import KeyFileError, KeyPair, is_key, read_secret
from edge_app.results.commands import Code, RefusedError, Role

log = logging.getLogger(__name__)

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
LOG_EVERY_US = 1_000_000
ZAP_DOMAIN = b"edge_app"
EXAMPLE = '[[client]] with name = "plc-1", public = "<40 characters>", role = "viewer", "controller" or "engineer"'


def new_key_pair(name: str) -> KeyPair:
    """A fresh CURVE pair."""
    public, secret = (key.decode() for key in zmq.curve_keypair())
    return KeyPair(name, public, secret)


def is_pair(pair: KeyPair) -> bool:
    """Whether the public key is the secret one's."""
    return bool(zmq.curve_public((pair.secret or "").encode()).decode() == pair.public)


@dataclass(frozen=True, slots=True)
class Client:
    """One entry of clients.toml."""

    name: str
    public: str
    role: Role


LOCAL = Client("local", "", Role.ENGINEER)
"""Whoever is on this machine, where no keys are in use."""


def load_clients(file: Path) -> dict[str, Client]:
    """clients.toml, by public key.

    Raises:
        ConfigError: unreadable, others can write it, or an entry is wrong or doubled; says which.
    """
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError("can't read the list of clients", where=str(file), got=error.strerror) from error
    except (ValueError, RecursionError) as error:  # bad UTF-8 and endless numbers too
        raise ConfigError("not a TOML file", where=str(file), wanted=EXAMPLE, got=str(error)) from error
    if mode & 0o022:
        raise ConfigError(
            "others can write to the list of clients",
            where=str(file),
            got=f"mode {mode:04o}",
            remedy=f"chmod 644 {file}",
        )
    entries = data.get("client", [])
    if set(data) - {"client"} or not isinstance(entries, list):
        raise ConfigError("unknown keys in the list of clients", where=str(file), wanted=EXAMPLE, got=", ".join(data))
    clients: dict[str, Client] = {}
    for number, entry in enumerate(entries, 1):
        client = _client(entry, f"{file}: entry {number}")
        if client.public in clients or client.name in {known.name for known in clients.values()}:
            raise ConfigError("the same name or key stands twice", where=f"{file}: entry {number}", got=client.name)
        clients[client.public] = client
    return clients


def _client(entry: Any, where: str) -> Client:
    roles = {role.name.lower(): role for role in Role}
    if not isinstance(entry, Mapping) or set(entry) != {"name", "public", "role"}:
        got = ", ".join(map(str, entry)) if isinstance(entry, Mapping) else type(entry).__name__
        raise ConfigError("not an entry of a client", where=where, wanted=EXAMPLE, got=got)
    name, public, role = entry["name"], entry["public"], entry["role"]
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ConfigError("name: wanted printable text", where=where)
    if not is_key(public):
        raise ConfigError("public: not a key", where=where, wanted="40 characters, see `edge_app keys show`")
    if not isinstance(role, str) or role not in roles:
        raise ConfigError("role: unknown", where=where, wanted=", ".join(roles), got=str(role))
    return Client(name, public, roles[role])


class Gate:
    """Answers libzmq's ZAP requests on the bus thread, and tells the role of a peer.

    Args:
        clients: by public key.
        own_key: a public key that may connect, for the node's test of itself, and may do nothing.
    """

    def __init__(self, clients: Mapping[str, Client], own_key: str) -> None:
        self._clients = dict(clients)
        self._own_key = own_key
        self._untold = 0
        self._told_us = -LOG_EVERY_US
        self.testing = False
        """The strangers are the node's own; see selftest.py."""
        self.socket: zmq.Socket[bytes] | None = None

    def open(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        """Binds the ZAP endpoint; before any other socket is bound."""
        self.socket = context.socket(zmq.REP)
        self.socket.set(zmq.LINGER, 0)
        self.socket.bind(ZAP_ENDPOINT)

    def close(self) -> None:
        """Closes the ZAP endpoint: from here on, ZAP_ENFORCE_DOMAIN lets nobody in."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def replace(self, clients: Mapping[str, Client]) -> bool:
        """A new list of clients. True: a key was taken off it, so connections that stand must be ended."""
        taken_off = set(self._clients) - set(clients)
        self._clients = dict(clients)
        return bool(taken_off)

    def serve(self) -> None:
        """Answers all requests that wait (RFC 27). Anything but CURVE with a known key is refused."""
        while self.socket is not None:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            version, request_id, domain, address, _, mechanism, *credentials = frames
            public = _public_key(mechanism, credentials)
            known = public is not None and (public in self._clients or public == self._own_key)
            if known and domain == ZAP_DOMAIN and public is not None:
                answer = [version, request_id, b"200", b"OK", public.encode(), b""]
            else:
                if not self.testing:
                    self._tell(address)
                answer = [version, request_id, b"400", b"unknown key", b"", b""]
            self.socket.send_multipart(answer)

    def _tell(self, address: bytes) -> None:
        """Once a second at most: whoever knocks must not fill the log."""
        self._untold += 1
        now_us = clock.monotonic_us()
        if now_us - self._told_us >= LOG_EVERY_US:
            where = ascii(address.decode("ascii", "replace"))
            log.warning("refused %d clients with an unknown key, the last from %s", self._untold, where)
            self._untold, self._told_us = 0, now_us

    def client(self, user_id: str | None) -> Client:
        """The client behind a frame's User-Id.

        Raises:
            RefusedError: its key was taken off the list meanwhile.
        """
        client = self._clients.get(user_id or "")
        if client is None:
            raise RefusedError(Code.FORBIDDEN, "this key is not in the node's clients.toml")
        return client


def _public_key(mechanism: bytes, credentials: list[bytes]) -> str | None:
    if mechanism != b"CURVE" or len(credentials) != 1 or len(credentials[0]) != 32:
        return None
    return str(z85.encode(credentials[0]).decode("ascii"))


class Locks:
    """The node's key, who may connect, and the gate that checks it.

    Args:
        section: `results.security`, with key and clients.

    Raises:
        ConfigError: a key file or the list of clients can't be used.
    """

    def __init__(self, section: Security) -> None:
        assert section.key is not None
        assert section.clients is not None
        self._clients_file = section.clients
        try:
            self.pair = read_secret(section.key)
        except KeyFileError as error:
            raise ConfigError(
                "can't use the node's key", where="results.security.key", got=str(error), remedy="edge_app keys check"
            ) from error
        self.own = new_key_pair("self-test")
        self.gate = Gate(load_clients(section.clients), self.own.public)

    def reload(self) -> bool:
        """Reads clients.toml again. True: a key was taken off, so connections that stand must be ended.

        Raises:
            ConfigError: the file can't be used; the old list stays in force.
        """
        clients = load_clients(self._clients_file)
        log.info("%d clients in %s", len(clients), self._clients_file)
        return self.gate.replace(clients)
