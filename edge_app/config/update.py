"""`update:` of a pipeline: how another version of the model comes in while the line runs."""

from __future__ import annotations

from pydantic import Field

from edge_app.config.base import Section, YamlPath


class Update(Section):
    """Live update; see `edge_app model push`."""

    store: YamlPath | None = Field(
        default=None,
        title="Store",
        description="Folder of the versions that were pushed, made when the first one comes; null: PIPELINE.models"
        " beside the journal, without a journal in the working directory.",
    )
    watch_frames: int = Field(
        default=100,
        ge=1,
        title="Frames watched",
        description="So many frames must be inspected without a fault before a new version stays.",
    )
    most_late: int = Field(
        default=5,
        ge=0,
        title="Most late",
        description="So many frames more than the line had before may be LATE, OVERRUN or OVERLOAD meanwhile; one more,"
        " and the old version comes back.",
    )
    load_s: float = Field(
        default=600.0,
        gt=0,
        title="Longest load",
        description="Loading, warming and proving that takes longer hangs: the update is refused.",
    )
