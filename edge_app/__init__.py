"""edge_app: vision inspection for Snapdragon boards.

`edge_app.load("models/pcb-defect")(image)` gives the detections of one picture; the line itself is started by
`edge_app --pipeline FILE`. Names are imported on first use, so that `edge_app.client` needs pyzmq alone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# onnxruntime 1.29 and newer tells its maker which models run where, from the moment it is imported, and leaves an
# identifier in the home folder. What happens on a line is nobody's business; this must be set before that import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__version__ = "0.1.0"
__all__ = ["__version__", "load"]

if TYPE_CHECKING:
    from edge_app.predictor import load


def __getattr__(name: str) -> Any:
    if name == "load":
        from edge_app.predictor import load

        return load
    raise AttributeError(f"module 'edge_app' has no attribute {name!r}")
