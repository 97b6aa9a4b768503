"""`detector:` of a pipeline: a model that finds where the pipeline's own model, a classifier, is to look."""

from __future__ import annotations

from pydantic import Field

from edge_app.config.base import Section, YamlPath


class Detector(Section):
    """The first of two stages: its boxes are cropped, and each crop is named by the classifier."""

    path: YamlPath = Field(title="Model", description="A model folder with a manifest.yaml, task: detect.")
    labels: tuple[str, ...] | None = Field(
        None, min_length=1, title="Labels", description="Of the detector: only these boxes are cropped; null: all."
    )
    score: float | None = Field(
        None, gt=0, le=1, title="Score", description="A box needs at least this; null: the manifest's, else 0.5."
    )
    margin: float = Field(
        0.1, ge=0, le=2, title="Margin", description="Around each box, as a share of its longer side."
    )
    most: int = Field(8, ge=1, le=64, title="Most crops", description="More in one frame is UNKNOWN, never cut.")
    fewest: int = Field(
        1,
        ge=0,
        title="Fewest crops",
        description="Fewer in one frame is UNKNOWN/NO_PART; 0: a frame in which nothing is found is fine.",
    )
    sure_at: float = Field(
        0.6, gt=0, le=1, title="Sure at", description="A crop whose best label has less makes a part UNKNOWN/MARGINAL."
    )
