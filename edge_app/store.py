"""The store of a line's model versions: what was pushed to it, and which of it the next start takes.

    PIPELINE.models/
        in_force.json               the version in force and those before it; absent: the pipeline's own model
        on_trial.json               the version that is watched, or was when the node ended: then it is not in force
        recipe.json                 the recipe in force (edge_app.recipe_kept); absent: the pipeline's own
        incoming/                   a version that is being received; worth nothing until it is whole
        removed/                    one that is being deleted
        pcb-defect@3f9a1c2b7d4e/    a whole version: SHA256SUMS and the files that it lists

A version is named by its content: the model's name, and the first 12 digits of SHA-256 over its SHA256SUMS (as
`sha256sum` writes it, ordered by name), which binds manifest, network, plans and canary. It is received into incoming/,
checked, brought to the disk, and gets its name by one rename; in_force.json is replaced as a whole. After a power cut
there is the one or the other, and nothing between.

Kept are the version in force, the two before it, and the two others that were pushed last.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from edge_app.canary import SYNTHETIC
from edge_app.config.manifest import MANIFEST_FILE, Artifact, Manifest
from edge_app.config.pipeline import Pipeline
from edge_app.durable import replace_durably
from edge_app.errors import ModelError, RuntimeFault
from edge_app.file_lock import HeldError, take_lock
from edge_app.model import check_digest, sha256_of

log = logging.getLogger(__name__)
SUMS_FILE = "SHA256SUMS"
INCOMING = "incoming"
REMOVED = "removed"
TRIAL = "on_trial.json"
KEPT_BEFORE = 2
KEPT_OTHERS = 2
_held: dict[Path, int] = {}
"""Stores that this process holds, and the descriptors of their locks."""
_SAFE = re.compile(r"^\w[\w.-]*(/\w[\w.-]*)*$", re.ASCII)
_SUM = re.compile(r"^([0-9a-f]{64})  (.+)$")
_VERSION = re.compile(r"^[a-z0-9][a-z0-9_-]*@[0-9a-f]{12}$")


def files_of(folder: Path, manifest: Manifest) -> list[str]:
    """The files that a node needs of a model folder, by name: no sources of plans, and the plans that were made."""
    plans = [artifact.file for plan in manifest.plans for artifact in plan.artifacts]
    needed = [MANIFEST_FILE, manifest.float_model.file]
    if manifest.canary is not None:
        needed.append(manifest.canary.file)
        if SYNTHETIC.match(manifest.canary.picture) is None:
            needed.append(manifest.canary.picture)
    return sorted({*needed, *(file for file in plans if (folder / file).is_file())})


def bound_files(manifest: Manifest) -> dict[str, str]:
    """Digest by file, as the manifest binds those of `files_of`."""
    artifacts = [manifest.float_model, *(artifact for plan in manifest.plans for artifact in plan.artifacts)]
    bound = {artifact.file: artifact.sha256 for artifact in artifacts}
    return bound if manifest.canary is None else {**bound, manifest.canary.file: manifest.canary.sha256}


def write_sums(digests: Mapping[str, str]) -> str:
    """The text of a SHA256SUMS, ordered by file."""
    return "".join(f"{digests[file]}  {file}\n" for file in sorted(digests))


def read_sums(text: str) -> dict[str, str]:
    """Digest by file.

    Raises:
        ModelError: not a SHA256SUMS, or with a name that could lead out of its folder.
    """
    digests: dict[str, str] = {}
    for line in text.splitlines():
        match = _SUM.match(line)
        if match is None or _SAFE.match(match[2]) is None or match[2] == SUMS_FILE:
            raise ModelError(
                "a file of the model has a name that is not taken",
                wanted="letters, digits, `_`, `-`, `.` and `/`; no name that begins with a dot",
                got=line[66:194] or line[:80],
                remedy="rename it, in the manifest too",
            )
        digests[match[2]] = match[1]
    if MANIFEST_FILE not in digests or write_sums(digests) != text:
        raise ModelError("the list of a model's files is not whole", wanted=f"{MANIFEST_FILE} and others, by name")
    return digests


def version_of(name: str, sums: str) -> str:
    """NAME@VERSION, by content."""
    return f"{name}@{hashlib.sha256(sums.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class ModelStore:
    """See the module; nothing is written before the first version comes."""

    folder: Path
    own: Path
    """The model that the pipeline's YAML names. When that is changed, the YAML has the last word."""

    def hold(self) -> None:
        """From here to its end only this process uses the store. Where there is none yet, nothing happens.

        Raises:
            RuntimeFault: another process has it: each would start with what was activated at the other.
        """
        folder = self.folder.absolute()
        if folder in _held or not folder.is_dir():
            return
        try:
            _held[folder] = take_lock(folder)
        except OSError as error:
            log.warning("nothing keeps other processes from %s: %s", folder, error)
        except HeldError as error:
            raise RuntimeFault(
                "another process keeps its recipe and its models here",
                where=str(folder),
                wanted="a place for each line; it is named by the pipeline's file, beside the journal",
                got=str(error),
                remedy="end it, or give this line another results.journal.path, update.store or file name",
            ) from error

    def sweep(self) -> None:
        """Gives back the space of a version whose way in, or out, a power cut had ended."""
        for name in (INCOMING, REMOVED):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def versions(self) -> list[str]:
        """The whole ones, pushed last first.

        Raises:
            ModelError: the store can't be read.
        """
        try:
            found = [path for path in self.folder.iterdir() if _VERSION.match(path.name)]
            return [path.name for path in sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ModelError(
                "the store of models can't be read", where=str(self.folder), got=error.strerror or str(error),
                remedy="see to the folder's owner, and to the disk",
            ) from error  # fmt: skip

    def checked(self, version: str) -> Path:
        """The folder of a version, every file read and compared with its digest.

        Raises:
            ModelError: there is no such version, it is damaged, or can't be read.
        """
        folder = self.folder / version
        if version not in (known := self.versions()):
            wanted = ", ".join(known) or "none: push one first"
            raise ModelError("there is no such version in the store", wanted=wanted, got=version)
        try:
            sums = (folder / SUMS_FILE).read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise ModelError("a stored version is damaged", where=str(folder / SUMS_FILE), got=str(error)) from error
        if version_of(version.partition("@")[0], sums) != version:
            raise ModelError("a stored version is damaged", where=str(folder / SUMS_FILE), got="other content")
        for file, sha256 in read_sums(sums).items():
            check_digest(folder, Artifact(file=file, sha256=sha256))
        return folder

    def in_force(self) -> tuple[str, ...]:
        """The version in force, then those before it; empty: the pipeline's own model.

        Raises:
            ModelError: nobody can tell: its note can't be read, or is damaged.
        """
        file = self.folder / "in_force.json"
        try:
            fields = json.loads(file.read_text(encoding="utf-8"))
            versions, instead_of = tuple(map(str, fields["versions"])), str(fields["instead_of"])
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelError(
                "which version is in force can't be read", where=str(file), got=f"{type(error).__name__}: {error}",
                remedy="activate the version that is wanted",
            ) from error  # fmt: skip
        if instead_of != str(self.own):
            log.warning("%s was chosen instead of %s, and the pipeline now names %s: that is taken", versions,
                        instead_of, self.own)  # fmt: skip
            return ()
        return versions

    def put_in_force(self, versions: tuple[str, ...]) -> None:
        """What the next start takes; durable when this returns.

        Raises:
            ModelError: it can't be written; what was before stands.
        """
        file = self.folder / "in_force.json"
        try:
            text = json.dumps({"versions": versions[: 1 + KEPT_BEFORE], "instead_of": str(self.own)})
            replace_durably(file, text)
        except OSError as error:
            raise ModelError(
                "what is in force can't be kept", where=str(file), got=error.strerror or str(error),
                remedy="free some space, or see to the folder's owner",
            ) from error  # fmt: skip

    def put_on_trial(self, version: str) -> None:
        """Notes a version that inspects, and is not in force yet: should the node end now, the next start tells it."""
        try:
            replace_durably(self.folder / TRIAL, json.dumps({"version": version}))
        except OSError as error:  # then it can't be put in force either, and that is told
            log.error("that %s is on trial can't be noted: %s", version, error)

    def on_trial(self) -> str | None:
        """The version that was on trial when the node ended."""
        try:
            return str(json.loads((self.folder / TRIAL).read_text(encoding="utf-8"))["version"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            return f"a version that can't be read ({error})"

    def end_trial(self) -> None:
        """It ended while the node ran, or has been told."""
        try:
            (self.folder / TRIAL).unlink(missing_ok=True)
        except OSError as error:
            log.error("that no version is on trial can't be noted: %s", error)

    def forget_old(self, in_use: Collection[str]) -> list[str]:
        """Removes what is not kept; the versions that went. None where the store can't tell which those are."""
        try:
            kept = {*self.in_force(), *in_use}
            gone = [version for version in self.versions() if version not in kept][KEPT_OTHERS:]
        except ModelError as error:
            log.error("no old version is removed: %s", error)
            return []
        removed = []
        for version in gone:
            try:
                self.remove(version)
                removed.append(version)
            except OSError as error:
                log.error("%s stays: %s", version, error)
        return removed

    def remove(self, version: str) -> None:
        """Takes a version out of the store at once, and then gives its space back: half a version has no name.

        Raises:
            OSError: it stays.
        """
        removed = self.folder / REMOVED
        shutil.rmtree(removed, ignore_errors=True)  # what a power cut left
        (self.folder / version).rename(removed)
        shutil.rmtree(removed, ignore_errors=True)


def store_of(pipeline: Pipeline, name: str) -> ModelStore:
    """The store of one pipeline; `name` is the YAML's."""
    journal = pipeline.results.journal.path
    beside = Path.cwd() if journal is None else journal.parent
    return ModelStore(pipeline.update.store or beside / f"{name}.models", pipeline.model.path)


def digests_of(folder: Path, files: Collection[str]) -> dict[str, str]:
    """SHA-256 of each file.

    Raises:
        ModelError: one is not there, or empty.
    """
    for file in files:
        if not (folder / file).is_file() or (folder / file).stat().st_size == 0:
            raise ModelError("a file of the model is not there", where=str(folder / file), got="no such file, or empty")
    return {file: sha256_of(folder / file) for file in files}
