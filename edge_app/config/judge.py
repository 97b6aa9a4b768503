"""`judge:` of a pipeline: the recipe by which detections become a verdict."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edge_app.config.base import Section, YamlPath


class ClassRule(Section):
    """What makes a detection of one class a defect."""

    score: float | None = Field(
        None, gt=0, le=1, title="FAIL at", description="A score at or above this is a defect; null: the manifest's."
    )
    marginal: float | None = Field(
        None,
        gt=0,
        le=1,
        title="MARGINAL at",
        description="At or above this, and below `score`: UNKNOWN; null: the manifest's.",
    )
    min_size_px: float = Field(
        0, ge=0, title="Smallest size", description="Longer side of the box; smaller is ignored."
    )
    max_count: int = Field(0, ge=0, title="Largest count", description="So many of this class are still accepted.")


class Region(Section):
    """A polygon in sensor pixels."""

    name: str
    kind: Literal["inspect", "ignore"] = Field(
        title="Kind", description="inspect: only detections centred in such a region count; ignore: those in it do not."
    )
    polygon_px: tuple[tuple[float, float], ...] = Field(min_length=3, title="Corners", description="x, y in order.")


class Judge(Section):
    """The recipe."""

    default: ClassRule = Field(
        default_factory=lambda: ClassRule(), title="Default rule", description="For labels not named."
    )
    classes: dict[str, ClassRule] = Field(default_factory=dict, title="Rules by label")
    regions: tuple[Region, ...] = Field((), title="Regions")
    guard: YamlPath | None = Field(
        None,
        title="Frame guard",
        description="Limits learnt from good frames (`edge_app calibration guard --from DIR`); null: only what needs"
        " no reference (darkness, flat or clipped pictures) is checked.",
    )
