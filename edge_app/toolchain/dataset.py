"""Labelled pictures in YOLO's layout: `data.yaml`, lists of pictures, `images/` and `labels/` side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from edge_app.camera.picture import ENDINGS, BrokenPicture, load_upright
from edge_app.config.load import read_yaml
from edge_app.errors import ConfigError
from edge_app.listing import read_lines, read_text
from edge_app.toolchain.metrics import Truth

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture and its label file, which by YOLO's rule is absent where the picture holds no object."""

    file: Path
    labels_file: Path


@dataclass(frozen=True, slots=True)
class Dataset:
    """One split of a data set, in the order of its list."""

    root: Path
    split: str
    names: tuple[str, ...]
    """Labels, in the order of the label files' indices."""
    pictures: tuple[Picture, ...]


def read_dataset(root: Path, split: str) -> Dataset:
    """Reads one split of a YOLO data set.

    Args:
        root: folder with a `data.yaml`, or that file itself.
        split: any key of it whose value is a list file, a folder or several of them: `val`, `test`, ...

    Raises:
        ConfigError: no such file, key or picture, or not one label file among them.
    """
    file = root / "data.yaml" if root.is_dir() else root
    if not file.is_file():
        raise ConfigError(
            "no data set here",
            where=str(root),
            wanted="a folder with data.yaml (path, val, names), images/ and labels/, as YOLO has it",
            got=f"no file {file}",
            remedy="see models/README.md, From your own pictures",
        )
    document = read_yaml(file)
    data = document.data
    names = _names(data.get("names"), file)
    base = file.parent / str(data.get("path", "."))
    if split not in data or split in ("names", "path", "nc"):
        raise ConfigError(
            f"the data set has no split {split!r}",
            where=str(file),
            wanted=f"one of {', '.join(k for k in data if k not in ('names', 'path', 'nc'))}",
            got=split,
        )
    sources = data[split] if isinstance(data[split], list) else [data[split]]
    pictures = tuple(
        Picture(picture, _labels_file(picture)) for source in sources
        for picture in _pictures(base / str(source), f"{document.place((split,))}: {split}")
    )  # fmt: skip
    if not any(picture.labels_file.is_file() for picture in pictures):
        raise ConfigError(
            f"not one of the {len(pictures)} pictures of {split!r} has a label file",
            where=str(file),
            wanted=f"e.g. {pictures[0].labels_file}" if pictures else "pictures",
            remedy="put the label files into labels/ beside images/",
        )
    return Dataset(file.parent, split, names, pictures)


def pictures_in(folder: Path) -> list[Path]:
    """All pictures below a folder, by name.

    Raises:
        ConfigError: no such folder, or no picture in it.
    """
    if not folder.is_dir():
        raise ConfigError("no such folder of pictures", where=str(folder), got="nothing there, or not a folder")
    found = sorted(file for file in folder.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())
    if not found:
        raise ConfigError(
            "no picture in the folder",
            where=str(folder),
            wanted=f"files that end in {', '.join(ENDINGS)}",
            got=f"{len(list(folder.iterdir()))} other entries",
        )
    return found


def spread(items: Sequence[T], limit: int | None) -> list[T]:
    """At most `limit` items, evenly spread."""
    if limit is None or limit >= len(items):
        return list(items)
    return [items[index * len(items) // limit] for index in range(limit)]


def read_picture(file: Path) -> npt.NDArray[np.uint8]:
    """A picture as BGR, uint8 [H, W, 3]: the pixels that a line gets of it (camera.type: folder).

    Raises:
        ConfigError: it can't be read, is not whole, or is stored turned.
    """
    try:
        return load_upright(file)
    except BrokenPicture as broken:
        raise ConfigError("not a whole, upright picture", where=str(file), got=str(broken)) from broken


def read_truth(picture: Picture, shape: tuple[int, ...], names: Sequence[str], labels: Sequence[str]) -> Truth:
    """The true boxes of a picture, in its pixels.

    Args:
        picture: of a data set with the label list `names`.
        shape: height and width of the picture (more is ignored).
        names: the data set's labels.
        labels: the model's labels, into which the indices are translated by name.

    Raises:
        ConfigError: a bad line, or a label that the model does not know.
    """
    if not picture.labels_file.is_file():
        return Truth.none()
    rows = []
    for number, line in enumerate(read_text(picture.labels_file, "the label file").splitlines(), 1):
        if line.strip():
            rows.append(_row(line, f"{picture.labels_file}:{number}", names, labels))
    if not rows:
        return Truth.none()
    table = np.array(rows, np.float64)
    size = np.array([shape[1], shape[0], shape[1], shape[0]], np.float64)
    centre, half = table[:, 1:3], table[:, 3:5] / 2
    boxes = np.concatenate([centre - half, centre + half], axis=1) * size
    return Truth(boxes.astype(np.float32), table[:, 0].astype(np.int32))


def _row(line: str, where: str, names: Sequence[str], labels: Sequence[str]) -> tuple[float, ...]:
    wanted = "index x_centre y_centre width height, all but the index in 0..1"
    try:
        index, *box = (float(word) for word in line.split())
    except ValueError as error:
        raise ConfigError("not a YOLO label line", where=where, wanted=wanted, got=line) from error
    if len(box) != 4 or not 0 <= index < len(names) or index != int(index):
        raise ConfigError("not a YOLO label line", where=where, wanted=f"{wanted}; {len(names)} labels", got=line)
    name = names[int(index)]
    if name not in labels:
        raise ConfigError("a label that the model does not know", where=where, wanted=", ".join(labels), got=name)
    return (float(labels.index(name)), *box)


def _names(names: object, file: Path) -> tuple[str, ...]:
    if isinstance(names, list) and names:
        return tuple(str(name) for name in names)
    if isinstance(names, dict) and names:
        order = sorted(names, key=int)
        return tuple(str(names[key]) for key in order)
    raise ConfigError("the data set names no labels", where=str(file), wanted="names: [label, ...]", got=repr(names))


def _pictures(source: Path, where: str) -> list[Path]:
    if source.is_dir():
        return pictures_in(source)
    if not source.is_file():
        raise ConfigError(
            "the data set's list or folder is not there",
            where=where,
            wanted="a .txt with a picture's path a line, or a folder of pictures",
            got=f"nothing at {source}",
            remedy="check the path: it begins at `path` of this file, else beside it",
        )
    return [(source.parent / line).resolve() for line in read_lines(source, "the list of pictures")]


def _labels_file(picture: Path) -> Path:
    """YOLO's rule: the last `images` of the path becomes `labels`."""
    parts = list(picture.parts)
    for index in range(len(parts) - 2, -1, -1):
        if parts[index] == "images":
            parts[index] = "labels"
            break
    return Path(*parts).with_suffix(".txt")
