"""The null session: costs nothing and replays a recorded output, so that the host alone can be measured.

It never answers zeros: without a recording there is no null session.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edge_app.errors import ModelError
from edge_app.runtime.base import Binding, TensorInfo
from edge_app.verdict import PlanKind, PowerMode


class NullSession:
    """Outputs are copied into a binding when it is made; a run does nothing."""

    plan = PlanKind.NULL
    provider = "null"
    simulated = True
    host_nodes: tuple[str, ...] = ()

    def __init__(self, image: TensorInfo, recording: Path) -> None:
        """Takes the model's input and a recording: an .npz with one array per output, in the graph's order.

        Raises:
            ModelError: no recording, or one that can't be read.
        """
        self.input = image
        try:
            with np.load(recording, allow_pickle=False) as arrays:
                self._recorded = {name: np.ascontiguousarray(arrays[name]) for name in arrays.files}
        except (OSError, ValueError) as error:
            raise ModelError(
                "the null session has no recorded output to replay",
                where=str(recording),
                got=str(error),
                remedy="use a model whose manifest has a canary, or another runtime.provider",
            ) from error
        self.outputs = tuple(TensorInfo(n, a.shape, a.dtype) for n, a in self._recorded.items())

    def bind(self) -> Binding:
        """Buffers that already hold the recorded outputs."""
        return Binding(self.input.empty(), tuple(a.copy() for a in self._recorded.values()), None)

    def run(self, binding: Binding, power_mode: PowerMode) -> None:
        """Nothing: the recorded outputs stand in the buffers."""

    def close(self) -> None:
        """Nothing to give back."""
