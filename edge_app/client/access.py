"""What a client needs to reach a node that has keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge_app.keys import KeyPair, read_public, read_secret


@dataclass(frozen=True, slots=True)
class Keys:
    """The client's own pair, and the node's public key."""

    own: KeyPair
    node_public: str

    @classmethod
    def load(cls, own: str | Path, node: str | Path) -> Keys:
        """Reads the client's secret key file and the node's public one.

        Raises:
            KeyFileError: unreadable, not a key file, or a secret that others can read.
        """
        return cls(read_secret(Path(own)), read_public(Path(node)).public)
