"""How a picture becomes the model's input: shared by manifests and pipelines."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from edge_app.config.base import Section
from edge_app.errors import ConfigError

FitMode = Literal["letterbox", "letterbox_topleft", "crop", "stretch"]
ResizeMethod = Literal["bilinear", "area", "antialias"]
ColorOrder = Literal["RGB", "BGR", "GRAY"]
Layout = Literal["NCHW", "NHWC"]

MOST_PX = 65_535
"""Of a side of a frame."""


class Preprocess(Section):
    """`preprocess:` of a pipeline: what is set here is cross-checked with the model's manifest, or stands in for it."""

    color: ColorOrder | None = Field(None, title="Colour order", description="Of the model's input.")
    layout: Layout | None = Field(None, title="Layout", description="Of the model's input.")
    fit: FitMode | None = Field(None, title="Fit", description="How the picture is fitted into the input.")
    method: ResizeMethod | None = Field(
        None,
        title="Resize method",
        description="bilinear (as OpenCV), area averaging, or antialiased (as torchvision).",
    )
    pad_value: int | None = Field(None, ge=0, le=255, title="Padding", description="Grey level of the letterbox bars.")
    shorter_side: int | None = Field(
        None,
        gt=0,
        title="Shorter side",
        description="fit: crop only: px that the picture's shorter side is resized to before the centre is cut out, as"
        " Resize(256) and CenterCrop(224); null: just so that the picture covers the input.",
    )
    scale: float | None = Field(None, gt=0, title="Scale", description="value = (pixel * scale - mean) / std.")
    mean: tuple[float, ...] | None = Field(None, title="Mean", description="Per channel, after scale.")
    std: tuple[float, ...] | None = Field(None, title="Std", description="Per channel, after scale.")
    region_px: tuple[int, int, int, int] | None = Field(
        None, title="Region", description="x0, y0, x1, y1 of the frame that is looked at; null: all of it."
    )

    @model_validator(mode="after")
    def _region_has_an_area(self) -> Self:
        x0, y0, x1, y1 = self.region_px or (0, 0, 1, 1)
        if not (0 <= x0 < x1 <= MOST_PX and 0 <= y0 < y1 <= MOST_PX):
            raise ValueError(f"region_px: wanted 0 <= x0 < x1 and 0 <= y0 < y1, up to {MOST_PX}, got {self.region_px}")
        return self


class InputSpec(Section):
    """The model's input tensor and how a picture is put into it. value = (pixel * scale - mean) / std."""

    name: str = Field(title="Name", description="Of the graph's input.")
    width: int = Field(gt=0, title="Width", description="px")
    height: int = Field(gt=0, title="Height", description="px")
    layout: Layout = Field("NCHW", title="Layout")
    dtype: Literal["float32", "uint8", "uint16"] = Field("float32", title="Type")
    color: ColorOrder = Field("RGB", title="Colour order")
    fit: FitMode = Field("letterbox", title="Fit")
    method: ResizeMethod = Field("bilinear", title="Resize method")
    pad_value: int = Field(114, ge=0, le=255, title="Padding")
    shorter_side: int | None = Field(
        None,
        gt=0,
        title="Shorter side",
        description="fit: crop only: px that the picture's shorter side is resized to before the centre is cut out.",
    )
    scale: float = Field(1 / 255, gt=0, title="Scale")
    mean: tuple[float, ...] = Field((0.0, 0.0, 0.0), title="Mean")
    std: tuple[float, ...] = Field((1.0, 1.0, 1.0), title="Std")
    quant_scale: float | None = Field(None, gt=0, title="Encoding: scale", description="For integer inputs.")
    quant_zero_point: int | None = Field(None, ge=0, title="Encoding: zero point", description="For integer inputs.")

    @model_validator(mode="after")
    def _only_crops_have_a_shorter_side(self) -> InputSpec:
        if self.shorter_side is None:
            return self
        if self.fit != "crop":
            raise ValueError(f"shorter_side goes with fit: crop, not with {self.fit}")
        if self.shorter_side < min(self.width, self.height):
            raise ValueError(f"shorter_side {self.shorter_side} does not cover {self.width} x {self.height} px")
        return self

    @model_validator(mode="after")
    def _a_value_for_each_channel(self) -> InputSpec:
        channels = 1 if self.color == "GRAY" else 3
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) < channels:
                raise ValueError(f"{name} takes a value for each of {channels} channels, not {len(values)}")
        if 0 in self.std:
            raise ValueError("std is divided by: it must not be 0")
        return self


def make_input(where: str, **values: Any) -> InputSpec:
    """An InputSpec of values that a person gave.

    Raises:
        ConfigError: they do not go together; `where` is the model's file.
    """
    try:
        return InputSpec(**values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the input"
        raise ConfigError(
            f"the model's input can't be made so: {key}", where=where, got=first["msg"].removeprefix("Value error, ")
        ) from error


class OutputSpec(Section):
    """One output tensor; integer outputs carry their encoding: real = (q - zero_point) * scale."""

    name: str
    shape: tuple[int, ...]
    dtype: Literal["float32", "uint8", "uint16"] = "float32"
    quant_scale: float | None = Field(None, gt=0)
    quant_zero_point: int | None = Field(None, ge=0)


HeadKind = Literal["yolov8", "yolov8_cut", "yolov5", "yolox", "end2end", "classify"]


class HeadSpec(Section):
    """How the outputs are read."""

    kind: HeadKind = Field(title="Kind", description="Which head the model has.")
    strides: tuple[int, ...] = Field((8, 16, 32), title="Strides", description="Of the feature maps, px.")
    apply_softmax: bool = Field(False, title="Softmax", description="classify: the output is logits.")
    temperature: float = Field(1.0, gt=0, title="Temperature", description="classify: logits are divided by this.")
