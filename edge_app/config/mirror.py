"""`gate:` and `decision:` of a pipeline that names what stands before it, instead of judging parts."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from edge_app.config.base import Section


class Energy(Section):
    """Two figures of the board, from which the report estimates power. They are not measured here."""

    idle_w: float = Field(ge=0, title="Idle", description="W of the whole node with the NPU at rest.")
    active_w: float = Field(gt=0, title="Active", description="W of the whole node while an inference runs.")

    @model_validator(mode="after")
    def _active_is_more(self) -> Self:
        if self.active_w < self.idle_w:
            raise ValueError(f"active_w {self.active_w} is below idle_w {self.idle_w}")
        return self


class Gate(Section):
    """The motion gate: no inference while nothing has changed since the last one, or while nobody is there.

    It looks at 64 x 48 points, each the mean luma of its part of the frame; light that changes everywhere alike is no
    change. `moving`, `still` and `somebody` are shares of these points.
    """

    step: int = Field(
        8, ge=1, le=254, title="Step", description="Grey levels by which a point must differ to count as changed."
    )
    moving: float = Field(
        0.01, gt=0, le=1, title="Moving at", description="Share of points that changed since the last inference."
    )
    still: float = Field(0.004, gt=0, le=1, title="Still below", description="Likewise; between both: as it was.")
    settle_s: float = Field(
        0.6, ge=0, title="Settle", description="Inference goes on for this long after the last movement."
    )
    keep_alive_s: float = Field(
        2.0, gt=0, title="Keep-alive", description="One inference in this time while the scene is still."
    )
    most_per_s: float | None = Field(
        10.0, gt=0, title="Most inferences a second", description="While something moves; null: every frame."
    )
    somebody: float | None = Field(
        0.04,
        gt=0,
        le=1,
        title="Somebody at",
        description="Share of points that differ from the empty scene; below: nobody is there, no inference at all."
        " null: not told apart, every still scene gets its keep-alive.",
    )
    relearn_s: float | None = Field(
        120.0,
        gt=0,
        title="Relearn",
        description="A scene without any movement for this long is the empty one from then on. The first frame after"
        " the start is taken for empty. null: only that, and slow changes while nobody is there.",
    )

    @model_validator(mode="after")
    def _still_is_less(self) -> Self:
        if self.still > self.moving:
            raise ValueError(f"still {self.still} is above moving {self.moving}: the gate would flap")
        return self


class Decision(Section):
    """From scores frame by frame to one stable label, or to `unknown`. Each change of it is one result."""

    smooth_s: float = Field(
        0.4, ge=0, title="Smoothing", description="Time constant of the moving average of the probabilities; 0: none."
    )
    name_at: float = Field(
        0.7, gt=0, le=1, title="Name at", description="Smoothed probability at which a label is given."
    )
    keep_at: float = Field(
        0.45, gt=0, le=1, title="Keep at", description="A label that is given stays while it has at least this."
    )
    dwell_s: float = Field(
        0.5, gt=0, title="Dwell", description="A change must last so long before it is told; so nothing flaps faster."
    )
    hold_s: float = Field(
        3.0,
        gt=0,
        title="Hold",
        description="Without a new inference (camera or NPU gone, dark) a label is kept this long, never longer.",
    )
    energy: Energy | None = Field(
        None, title="Energy", description="Of the board, for the estimate in the report; null: no estimate."
    )

    @model_validator(mode="after")
    def _thresholds_fit(self) -> Self:
        if self.keep_at > self.name_at:
            raise ValueError(f"keep_at {self.keep_at} is above name_at {self.name_at}: a label would go as it comes")
        if self.hold_s < 2 * self.dwell_s:
            raise ValueError(f"hold_s {self.hold_s} is below twice dwell_s {self.dwell_s}: labels would go too fast")
        return self
