"""A model version on its way into the store: received in parts, checked as a whole, there at once or not at all."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edge_app.config.load import load_manifest
from edge_app.config.manifest import Artifact
from edge_app.durable import sync
from edge_app.errors import ModelError
from edge_app.model import check_digest
from edge_app.store import INCOMING, SUMS_FILE, ModelStore, bound_files, files_of, read_sums, version_of

log = logging.getLogger(__name__)
LEAVE_FREE = 64 * 2**20
"""Bytes of the disk that belong to the journal."""


@dataclass(frozen=True)
class Incoming:
    """What was announced."""

    version: str
    sums: str
    files: frozenset[str]
    bytes: int


class Staging:
    """Receives one version at a time. All methods belong to one thread (the outlet's for commands)."""

    def __init__(self, store: ModelStore, check: Callable[[Path], None]) -> None:
        """`check` says whether this line could run the model of a folder; raises EdgeAppError if not."""
        self._store, self._check = store, check
        self._folder = store.folder / INCOMING
        self._incoming: Incoming | None = None
        self._received = 0

    def begin(self, name: str, sums: str, size: int) -> tuple[str, bool]:
        """A version is announced: its name, and whether it is in the store already. One that was half there is dropped.

        One that is stored but damaged is received anew, and takes the damaged one's place.

        Raises:
            ModelError: the list can't be used, or there is no room.
            RuntimeFault: another process has the store.
        """
        files = frozenset(read_sums(sums))
        version = version_of(name, sums)
        self._drop()
        if self._is_stored(version):
            return version, True
        try:
            self._folder.mkdir(parents=True)
            self._store.hold()
            free = shutil.disk_usage(self._folder).free
        except OSError as error:
            raise self._unwritable(error) from error
        if size > free - LEAVE_FREE:
            raise ModelError(
                "there is no room for this version", where=str(self._store.folder),
                wanted=f"{(size + LEAVE_FREE) / 1e6:.0f} MB", got=f"{free / 1e6:.0f} MB free",
            )  # fmt: skip
        self._incoming, self._received = Incoming(version, sums, files, size), 0
        return version, False

    def _is_stored(self, version: str) -> bool:
        if version not in self._store.versions():
            return False
        try:
            self._store.checked(version)
        except ModelError as error:
            log.warning("%s is received anew: %s", version, error)
            return False
        return True

    def write(self, version: str, file: str, offset: int, data: bytes) -> None:
        """A part of a file; those of a file come in order, and one that comes again is written again.

        Raises:
            ModelError: it is not of the version that was announced, or can't be written.
        """
        incoming = self._of(version)
        if file not in incoming.files:
            raise ModelError("a part of a file that was not announced", got=file)
        path = self._folder / file
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            size = path.stat().st_size if path.exists() else 0
            more = offset + len(data) - size
            if offset > size or self._received + max(more, 0) > incoming.bytes:
                raise ModelError("a part that does not fit", wanted=f"offset up to {size}", got=f"{offset} of {file}")
            with path.open("r+b" if path.exists() else "wb") as stream:
                stream.seek(offset)
                stream.write(data)
        except OSError as error:
            raise self._unwritable(error) from error
        self._received += max(more, 0)

    def finish(self, version: str) -> None:
        """All parts are there: checks everything, and only then gives the version its name in the store.

        Raises:
            EdgeAppError: a digest or the manifest does not hold, or this line can't run it. Nothing is kept.
        """
        incoming = self._of(version)
        try:
            self._refuse_unsound(incoming)
            self._keep(incoming)
        except BaseException:
            self._drop()
            raise
        self._incoming = None

    def _refuse_unsound(self, incoming: Incoming) -> None:
        digests = read_sums(incoming.sums)
        for file, sha256 in digests.items():
            check_digest(self._folder, Artifact(file=file, sha256=sha256))
        manifest = load_manifest(self._folder)
        if manifest.name != incoming.version.partition("@")[0]:
            raise ModelError("the manifest names another model", wanted=incoming.version, got=manifest.name)
        bound = bound_files(manifest)
        for file in files_of(self._folder, manifest):
            if bound.get(file, digests.get(file)) != digests.get(file):
                raise ModelError(
                    "a file of the model is not the one that its manifest binds", where=file,
                    wanted=f"sha256 {bound.get(file)}", got=f"sha256 {digests.get(file)}",
                    remedy="restore it, or compile the model again",
                )  # fmt: skip
            if file not in digests:
                raise ModelError("a file of the model was not pushed", wanted=file)
        self._check(self._folder)

    def _keep(self, incoming: Incoming) -> None:
        try:
            (self._folder / SUMS_FILE).write_text(incoming.sums, encoding="ascii")
            for folder, _, files in os.walk(self._folder, topdown=False):
                for file in files:
                    sync(Path(folder, file))
                sync(Path(folder))
            if incoming.version in self._store.versions():
                self._store.remove(incoming.version)  # the damaged one
            self._folder.rename(self._store.folder / incoming.version)
            sync(self._store.folder)
        except OSError as error:
            raise self._unwritable(error) from error

    def _of(self, version: str) -> Incoming:
        if self._incoming is None or self._incoming.version != version:
            raise ModelError(
                "this version is not being received", got=version,
                remedy="push it again: another push, or a restart of the node, came between",
            )  # fmt: skip
        return self._incoming

    def _drop(self) -> None:
        self._incoming = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _unwritable(self, error: OSError) -> ModelError:
        return ModelError(
            "the version can't be stored", where=str(self._store.folder), got=error.strerror or str(error),
            remedy="free some space, or see to the folder's owner",
        )  # fmt: skip
