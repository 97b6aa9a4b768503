"""Which head a model has, and where to cut a YOLO so that what quantises badly is left to the C decode.

YOLOv8's graph ends in a concat of boxes in pixels and scores in 0..1. Under one 8-bit scale every score rounds to 0:
measured mAP 0.0. Cut before the DFL, the outputs are the last convs, each with a scale of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx import ModelProto, NodeProto

from edge_app.config.tensor import HeadSpec
from edge_app.errors import ModelError
from edge_app.toolchain.graph import Index, Shape, ancestors, cut_at

BEFORE_NMS = "predictions"
"""What the head's output is called once an NMS behind it was taken off."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One of the last convs of a YOLOv8 head: its output tensor [1, channels, h, w] and what it carries."""

    tensor: str
    kind: str
    """`box` (DFL logits) or `cls` (class logits)."""
    stride: int
    channels: int


def recognise(model: ModelProto, size: tuple[int, int], labels: int | None, task: str, where: str) -> HeadSpec:
    """The head of a model, by the shapes of its outputs.

    Args:
        model: with inferred shapes.
        size: height and width of the input.
        labels: how many labels there are; None if unknown.
        task: `detect` or `classify`.
        where: the file, for errors.

    Raises:
        ModelError: no known head, or two fit.
    """
    index = Index(model)
    shapes = [index.shape(output.name) for output in model.graph.output]
    if len(shapes) != 1 or shapes[0] is None:
        raise _unknown(where, shapes)
    shape = shapes[0]
    if task == "classify":
        return _classifier(index, shape, where)
    strides: tuple[int, ...] = (8, 16, 32)
    branches = cut_points(model, size)
    if branches:
        strides = tuple(sorted({branch.stride for branch in branches}))
    cells = sum((size[0] // stride) * (size[1] // stride) for stride in strides)
    if len(shape) != 3 or shape[0] != 1:
        raise _unknown(where, shapes)
    fitting = []
    if shape[2] == cells and (labels is None or shape[1] == 4 + labels):
        fitting.append("yolov8")
    if shape[1] == 3 * cells and (labels is None or shape[2] == 5 + labels):
        fitting.append("yolov5")
    if shape[1] == cells and (labels is None or shape[2] == 5 + labels):
        fitting.append("yolox")
    if shape[2] == 6 and shape[1] < cells:
        fitting.append("end2end")
    if len(fitting) != 1:
        raise _unknown(where, shapes, fitting)
    return HeadSpec(kind=fitting[0], strides=strides)  # type: ignore[arg-type]


def without_nms(model: ModelProto, size: tuple[int, int], labels: int | None, where: str) -> tuple[ModelProto, int]:
    """Takes off a NonMaxSuppression that an exporter put behind the head, and all that belongs to it.

    How many boxes it lets through depends on the picture, so no static graph can hold it; the C decode does it.

    Returns:
        The model up to the head's own output, and how many nodes were taken off; the model itself and 0 without NMS.

    Raises:
        ModelError: no tensor before the NMS is the output of a known head.
    """
    index = Index(model)
    waiting = [name for node in model.graph.node if node.op_type == "NonMaxSuppression" for name in node.input if name]
    if not waiting:
        return model, 0
    before: set[str] = set()
    while waiting:
        tensor = waiting.pop()
        if tensor not in before:
            before.add(tensor)
            waiting.extend(index.dynamic_inputs(index.producer[tensor]) if tensor in index.producer else ())
    nearest_first = [name for node in reversed(model.graph.node) for name in node.output if name in before]
    for tensor in nearest_first:
        shape = index.shape(tensor)
        if shape is None or len(shape) != 3:
            continue
        part = cut_at(model, [(tensor, BEFORE_NMS)])
        try:
            recognise(part, size, labels, "detect", where)
        except ModelError:
            continue
        return part, len(model.graph.node) - len(part.graph.node)
    raise ModelError(
        "there is a NonMaxSuppression in the model, and no known head before it",
        where=where,
        wanted="the output of a YOLO head, with as many classes as there are labels",
        got=f"{labels} labels",
        remedy="give all labels with --labels; or export without NMS (Ultralytics: nms=False)",
    )


def label_count(model: ModelProto, head: HeadSpec) -> int | None:
    """How many labels the head tells apart; None where the outputs do not say (end2end)."""
    shape = Index(model).shape(model.graph.output[0].name)
    if shape is None or head.kind == "end2end":
        return None
    return {"yolov8": lambda: shape[1] - 4, "classify": lambda: shape[-1]}.get(head.kind, lambda: shape[2] - 5)()


def cut_points(model: ModelProto, size: tuple[int, int]) -> tuple[Branch, ...]:
    """The last convs of a YOLOv8-like head, box and cls by ascending stride; empty if the head is not such a one."""
    index = Index(model)
    softmaxes = [node for node in model.graph.node if node.op_type == "Softmax"]
    dfl = [conv for node in softmaxes for conv in _only_conv_after(index, node)]
    if len(model.graph.output) != 1 or len(dfl) != 1:
        return ()
    boxes = {conv.output[0] for conv in ancestors(index, list(dfl[0].input[:1]), "Conv")}
    others = ancestors(index, [model.graph.output[0].name], "Conv")
    scores = {conv.output[0] for conv in others if conv.output[0] != dfl[0].output[0]} - boxes
    found = [
        _branch(index, tensor, kind, size) for kind, names in (("box", boxes), ("cls", scores)) for tensor in names
    ]
    branches = sorted((b for b in found if b is not None), key=lambda b: (b.stride, b.kind))
    pairs = len(boxes)
    whole = len(branches) == 2 * pairs and all(b.channels % 4 == 0 for b in branches if b.kind == "box")
    return tuple(branches) if whole and pairs else ()


def cut_head(model: ModelProto, branches: tuple[Branch, ...]) -> ModelProto:
    """The model up to its last convs: outputs box8, cls8, box16, ... in this order."""
    return cut_at(model, [(branch.tensor, f"{branch.kind}{branch.stride}") for branch in branches])


def _only_conv_after(index: Index, node: NodeProto) -> list[NodeProto]:
    """The DFL: a softmax whose result goes (maybe transposed) into a 1 x 1 conv to one channel."""
    tensor = node.output[0]
    for _ in range(3):
        readers = index.consumers.get(tensor, [])
        if len(readers) != 1:
            return []
        reader = readers[0]
        if reader.op_type == "Conv":
            weight = index.shape(reader.input[1])
            return [reader] if weight is not None and weight[0] == 1 and weight[2:] == (1, 1) else []
        tensor = reader.output[0]
    return []


def _branch(index: Index, tensor: str, kind: str, size: tuple[int, int]) -> Branch | None:
    shape = index.shape(tensor)
    if shape is None or len(shape) != 4 or size[0] % shape[2] or size[0] // shape[2] != size[1] // shape[3]:
        return None
    return Branch(tensor, kind, size[0] // shape[2], shape[1])


def _classifier(index: Index, shape: Shape, where: str) -> HeadSpec:
    if len([size for size in shape if size > 1]) != 1:
        raise _unknown(where, [shape])
    last = index.producer.get(index.model.graph.output[0].name)
    return HeadSpec(kind="classify", apply_softmax=last is None or last.op_type != "Softmax")


def _unknown(where: str, shapes: list[Shape | None], fitting: list[str] | None = None) -> ModelError:
    return ModelError(
        "the head is ambiguous" if fitting else "the head is none that is known",
        where=where,
        wanted="[1, 4+C, N] (YOLOv8, v11, v12), [1, 3N, 5+C] (v5), [1, N, 5+C] (YOLOX), [1, 300, 6] (v10, v26),"
        " or [1, C] with --task classify",
        got=f"outputs {shapes}" + (f", which fit {', '.join(fitting)}" if fitting else ""),
        remedy="give --head, and --labels with all labels",
    )
