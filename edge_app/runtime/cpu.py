"""The cpu plan: onnxruntime's CPU execution provider."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edge_app.verdict import PlanKind

if TYPE_CHECKING:
    from edge_app.runtime.ort import OrtSession


def open_cpu(file: Path, threads: int | None = None) -> OrtSession:
    """Loads an ONNX model on the CPU.

    Args:
        file: the ONNX file.
        threads: of one inference; None: as many as cores.

    Raises:
        ModelError: absent, empty, damaged, several inputs, or shapes that are not static.
    """
    from edge_app.runtime.ort import OrtSession, load, session_options  # what runs no model does not load onnxruntime

    options = session_options(threads)
    return OrtSession(load(file, options), file, PlanKind.CPU, provider="cpu", simulated=False)
