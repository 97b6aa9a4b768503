"""The one seam behind which a model runs: bind buffers once, run many times.

A Session is one plan of a model, loaded. A Binding is one set of caller-visible buffers (a slot's): the C kernels write
the input in place and the decoder reads the outputs in place, so no tensor is copied per frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edge_app.verdict import PlanKind, PowerMode

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A graph input or output. Integer tensors may carry their encoding: real = (q - zero_point) * scale."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    scale: float | None = None
    zero_point: int | None = None

    def empty(self) -> Array:
        """A zeroed array of this shape, its pages touched, 64-byte aligned for the kernels."""
        count = int(np.prod(self.shape))
        raw = np.zeros(count * self.dtype.itemsize + 64, np.uint8)
        start = -raw.ctypes.data % 64
        return raw[start : start + count * self.dtype.itemsize].view(self.dtype).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Binding:
    """Buffers bound to a session. `handle` belongs to the session's own implementation."""

    input: Array
    outputs: tuple[Array, ...]
    handle: Any


class Session(Protocol):
    """A loaded plan.

    One thread owns a session; two threads running it would not overlap on the HTP.
    """

    @property
    def plan(self) -> PlanKind:
        """Which plan this is."""

    @property
    def provider(self) -> str:
        """`cpu`, `qnn` or `null`."""

    @property
    def simulated(self) -> bool:
        """Whether its answers do not come from the board's own hardware."""

    @property
    def input(self) -> TensorInfo:
        """The one input."""

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The outputs, in the graph's order."""

    @property
    def host_nodes(self) -> tuple[str, ...]:
        """Nodes that were read back as placed on the CPU, as `name (op type)`."""

    def bind(self) -> Binding:
        """Fresh buffers, bound."""

    def run(self, binding: Binding, power_mode: PowerMode) -> None:
        """One inference from the bound input into the bound outputs.

        Raises:
            RuntimeFault: the run failed; the outputs are then worthless.
        """

    def close(self) -> None:
        """Gives the session's memory back. Not to be called while a run may still be under way."""


def numpy_dtype(onnx_type: str, where: str) -> np.dtype[Any]:
    """NumPy type of an onnxruntime type name such as `tensor(float)`."""
    from edge_app.errors import ModelError

    known = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(uint16)": np.uint16}
    if onnx_type not in known:
        raise ModelError(
            "a tensor has a type that this product does not feed or read",
            where=where,
            wanted="float32, uint8 or uint16",
            got=onnx_type,
            remedy="export the model with float32 inputs and outputs",
        )
    return np.dtype(known[onnx_type])
