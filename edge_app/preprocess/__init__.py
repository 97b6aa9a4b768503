"""Camera frame to model input in one pass of C: colour, crop, resize, letterbox, layout, normalise or quantise."""

from edge_app.preprocess.geometry import Geometry
from edge_app.preprocess.measure import FrameMeasures, measure
from edge_app.preprocess.plan import Fit, Plan, Source, Tensor
from edge_app.preprocess.thumbnail import Difference, Thumbnailer, difference

__all__ = [
    "Difference",
    "Fit",
    "FrameMeasures",
    "Geometry",
    "Plan",
    "Source",
    "Tensor",
    "Thumbnailer",
    "difference",
    "measure",
]
