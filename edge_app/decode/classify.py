"""Decode of classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_app.decode.head import HeadSpec, TensorInfo
from edge_app.detections import Classes
from edge_app.errors import ConfigError, InvalidOutput


class ClassifyDecoder:
    """Scores of a classifier, from probabilities or logits; integer outputs by their encoding.

    Raises:
        ConfigError: the output is not that of a classifier with the head's classes.
    """

    def __init__(self, spec: HeadSpec, outputs: Sequence[TensorInfo]) -> None:
        if len(outputs) != 1 or tuple(outputs[0].shape) != (1, spec.classes):
            raise ConfigError(
                "the outputs are not those of a classifier",
                wanted=f"one output [1, {spec.classes}]",
                got=", ".join(f"{o.name} {list(o.shape)}" for o in outputs) or "no outputs",
                remedy="correct head and labels in the model's manifest",
            )
        output = outputs[0]
        if str(output.dtype) != "float32" and (output.scale is None or output.zero_point is None):
            raise ConfigError("an integer output needs its scale and zero point", got=f"{output.name} {output.dtype}")
        self.spec = spec
        self._output = output

    def __call__(self, outputs: Sequence[npt.NDArray[Any]]) -> Classes:
        """Class scores of one inference.

        Raises:
            InvalidOutput: a value is NaN or infinite, the array has another shape or type than the session said, or
                what should be probabilities are none.
        """
        wanted = (1, self.spec.classes)
        if len(outputs) != 1 or outputs[0].shape != wanted or str(outputs[0].dtype) != str(self._output.dtype):
            raise InvalidOutput(
                "the model's output has another shape or type than the session said",
                wanted=f"{wanted} {self._output.dtype}",
                got=", ".join(f"{o.shape} {o.dtype}" for o in outputs),
            )
        values = self._real(outputs[0][0])
        if self.spec.softmax:
            with np.errstate(over="ignore"):  # told below
                values = values / np.float32(self.spec.temperature)
        if not np.isfinite(values).all():
            raise InvalidOutput("the model's output is damaged: a value is NaN or infinite")
        if self.spec.softmax:
            return Classes(softmax(values))
        if values.min() < -1e-3 or abs(float(values.sum()) - 1) > 0.05:
            raise InvalidOutput(
                "the model's output is no list of probabilities",
                wanted="values of at least 0 that sum to 1",
                got=f"lowest {values.min():.4g}, sum {values.sum():.4g}",
                remedy="if the outputs are logits, set head.apply_softmax in the manifest",
            )
        return Classes(values)

    def _real(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        if values.dtype == np.float32:
            return values.astype(np.float32)
        scale, zero = self._output.scale, self._output.zero_point
        assert scale is not None  # the constructor saw to it
        assert zero is not None
        return (values.astype(np.int32) - zero).astype(np.float32) * np.float32(scale)


def softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """exp(x - max) / sum, float32 [C]."""
    powers = np.exp(logits - logits.max())
    shares: npt.NDArray[np.float32] = (powers / powers.sum()).astype(np.float32)
    return shares
