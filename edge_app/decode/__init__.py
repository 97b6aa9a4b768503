"""Raw output tensors to detections or class scores."""

from collections.abc import Sequence

from edge_app.decode.classify import ClassifyDecoder
from edge_app.decode.head import HeadKind, HeadSpec, Output, TensorInfo, classes_of, recognise
from edge_app.decode.yolo import YoloDecoder

__all__ = [
    "ClassifyDecoder", "HeadKind", "HeadSpec", "Output", "TensorInfo", "YoloDecoder",
    "classes_of", "make_decoder", "recognise",
]  # fmt: skip


def make_decoder(spec: HeadSpec, outputs: Sequence[TensorInfo]) -> YoloDecoder | ClassifyDecoder:
    """The decoder of a head; `outputs` in the session's order.

    Raises:
        ConfigError: the outputs are not those of the head.
    """
    return ClassifyDecoder(spec, outputs) if spec.kind == "classify" else YoloDecoder(spec, outputs)
