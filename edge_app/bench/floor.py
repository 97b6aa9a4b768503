"""The memory floor: floor.c reads what a work must read and writes what it must write, and does nothing else."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_app.bench import peers
from edge_app.bench.timing import Work
from edge_app.frame import PixelFormat
from edge_app.preprocess import Plan

STREAMS = 4
"""Rows of a head that are read side by side: one alone does not keep memory busy."""


@functools.cache
def load() -> ctypes.CDLL | None:
    """floor.c, compiled with the system's compiler; None if there is none."""
    if shutil.which("cc") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        library, source = Path(folder, "floor.so"), Path(__file__).with_name("floor.c")
        subprocess.run(["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        floor = ctypes.CDLL(str(library))
    floor.floor_run.restype = ctypes.c_uint64
    return floor


def of_plan(plan: Plan) -> Work | None:
    """Reads the rows that the plan's method touches, across its region, and writes its output."""
    library = load()
    if library is None:
        return None
    s, g, t = plan.source, plan.geometry, plan.tensor
    span = g.scale_y if plan.fit.method != "bilinear" else (1 if float(g.scale_y) % 2 == 1 else 2)
    per_output = max(1, round(span))
    first = np.floor((np.arange(g.inner_height) + g.crop_y + 0.5) * g.scale_y - 0.5 * (span if span > 2 else 1))
    rows = np.clip(first[:, None] + np.arange(per_output), 0, s.height - 1).astype(np.int64)
    columns, pixel_bytes = peers.region(plan)[1], s.row_bytes // s.width
    row_bytes = (columns.stop - columns.start) * pixel_bytes
    offsets = np.ascontiguousarray(rows * s.stride_bytes)
    if s.pixel_format is PixelFormat.NV12:
        chroma = s.chroma[0] + rows // 2 * s.chroma[1]
        offsets = np.ascontiguousarray(np.concatenate([offsets, chroma[:, ::2]], axis=1))
        per_output += -(-per_output // 2)
    offsets += columns.start * pixel_bytes
    out = t.empty()
    planes = t.channels if t.layout == "NCHW" else 1
    plane, out_row = out.nbytes // planes, g.inner_width * out.itemsize * t.channels // planes
    args = (
        offsets.ctypes.data_as(ctypes.c_void_p), g.inner_height, per_output, ctypes.c_size_t(row_bytes),
        out.ctypes.data_as(ctypes.c_void_p), planes, ctypes.c_size_t(plane), ctypes.c_size_t(out_row),
    )  # fmt: skip
    return lambda frame: (library.floor_run(frame.ctypes.data_as(ctypes.c_void_p), *args), out, offsets)


def of_head(rows: int, row_bytes: int) -> Work | None:
    """Reads a head's tensor of so many rows, a multiple of STREAMS, and writes nothing."""
    library = load()
    if library is None:
        return None
    offsets = np.arange(rows, dtype=np.int64) * row_bytes
    row, where = ctypes.c_size_t(row_bytes), offsets.ctypes.data_as(ctypes.c_void_p)
    no_planes = (None, 0, ctypes.c_size_t(0))

    def work(head: npt.NDArray[np.float32]) -> object:
        start = head.ctypes.data_as(ctypes.c_void_p)
        return library.floor_run(start, where, rows // STREAMS, STREAMS, row, *no_planes, row), offsets

    return work
