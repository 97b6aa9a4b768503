"""Changing a manifest in place: comments and everything that is not meant stay as they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from edge_app.config.manifest import manifest_path
from edge_app.errors import ModelError


def edit_manifest(model_folder: Path, edit: Callable[[Any], None]) -> None:
    """Applies `edit` to the manifest's YAML and writes it atomically.

    Args:
        model_folder: where manifest.yaml is.
        edit: changes the parsed YAML in place.
    """
    file = manifest_path(model_folder)
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 120
    tree = yaml.load(file.read_text(encoding="utf-8"))
    edit(tree)
    _write(file, yaml, tree)


def write_new_manifest(model_folder: Path, data: dict[str, Any]) -> None:
    """Writes a manifest where there was none."""
    yaml = YAML(typ="rt")
    yaml.width = 120
    _write(manifest_path(model_folder), yaml, data)


def _write(file: Path, yaml: YAML, tree: Any) -> None:
    """Whole or not at all, also on a full disk.

    Raises:
        ModelError: it can't be written.
    """
    partial = file.with_suffix(".yaml.partial")
    try:
        with partial.open("w", encoding="utf-8") as stream:
            yaml.dump(tree, stream)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ModelError(
            "can't write the manifest", where=str(file), got=error.strerror or str(error), remedy="free some space"
        ) from error


def set_operating(model_folder: Path, score: dict[str, float], marginal: dict[str, float], chosen_on: str) -> None:
    """Writes operating scores, the grey band and where they were chosen."""

    def edit(tree: Any) -> None:
        operating = tree.setdefault("operating", {})
        operating["score"] = dict(score)
        operating["marginal"] = dict(marginal)
        operating["chosen_on"] = chosen_on

    edit_manifest(model_folder, edit)


def set_canary(model_folder: Path, file: str, sha256: str, picture: str) -> None:
    """Names a stored inference."""

    def edit(tree: Any) -> None:
        tree["canary"] = {"file": file, "sha256": sha256, "picture": picture}

    edit_manifest(model_folder, edit)
