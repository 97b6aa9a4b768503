"""What a model file says of itself, and how its input is made: as told, as exporters note it, or as makers train it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, Literal

from onnx import ModelProto

from edge_app.config.tensor import HeadKind, HeadSpec, InputSpec, Layout, make_input
from edge_app.errors import ConfigError
from edge_app.toolchain import graph

Task = Literal["detect", "classify"]
INPUT_KEYS = ("color", "fit", "method", "pad_value", "shorter_side", "scale", "mean", "std")


@dataclass(frozen=True, slots=True)
class Given:
    """What the caller knows of the model; None where the file is to say."""

    name: str
    task: Task
    labels: tuple[str, ...] | None = None
    head: HeadKind | None = None
    size: tuple[int, int] | None = None
    """Width, height for a model that leaves them open."""
    color: str | None = None
    fit: str | None = None
    method: str | None = None
    pad_value: int | None = None
    shorter_side: int | None = None
    scale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


def size_of(model: ModelProto, where: str) -> tuple[int, int]:
    """Height and width of the input."""
    shape = [d.dim_value for d in graph.image_input(model, where).type.tensor_type.shape.dim]
    return (shape[2], shape[3]) if shape[1] in (1, 3) else (shape[1], shape[2])


def image_of(
    model: ModelProto,
    size: tuple[int, int],
    given: Given,
    metadata: dict[str, str],
    head: HeadSpec,
    notes: list[str],
    where: str,
) -> InputSpec:
    """How the input is made: as the caller says, else as the makers of the model's kind train it, and that is noted."""
    info = graph.image_input(model, where)
    shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
    layout: Layout = "NCHW" if shape[1] in (1, 3) else "NHWC"
    channels = shape[1] if layout == "NCHW" else shape[3]
    said = {key: getattr(given, key) for key in INPUT_KEYS}
    known: dict[str, Any] = {key: value for key, value in said.items() if value is not None}
    missing = [f"--{key}" for key in ("color", "fit", "scale") if key not in known]
    custom = _custom(given, metadata, head)
    if missing and custom is None:
        raise ConfigError(
            "the model does not say how its input is made",
            where=where,
            wanted=" ".join(missing),
            got="no metadata of a known exporter",
            remedy="state it as in training, e.g. --color RGB --fit crop --scale 0.00392157",
        )
    if missing and custom is not None:
        maker, habits = custom
        known = {**habits, **known}
        notes.append(f"{', '.join(missing)} not given: as {maker} trains, {habits}")
    if channels == 1:
        known["color"] = "GRAY"
    return make_input(where, name=info.name, width=size[1], height=size[0], layout=layout, **known)


def _custom(given: Given, metadata: dict[str, str], head: HeadSpec) -> tuple[str, dict[str, Any]] | None:
    """How a known maker's models take their pictures."""
    if "ultralytics" in metadata.get("author", "").lower():
        habits: dict[str, Any] = {"color": "RGB", "fit": "letterbox", "scale": 1 / 255}
        if given.task == "classify":
            habits |= {"fit": "crop", "method": "antialias"}  # torchvision's Resize and CenterCrop
        return "Ultralytics", habits
    if head.kind == "yolox":
        return "YOLOX", {"color": "BGR", "fit": "letterbox_topleft", "scale": 1.0}
    return None


def size_in(metadata: dict[str, str]) -> tuple[int, int] | None:
    """Width, height that Ultralytics left in the file."""
    try:
        height, width = ast.literal_eval(metadata["imgsz"])
        return int(width), int(height)
    except (KeyError, ValueError, SyntaxError, TypeError):
        return None


def labels_in(metadata: dict[str, str]) -> tuple[str, ...] | None:
    """Labels that Ultralytics left in the file, a dict literal."""
    if "names" not in metadata:
        return None
    try:
        names = ast.literal_eval(metadata["names"])
        return tuple(str(names[index]) for index in range(len(names)))
    except (ValueError, SyntaxError, KeyError, TypeError):
        return None


def origin_in(metadata: dict[str, str]) -> str:
    """What the exporter says of itself, for the manifest."""
    said = [f"{key} {metadata[key]}" for key in ("description", "author", "version", "date") if key in metadata]
    return f" ({', '.join(said)})" if said else ""
