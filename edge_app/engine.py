"""One loaded plan of a model, whole: frame -> preprocess -> run -> decode -> detections in sensor pixels."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edge_app.clock import monotonic_us
from edge_app.config.tensor import InputSpec
from edge_app.detections import Classes, Detections
from edge_app.errors import RuntimeFault
from edge_app.frame import Frame, PixelFormat, YuvMatrix, YuvRange
from edge_app.preprocess import Fit, Geometry, Plan, Source, Tensor
from edge_app.runtime.base import Binding, Session
from edge_app.verdict import PlanKind, PowerMode

if TYPE_CHECKING:
    from edge_app.preprocess.geometry import Region

Decode = Callable[[tuple[npt.NDArray[np.generic], ...], Geometry], Detections | Classes]
KEPT_PLANS = 16
MARK = np.random.default_rng(0).integers(0, 256, 64, np.uint8)
"""Put at the head of each output before a run. Found there afterwards, the run has written nothing: what stands behind
it is another frame's."""
MARK_BYTES = MARK.tobytes()
LEAST_MARKED = 8
"""Bytes; fewer may look like it by chance."""


@dataclass(slots=True, eq=False)
class Work:
    """A slot's buffers for one engine, and which preprocessing plan's padding they hold.

    It knows its engine, so that a plan that was built again never runs on buffers of the session before.
    """

    engine: Engine
    binding: Binding
    prepared_for: Plan | None = None
    geometry: Geometry | None = None
    heads: tuple[npt.NDArray[np.uint8], ...] = field(init=False, default=())
    """Where the outputs are marked; the null session has none, since its outputs are there before any run."""

    def __post_init__(self) -> None:
        if self.engine.session.plan is not PlanKind.NULL:
            heads = [output.reshape(-1).view(np.uint8)[: len(MARK)] for output in self.binding.outputs]
            self.heads = tuple(head for head in heads if len(head) >= LEAST_MARKED)


class Engine:
    """A session with the preprocessing before it and the decode behind it."""

    def __init__(self, session: Session, image: InputSpec, decode: Decode, region_px: Region | None = None) -> None:
        """Joins the three.

        Args:
            session: loaded.
            image: how the session's input is made from a picture.
            decode: outputs and geometry to detections; raises InvalidOutput.
            region_px: the part of the frame that is looked at.
        """
        self.session = session
        self.decode = decode
        self._tensor = tensor_of(image)
        self._fit = fit_of(image, region_px)
        self._plans: dict[tuple[Source, Region | None], Plan] = {}
        self._plans_lock = threading.Lock()  # line, canary and self-test may come from different threads

    @property
    def plan(self) -> PlanKind:
        """Which plan this is."""
        return self.session.plan

    def bind(self) -> Work:
        """Buffers for one slot."""
        return Work(self, self.session.bind())

    def preprocess(self, frame: Frame, work: Work, region_px: Region | None = None) -> None:
        """Writes a complete frame into the slot's input; `region_px`: only this part of it (None: the engine's own)."""
        plan = self._plan_for(frame, region_px)
        if work.prepared_for is not plan:
            plan.prepare(work.binding.input)
            work.prepared_for = plan
        if frame.pixels is None:
            raise RuntimeFault("a frame without pixels came to be inspected", got=frame.status)
        plan.run(memory_of(frame.pixels), work.binding.input)
        work.geometry = plan.geometry

    def run(self, work: Work, power_mode: PowerMode) -> None:
        """One inference; raises RuntimeFault, also if it ended well and has written nothing."""
        for head in work.heads:
            head[:] = MARK[: len(head)]
        self.session.run(work.binding, power_mode)
        for head in work.heads:
            if head.tobytes() == MARK_BYTES[: len(head)]:
                raise RuntimeFault(f"a run on plan {self.plan} ended as if all were well, but has written no output")

    def result(self, work: Work) -> Detections | Classes:
        """What the last run found; raises InvalidOutput."""
        if work.geometry is None:
            raise RuntimeFault("a result was asked for before any picture was put in")
        return self.decode(work.binding.outputs, work.geometry)

    def warm_up(self, work: Work, runs: int, power_mode: PowerMode | None = None) -> list[int]:
        """Runs on whatever is in the buffers, in burst unless told otherwise; each run's microseconds."""
        if power_mode is None:
            power_mode = PowerMode.BURST if self.session.provider == "qnn" else PowerMode.NONE
        times = []
        for _ in range(runs):
            start = monotonic_us()
            self.run(work, power_mode)
            times.append(monotonic_us() - start)
        return times

    def _plan_for(self, frame: Frame, region_px: Region | None) -> Plan:
        key = source_of(frame), region_px
        with self._plans_lock:
            plan = self._plans.get(key)
            if plan is None:
                if len(self._plans) >= KEPT_PLANS:
                    self._plans.pop(next(iter(self._plans)))
                fit = self._fit if region_px is None else replace(self._fit, region=region_px)
                plan = self._plans[key] = Plan(key[0], self._tensor, fit)
        return plan


def tensor_of(image: InputSpec) -> Tensor:
    """The preprocessing's view of a model's input."""
    return Tensor(
        width=image.width, height=image.height, layout=image.layout, dtype=image.dtype, color=image.color,
        scale=image.scale, mean=image.mean, std=image.std,
        quant_scale=image.quant_scale, quant_zero_point=image.quant_zero_point,
    )  # fmt: skip


def fit_of(image: InputSpec, region_px: Region | None = None) -> Fit:
    """How a picture is put into a model's input; `region_px`: the part of the frame that is looked at."""
    return Fit(
        mode=image.fit, method=image.method, pad_value=image.pad_value, region=region_px,
        shorter_side=image.shorter_side,
    )  # fmt: skip


def source_of(frame: Frame) -> Source:
    """How a frame's pixels lie in memory."""
    stride = None if frame.pixels is None else frame.pixels.strides[0]
    return _source(frame.width, frame.height, frame.pixel_format, stride, frame.yuv_matrix, frame.yuv_range)


@lru_cache(maxsize=64)
def _source(
    width: int, height: int, pixel_format: PixelFormat, stride: int | None, matrix: YuvMatrix, range_: YuvRange
) -> Source:
    """One object for all frames of a camera, so that looking its plan up is quick."""
    return Source(width, height, pixel_format, stride, matrix=matrix, range=range_)


def memory_of(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The one piece of memory that holds a picture, padding of its rows included, as a flat view."""
    if pixels.flags.c_contiguous:
        return pixels
    length = (pixels.shape[0] - 1) * pixels.strides[0] + int(np.prod(pixels.shape[1:]))
    return np.lib.stride_tricks.as_strided(pixels, (length,), (1,), writeable=False)
