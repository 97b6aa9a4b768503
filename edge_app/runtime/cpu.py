"""The cpu plan: onnxruntime's CPU execution provider."""

from __future__ import annotations

from pathlib import Path

from edge_app.runtime.ort import OrtSession, load, session_options
from edge_app.verdict import PlanKind


def open_cpu(file: Path, threads: int | None = None) -> OrtSession:
    """Loads an ONNX model on the CPU.

    Args:
        file: the ONNX file.
        threads: of one inference; None: as many as cores.

    Raises:
        ModelError: absent, empty, damaged, several inputs, or shapes that are not static.
    """
    options = session_options(threads)
    return OrtSession(load(file, options), file, PlanKind.CPU, provider="cpu", simulated=False)
