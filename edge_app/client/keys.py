"""CURVE keys of a client: a key file made by `edge_app keys new`, and the node's public key."""

from __future__ import annotations

import os
import stat
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEY_LENGTH = 40


class KeyFileError(ValueError):
    """A key file that can't be used; says why."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE key pair, Z85."""

    name: str
    public: str
    secret: str | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class Keys:
    """What a client needs to reach a node: its own pair, and the node's public key."""

    own: KeyPair
    node_public: str

    @classmethod
    def load(cls, own: str | Path, node: str | Path) -> Keys:
        """Reads the client's secret key file and the node's public one.

        Raises:
            KeyFileError: unreadable, not a key file, or a secret that others can read.
        """
        return cls(read_secret(Path(own)), read_public(Path(node)).public)


def read_public(file: Path) -> KeyPair:
    """A key file without its secret.

    Raises:
        KeyFileError: unreadable or not a key file.
    """
    pair = _read(file)
    return KeyPair(pair.name, pair.public)


def read_secret(file: Path) -> KeyPair:
    """A key file with its secret.

    Raises:
        KeyFileError: unreadable, no secret in it, or its owner is not the only one who can read it.
    """
    pair = _read(file)
    if pair.secret is None:
        raise KeyFileError(f"{file}: this is the public half; wanted the file that ends in .secret.toml")
    mode = stat.S_IMODE(os.stat(file).st_mode)
    if mode & 0o077:
        raise KeyFileError(f"{file}: others can read this secret (mode {mode:04o}); do: chmod 600 {file}")
    return pair


def _read(file: Path) -> KeyPair:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise KeyFileError(f"{file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KeyFileError(f"{file}: not a key file: {error}") from error
    name = data.get("name")
    secret = data.get("secret")
    if not isinstance(name, str) or not is_key(data.get("public")) or (secret is not None and not is_key(secret)):
        raise KeyFileError(f"{file}: wanted name, public and secret, as `edge_app keys new` writes them")
    return KeyPair(name, data["public"], secret)


def is_key(value: Any) -> bool:
    """Whether it looks like a key in Z85: 40 characters of its alphabet."""
    alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    return isinstance(value, str) and len(value) == KEY_LENGTH and set(value) <= set(alphabet)
