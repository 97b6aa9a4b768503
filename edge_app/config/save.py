"""Changing a manifest in place: comments and everything that is not meant stay as they are."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from edge_app.config.load import load_manifest
from edge_app.config.manifest import BoardRecord, manifest_path
from edge_app.durable import write_whole
from edge_app.errors import ModelError


def edit_manifest(model_folder: Path, edit: Callable[[Any], None]) -> None:
    """Applies `edit` to the manifest's YAML and writes it whole or not at all.

    Args:
        model_folder: where manifest.yaml is.
        edit: changes the parsed YAML in place.

    Raises:
        ModelError: it can't be written.
    """
    file = manifest_path(model_folder)
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 120
    tree = yaml.load(file.read_text(encoding="utf-8"))
    edit(tree)
    _write(file, yaml, tree)


def write_new_manifest(model_folder: Path, data: dict[str, Any]) -> None:
    """Writes a manifest where there was none. Raises ModelError."""
    yaml = YAML(typ="rt")
    yaml.width = 120
    _write(manifest_path(model_folder), yaml, data)


def _write(file: Path, yaml: YAML, tree: Any) -> None:
    text = io.StringIO()
    yaml.dump(tree, text)
    write_whole(file, text.getvalue(), "the manifest", ModelError)


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


def add_board(model_folder: Path, record: BoardRecord) -> None:
    """Appends to the compatibility table."""
    line = record.model_dump(mode="json", exclude_defaults=True)
    edit_manifest(model_folder, lambda tree: tree.setdefault("boards", []).append(line))
    load_manifest(model_folder)
