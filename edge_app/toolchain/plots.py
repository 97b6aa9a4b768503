"""Pictures of a quantisation report."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from edge_app.toolchain.sensitivity import LayerError


def error_by_layer(errors: Sequence[LayerError]) -> Figure:
    """Draws what each layer alone at 8 bits does to the outputs, in graph order."""
    figure = Figure(figsize=(max(6.0, 0.16 * len(errors)), 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.bar(range(len(errors)), [e.error for e in errors], color="#2f6f9f")
    axes.set_xticks(range(len(errors)), [e.layer for e in errors], rotation=90, fontsize=5)
    axes.set_yscale("log")
    axes.set_ylabel("noise / signal of the outputs")
    axes.set_title("What each layer alone at 8 bits does")
    return figure
