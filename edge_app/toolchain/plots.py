"""Pictures of a quantisation report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edge_app.errors import ConfigError
from edge_app.toolchain.sensitivity import LayerError


def error_by_layer(errors: Sequence[LayerError], file: Path) -> None:
    """Draws what each layer alone at 8 bits does to the outputs, in graph order.

    Raises:
        ConfigError: there is nothing to draw: no sensitivity analysis was asked for.
    """
    if not errors:
        raise ConfigError("there is no error by layer to draw", where=str(file), remedy="give --target-loss as well")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(6.0, 0.16 * len(errors)), 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.bar(range(len(errors)), [e.error for e in errors], color="#2f6f9f")
    axes.set_xticks(range(len(errors)), [e.layer for e in errors], rotation=90, fontsize=5)
    axes.set_yscale("log")
    axes.set_ylabel("noise / signal of the outputs")
    axes.set_title("What each layer alone at 8 bits does")
    figure.savefig(file, dpi=150)
