"""Several static input sizes of one network: a folder of model folders named WIDTHxHEIGHT, of which a line takes one.

The NPU runs static shapes only, so each size has a graph, encodings and plans of its own: `models/pcb/416x416`,
`models/pcb/640x640`. `edge_app model import --size 416x416,640x640` makes such a folder.
"""

from __future__ import annotations

import re
from pathlib import Path

from edge_app.config.manifest import manifest_path
from edge_app.errors import ConfigError

Size = tuple[int, int]
"""Width, height, px."""
_NAME = re.compile(r"^([1-9]\d*)x([1-9]\d*)$")


def members(folder: Path) -> dict[Size, Path]:
    """The models of a family by input size, smallest first; empty if the folder is none."""
    if not folder.is_dir() or manifest_path(folder).is_file():
        return {}
    named = [(match, path) for path in folder.iterdir() if (match := _NAME.match(path.name)) is not None]
    found = {(int(match[1]), int(match[2])): path for match, path in named if manifest_path(path).is_file()}
    return dict(sorted(found.items(), key=lambda item: (item[0][0] * item[0][1], item[0])))


def waits_for_frame_size(folder: Path, size: Size | None, region_px: tuple[int, int, int, int] | None) -> bool:
    """Whether only the size of the camera's frames can say which member a line takes."""
    return size is None and region_px is None and len(members(folder)) > 1


def member(folder: Path, size: Size | None, looked_at: Size | None) -> Path:
    """The member that a line takes; the folder itself if it is no family.

    Args:
        folder: what `model.path` names.
        size: `model.size`: the member of exactly this size.
        looked_at: size of what is looked at: the region of the frame, else the whole frame. Without `size`, the
            smallest member into which it fits unshrunk, else the largest. A family of one needs neither.

    Raises:
        ConfigError: no such size, or nothing says which.
    """
    known = members(folder)
    if not known:
        return folder
    sizes = ", ".join(f"{width}x{height}" for width, height in known)
    if size is not None:
        if size not in known:
            raise ConfigError(
                "this family of models has not that size", where=str(folder), wanted=sizes, got=f"{size[0]}x{size[1]}",
                remedy="set model.size to one of them, or import that size too",
            )  # fmt: skip
        return known[size]
    if len(known) == 1:
        return next(iter(known.values()))
    if looked_at is None:
        raise ConfigError(
            "which of a family's sizes to run is not said",
            where=str(folder),
            wanted=f"model.size, one of {sizes}; or preprocess.region_px, or a camera whose frames are all of one size",
            got="none of them",
        )
    holding = [path for (width, height), path in known.items() if width >= looked_at[0] and height >= looked_at[1]]
    return holding[0] if holding else list(known.values())[-1]
