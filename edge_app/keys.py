"""CURVE key files, as nodes, clients and `edge_app keys` share them. Standard library alone.

A pair is two TOML files: NAME.public.toml (name, public) and NAME.secret.toml (name, public, secret; mode 0600).
"""

from __future__ import annotations

import os
import stat
import tomllib
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEY_LENGTH = 40
Z85 = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#")


class KeyFileError(ValueError):
    """A key file that can't be used; says why."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE key pair, Z85."""

    name: str
    public: str
    secret: str | None = field(repr=False, default=None)


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
    status = file.stat()
    if os.name == "posix" and others_can_read(status, os.geteuid()):  # elsewhere the mode says nothing of that
        mode = stat.S_IMODE(status.st_mode)
        raise KeyFileError(f"{file}: others can read this secret (mode {mode:04o}); do: chmod 600 {file}")
    return pair


def others_can_read(status: os.stat_result, user: int) -> bool:
    """Whether a secret's file is open to more than its owner, for a process of `user`.

    A file of root's may be readable by the group of a service that is not root: so systemd hands over credentials
    (an access list for the service's user, which shows as group r).
    """
    group_may_read = status.st_uid == 0 and user != 0
    return bool(stat.S_IMODE(status.st_mode) & (0o037 if group_may_read else 0o077))


def write_pair(folder: Path, pair: KeyPair) -> tuple[Path, Path]:
    """Writes both files of a new pair; returns the public and the secret one.

    Raises:
        KeyFileError: one of them exists, or can't be written; neither is left then. A secret is never written over.
    """
    public, secret = folder / f"{pair.name}.public.toml", folder / f"{pair.name}.secret.toml"
    head = f'name = "{pair.name}"\npublic = "{pair.public}"\n'
    with ExitStack() as failed:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            text = f"# secret: for this machine alone\n{head}secret = \"{pair.secret}\"\n"
            _write_new(secret, text, 0o600, failed)
            _write_new(public, head, 0o644, failed)
        except FileExistsError as error:
            raise KeyFileError(
                f"{error.filename}: never written over, and there is one already: choose another name, or move it"
            ) from error
        except OSError as error:
            raise KeyFileError(f"{error.filename or folder}: can't write the key: {error.strerror}") from error
        failed.pop_all()
    return public, secret


def _write_new(file: Path, text: str, mode: int, failed: ExitStack) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    failed.callback(file.unlink, missing_ok=True)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(text)


def _read(file: Path) -> KeyPair:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise KeyFileError(f"{file}: can't read the key: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # bad UTF-8 and endless numbers too
        raise KeyFileError(f"{file}: not a key file: {error}") from error
    name = data.get("name")
    secret = data.get("secret")
    if not isinstance(name, str) or not is_key(data.get("public")) or (secret is not None and not is_key(secret)):
        raise KeyFileError(f"{file}: wanted name, public and secret, as `edge_app keys new` writes them")
    return KeyPair(name, data["public"], secret)


def is_key(value: Any) -> bool:
    """Whether it looks like a key in Z85: 40 characters of its alphabet."""
    return isinstance(value, str) and len(value) == KEY_LENGTH and set(value) <= Z85
