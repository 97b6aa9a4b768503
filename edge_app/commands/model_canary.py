"""`edge_app model canary`: the stored inference that a plan must give again before it is trusted with parts."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from edge_app.canary import SYNTHETIC, load_canary, record_canary
from edge_app.commands.report import print_json, print_table
from edge_app.config.load import load_manifest
from edge_app.config.pipeline import Model
from edge_app.config.tensor import Preprocess
from edge_app.errors import ConfigError, ExitCode
from edge_app.model import model_folder, resolve


def run_canary(args: argparse.Namespace) -> int:
    """Records the float model's answer to a picture; the manifest's own picture unless another is given."""
    folder = model_folder(args.name)
    stored = load_manifest(folder).canary
    if args.picture is None and stored is None:
        raise ConfigError(
            "this model has no canary yet, so its picture must be named",
            where=str(folder),
            wanted="--picture FILE of a part with a clear defect, or 'synthetic product=P seed=S'",
            got="none",
        )
    picture = _into(folder, args.picture) if args.picture is not None else stored.picture if stored is not None else ""
    record_canary(resolve(Model(path=folder), Preprocess()), picture)
    card = resolve(Model(path=folder), Preprocess())
    load_canary(card)
    written = load_manifest(folder).canary
    document = {"model": card.name, **({} if written is None else written.model_dump(mode="json"))}
    if args.json:
        print_json(document)
    else:
        print_table(f"Canary of {card.name}", ("", ""), list(document.items()))
    return int(ExitCode.OK)


def _into(folder: Path, picture: str) -> str:
    """A picture's name in the model's folder, where it is copied to if it is not there."""
    if SYNTHETIC.match(picture) is not None:
        return picture
    source = next((file for file in (folder / picture, Path(picture)) if file.is_file()), None)
    if source is None:
        raise ConfigError(
            "no such picture", where=f"--picture {picture}", wanted="a file, or 'synthetic product=P seed=S'"
        )
    if source.resolve().is_relative_to(folder.resolve()):
        return source.resolve().relative_to(folder.resolve()).as_posix()
    name = f"canary{source.suffix}"
    shutil.copy(source, folder / name)
    return name
