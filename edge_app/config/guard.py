"""A guard file: what good frames of one or more products look like (`edge_app calibration guard` writes it)."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError, model_validator

from edge_app.config.base import Section
from edge_app.errors import ConfigError

Share = Annotated[float, Field(ge=0, le=1)]


class GuardLimits(Section):
    """What good frames of a product keep to. Luma and contrast are 0..255."""

    luma: tuple[float, float] = Field(title="Mean luma", description="Lowest and highest.")
    least_contrast: float = Field(ge=0, title="Contrast", description="99th less 1st percentile of luma.")
    most_dark: Share = Field(title="Clipped to black", description="Share of the frame.")
    most_bright: Share = Field(title="Clipped to white", description="Share of the frame.")
    most_noise: float = Field(ge=0, title="Noise", description="Grey levels.")
    widest_edge_px: float = Field(gt=0, title="Edges", description="Width of edges; blur widens them.")
    least_detail: float = Field(ge=0, title="Detail", description="Share of the reference's; blur takes it away.")
    largest_shift_px: float = Field(ge=0, title="Shift", description="Off the reference's place, along each axis.")
    least_match: float = Field(ge=0, le=1, title="Match", description="Correlation with a reference.")


class GuardReferences(Section):
    """Profiles of N frames: mean luma by column and by row, as shares of the contrast. No pictures."""

    count: int = Field(ge=1, title="N")
    samples: int = Field(ge=1, title="Values of a profile")
    columns: str = Field(title="By column", description="base64 of int8 [N, samples], 127 for 1.")
    rows: str = Field(title="By row", description="base64 of int8 [N, samples], 127 for 1.")
    detail: str = Field(title="Detail", description="base64 of little-endian float32 [N].")

    @model_validator(mode="after")
    def _lengths_fit(self) -> Self:
        profiles = self.count * self.samples
        for name, text, wanted in (
            ("columns", self.columns, profiles), ("rows", self.rows, profiles), ("detail", self.detail, 4 * self.count)
        ):  # fmt: skip
            try:
                got = len(base64.b64decode(text, validate=True))
            except binascii.Error as error:
                raise ValueError(f"{name} is no base64: {error}") from error
            if got != wanted:
                raise ValueError(f"{name} holds {got} bytes, wanted {wanted}")
        if not np.isfinite(unpacked_values(self.detail)).all():  # a comparison with NaN is false: nothing were blurred
            raise ValueError("detail holds a value that is no number")
        return self


class GuardProduct(Section):
    """One product."""

    name: str = Field(min_length=1, title="Name")
    width: int = Field(gt=0, title="Width", description="Of its frames, px.")
    height: int = Field(gt=0, title="Height", description="Of its frames, px.")
    learnt_from: str = Field("", title="Learnt from", description="Where the frames came from, and how many.")
    limits: GuardLimits
    references: GuardReferences


class GuardFile(Section):
    """The file."""

    version: Literal[1] = 1
    products: tuple[GuardProduct, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [product.name for product in self.products]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"products of the same name: {', '.join(twice)}")
        return self


def load_guard_file(file: Path) -> GuardFile:
    """Reads and checks a guard file. Raises ConfigError."""
    remedy = "learn it anew: edge_app calibration guard --from DIR --out FILE"
    try:
        return GuardFile.model_validate_json(file.read_bytes())
    except OSError as error:
        raise ConfigError(
            "can't read the guard file",
            where=str(file),
            got=error.strerror or str(error),
            remedy="see who may read it" if isinstance(error, PermissionError) else remedy,
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            "not a guard file", where=f"{file}: {key}" if key else str(file), got=first["msg"], remedy=remedy
        ) from error


def packed(profiles: npt.NDArray[np.float32]) -> str:
    """base64 of profiles [N, samples] as int8; what exceeds the contrast is clipped."""
    return _text(np.clip(np.rint(profiles * 127), -127, 127).astype(np.int8))


def unpacked(text: str, count: int) -> npt.NDArray[np.float32]:
    """Profiles float32 [count, samples]."""
    whole = np.frombuffer(base64.b64decode(text), np.int8).reshape(count, -1)
    return np.asarray(whole.astype(np.float32) / np.float32(127), np.float32)


def packed_values(values: npt.NDArray[np.float32]) -> str:
    """base64 of float32 [N]."""
    return _text(values.astype("<f4"))


def unpacked_values(text: str) -> npt.NDArray[np.float32]:
    """float32 [N]."""
    return np.frombuffer(base64.b64decode(text), "<f4").astype(np.float32)


def _text(values: npt.NDArray[np.generic]) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")
