"""What a broken or ill-meant peer does on the wire, on purpose: for trying a node (`edge_app controller-sim`)."""

from __future__ import annotations

import json
import random
import re
import socket
from typing import Any

import zmq

from edge_app.client.access import Keys
from edge_app.client.sockets import open_dealer, open_sub
from edge_app.keys import KeyPair

TIMEOUT_MS = 2000


class Hostile:
    """Misbehaves against one node, and sees whether it takes it well.

    Args:
        keys: what a well-meant client would use; None: the node has none.
    """

    def __init__(self, publish: str, commands: str, keys: Keys | None, seed: int = 0) -> None:
        self._publish, self._commands, self._keys = publish, commands, keys
        self._random = random.Random(seed)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    def close(self) -> None:
        """Lets go of its sockets."""
        self._context.destroy(linger=0)

    def duplicate_command(self, command: str, **fields: Any) -> bool:
        """Sends the same command three times over, at once; True if all replies are the same bytes."""
        request_id = f"twin-{self._random.random()}"
        frame = json.dumps({"v": 1, "command": command, "request_id": request_id, **fields}).encode()
        dealer = open_dealer(self._context, self._commands, self._keys)
        try:
            if not dealer.poll(TIMEOUT_MS, zmq.POLLOUT):
                return False
            for _ in range(3):
                dealer.send(frame)
            replies = set()
            for _ in range(3):
                if not dealer.poll(TIMEOUT_MS):
                    return False
                replies.add(dealer.recv())
            return len(replies) == 1
        finally:
            dealer.close()

    def garbage_commands(self, count: int) -> int:
        """Sends frames that are no commands; how many were answered with an error (a node answers each)."""
        dealer = open_dealer(self._context, self._commands, self._keys)
        try:
            if not dealer.poll(TIMEOUT_MS, zmq.POLLOUT):
                return 0
            for _ in range(count):
                dealer.send(self._random.randbytes(self._random.randint(0, 200)))
            refused = 0
            while refused < count and dealer.poll(TIMEOUT_MS):
                refused += json.loads(dealer.recv_multipart()[0])["ok"] is False
            return refused
        finally:
            dealer.close()

    def garbage_bytes(self, count: int) -> int:
        """Bytes that are no ZMTP, on fresh TCP connections to both ports; how many connections could be made."""
        made = 0
        for _ in range(count):
            for endpoint in (self._publish, self._commands):
                match = re.fullmatch(r"tcp://(.+):(\d+)", endpoint)
                if match is None:
                    continue
                try:
                    with socket.create_connection((match[1], int(match[2])), timeout=2) as raw:
                        raw.sendall(self._random.randbytes(self._random.randint(1, 300)))
                        made += 1
                except OSError:
                    continue
        return made

    def wrong_key(self) -> bool:
        """Knocks at PUB with a key that nobody knows; True if a message came through."""
        public, secret = (key.decode() for key in zmq.curve_keypair())
        node = self._keys.node_public if self._keys is not None else zmq.curve_keypair()[0].decode()
        sub = open_sub(self._context, self._publish, None, Keys(KeyPair("stranger", public, secret), node))
        try:
            return bool(sub.poll(1500))
        finally:
            sub.close()
