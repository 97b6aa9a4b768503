from collections.abc import Sequence
from typing import Any

def head(
    kind: int,
    classes: int,
    anchors: int,
    agnostic: bool,
    max_detections: int,
    iou: float,
    thresholds: Sequence[float],
    levels: Sequence[tuple[int, int, int, int, int, float, int, int, float]],
    /,
) -> object: ...
def decode(head: object, tensors: Sequence[Any], /) -> tuple[bytearray, bytearray, bytearray, int]: ...
