"""What all configuration sections share: strictness, and paths that are relative to the YAML that names them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainSerializer, ValidationInfo, model_validator

MOST_NUMBER, MOST_INTEGER = 1e9, 10**12
"""Of whatever unit: seconds, milliseconds as whole numbers, pixels, MiB."""


class Section(BaseModel):
    """A section of a YAML file: unknown keys are refused, values are not coerced, nothing changes after loading.

    Nor are `.nan` and `.inf` numbers here: a comparison with NaN is false, so a limit that is NaN would never hold.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _numbers_fit(self) -> Self:
        """What no clock could wait for and no array could hold would fail long after the start."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            most = MOST_INTEGER if isinstance(value, int) else MOST_NUMBER
            if isinstance(value, (int, float)) and abs(value) > most:
                raise ValueError(f"{name}: wanted at most {most:g}, got {str(value)[:40]}")
        return self


def without_password(source: str) -> str:
    """A source as it may be shown: without the password of a URL."""
    return re.sub(r"(?<=://)([^/@:]*):[^/]*@", r"\1:***@", source)


class RelativePath:
    """Marks a path that is relative to the file that names it (or, from `--set`, to the caller's folder)."""


def _resolve(path: Path, info: ValidationInfo) -> Path:
    if "\0" in str(path):
        raise ValueError("no file can have a NUL in its name")
    base = (info.context or {}).get("base")
    return path if base is None or path.is_absolute() else (Path(base) / path).resolve()


def _resolve_source(source: str, info: ValidationInfo) -> str:
    return source if "://" in source or source.isdecimal() else str(_resolve(Path(source), info))


YamlPath = Annotated[Path, RelativePath(), AfterValidator(_resolve)]
"""A file or folder; see RelativePath."""

SourcePath = Annotated[
    str, RelativePath(), AfterValidator(_resolve_source), PlainSerializer(without_password, when_used="json")
]
"""A file, a device, or a URL (left alone, and written into JSON without its password); see RelativePath."""
