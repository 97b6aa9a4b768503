"""The pipelines of one process: which files they are, and what two lines can't share."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from edge_app.config.load import load_pipeline
from edge_app.config.pipeline import Pipeline
from edge_app.errors import ConfigError

Named = tuple[Path, Pipeline]
"""A pipeline and its file."""
ENDINGS = (".yaml", ".yml")
ANY_HOST = ("*", "0.0.0.0", "[::]", "::", "")


def load_lines(paths: Sequence[Path], overrides: Sequence[str] = ()) -> list[Named]:
    """All pipelines that `--pipeline` names, each with the overrides.

    Raises:
        ConfigError: a file is not valid, a folder has none, or two want the same port, file or station.
    """
    lines = [(file, load_pipeline(file, overrides)) for path in paths for file in pipeline_files(path)]
    refuse_clashes(lines)
    return lines


def pipeline_files(path: Path) -> list[Path]:
    """The files of a path: itself, all of a folder, or itself with the ending that was left out.

    Raises:
        ConfigError: the folder has no pipeline, or it is not clear what is meant.
    """
    beside = path.parent / f"{path.name}.yaml"
    if not path.is_dir():
        return [beside if not path.exists() and beside.is_file() else path]
    if beside.is_file():
        raise ConfigError(
            "there are both a pipeline and a folder of pipelines with this name",
            where=str(path),
            wanted="one of them",
            got=f"{beside} and {path}/",
            remedy="move the file into the folder, or name it with its ending",
        )
    files = sorted(file for file in path.iterdir() if file.suffix in ENDINGS and not file.name.startswith("."))
    if not files:
        raise ConfigError("no pipeline in this folder", where=str(path), wanted="*.yaml, one for each line", got="none")
    return files


def refuse_clashes(lines: Sequence[Named]) -> None:
    """What each line must have for itself: station, ports, files; and what all must share: the SoC.

    Raises:
        ConfigError: names both files and keys.
    """
    taken: dict[str, tuple[Path, str]] = {}
    for file, pipeline in lines:
        for thing, key, got in belongings(file, pipeline):
            other, other_key = taken.setdefault(thing, (file, key))
            if other is not file:
                raise _clash(file, key, got, other, other_key)
    ports = [(file, key, address) for file, pipeline in lines for key, address in addresses(pipeline)]
    for index, (file, key, address) in enumerate(ports):
        for other, other_key, other_address in ports[:index]:
            if same_port(address, other_address):
                raise _clash(file, key, address, other, other_key)
    _refuse_two_socs(lines)


def belongings(file: Path, pipeline: Pipeline) -> Iterator[tuple[str, str, str]]:
    """What no other line may have: what it is, the key that says so, and the value for people."""
    node, results = pipeline.station.node, pipeline.results
    yield f"station {node}", "station", node
    for key, path in (
        ("results.journal.path", results.journal.path),
        ("results.evidence.path", results.evidence.path),
        ("update.store", pipeline.update.store),
    ):
        if path is not None:
            yield f"path {os.path.realpath(path)}", key, str(path)
    state = os.path.realpath("." if results.journal.path is None else results.journal.path.parent)
    yield f"note {state}/{file.stem}", "the file's name", f"{file.stem}, which names its notes in {state}"


def addresses(pipeline: Pipeline) -> list[tuple[str, str]]:
    """Everything that a line listens at: key and address."""
    found = (
        ("results.publish", pipeline.results.publish),
        ("results.commands", pipeline.results.commands),
        ("monitor.http", pipeline.monitor.http),
    )
    return [(key, address) for key, address in found if address is not None]


def same_port(one: str, other: str) -> bool:
    """Whether two addresses (`tcp://HOST:PORT`, `ipc://PATH`, `HOST:PORT`) can't both be listened at."""
    if one.startswith("ipc://") or other.startswith("ipc://"):
        return one == other
    (host, port), (other_host, other_port) = _split(one), _split(other)
    if port != other_port or port in ("*", "0"):
        return False
    return host == other_host or host in ANY_HOST or other_host in ANY_HOST


def _split(address: str) -> tuple[str, str]:
    host, _, port = re.sub(r"^tcp://", "", address).rpartition(":")
    return "127.0.0.1" if host in ("localhost", "lo") else host, port


def _clash(file: Path, key: str, got: str, other: Path, other_key: str) -> ConfigError:
    alone = other is file
    return ConfigError(
        "one address can't be listened at twice" if alone else "two lines can't share this",
        where=f"{file}: {key}",
        wanted=f"another one than {'' if alone else f'{other}: '}{other_key}",
        got=got,
        remedy="give each a port of its own" if alone else
        "give each line a station, ports, a monitor.http and files of its own",
    )  # fmt: skip


def _refuse_two_socs(lines: Sequence[Named]) -> None:
    on_npu = [(file, pipeline) for file, pipeline in lines if pipeline.runtime.provider in ("auto", "qnn")]
    with_soc = [(file, pipeline.runtime.soc) for file, pipeline in on_npu if pipeline.runtime.soc is not None]
    for file, soc in with_soc:
        first, wanted = with_soc[0]
        if soc != wanted:
            raise ConfigError(
                "the lines of one process run the plans of one SoC: its options hold for all sessions",
                where=f"{file}: runtime.soc",
                wanted=f"{wanted}, as {first} has it",
                got=soc,
                remedy="name the board's SoC in both, or set runtime.provider: cpu in one",
            )
