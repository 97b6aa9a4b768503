"""Changing a manifest in place: comments and everything that is not meant stay as they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from edge_app.config.manifest import manifest_path


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
    partial = file.with_suffix(".yaml.partial")
    with partial.open("w", encoding="utf-8") as stream:
        yaml.dump(tree, stream)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(file)


def set_operating(model_folder: Path, score: dict[str, float], marginal: dict[str, float], chosen_on: str) -> None:
    """Writes operating scores, the grey band and where they were chosen."""

    def edit(tree: Any) -> None:
        operating = tree.setdefault("operating", {})
        operating["score"] = dict(score)
        operating["marginal"] = dict(marginal)
        operating["chosen_on"] = chosen_on

    edit_manifest(model_folder, edit)
