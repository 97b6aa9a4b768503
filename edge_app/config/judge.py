"""`judge:` of a pipeline: the recipe by which detections become a verdict."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

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
    polygon_px: tuple[tuple[float, float], ...] = Field(
        min_length=3, title="Corners", description="x, y in px of the frame, in order around the region."
    )

    @field_validator("polygon_px")
    @classmethod
    def _covers_pixels(cls, polygon: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
        """Nothing is ever found in a region without an area: of corners in shares of the frame, or not in order."""
        turned = zip(polygon, (*polygon[1:], polygon[0]), strict=True)
        area = abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in turned)) / 2
        if area <= 1:
            raise ValueError(f"the region covers {area:g} px²; corners are in px of the frame, in order around it")
        return polygon


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
