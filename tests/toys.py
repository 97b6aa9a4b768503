"""Small networks that tests make for themselves: real ONNX graphs, drawn by a seed, that run in milliseconds."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

REG_MAX = 16
DETECTOR_LABELS = ("bright", "dark")


class Graph:
    """Collects nodes and initializers; each method adds one node and returns its output's name."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name: str, value: npt.ArrayLike, dtype: type = np.float32) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def node(self, op: str, name: str, inputs: list[str], outputs: int = 1, **attributes: object) -> str:
        names = [f"{name}_out" if outputs == 1 else f"{name}_out{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=name, **attributes))
        return names[0]

    def conv(
        self,
        name: str,
        x: str,
        inner: int,
        outer: int,
        kernel: int,
        stride: int = 1,
        weight: npt.NDArray[np.float32] | None = None,
        bias: npt.ArrayLike | None = None,
        bias_name: str | None = None,
        pad: int | None = None,
    ) -> str:
        if weight is None:
            spread = 1.0 / math.sqrt(inner * kernel * kernel)
            weight = self.random.normal(0, spread, (outer, inner, kernel, kernel)).astype(np.float32)
        inputs = [x, self.constant(f"{name}.weight", weight)]
        if bias_name is not None:
            inputs.append(bias_name)
        else:
            inputs.append(self.constant(f"{name}.bias", np.zeros(outer) if bias is None else bias))
        pad = kernel // 2 if pad is None else pad
        return self.node("Conv", name, inputs, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def silu(self, name: str, x: str) -> str:
        return self.node("Mul", f"{name}/Mul", [x, self.node("Sigmoid", f"{name}/Sigmoid", [x])])

    def model(self, image: list[int], output: str, shape: list[int], opset: int = 17) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "toy",
            [helper.make_tensor_value_info("images", TensorProto.FLOAT, image)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
            self.initializers,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        return model


def detector(seed: int = 0, size: int = 64) -> onnx.ModelProto:
    """A detector with YOLOv8's head ([1, 4 + 2, N], strides 8 and 16) and SiLU.

    It is wired to see: where an 8 px cell is bright it says "bright", with a box of 3 cells around it. The other
    channels are random, so that quantisation has something to lose.
    """
    g = Graph(seed)
    channels = 8
    x, inner = "images", 3
    for level in range(3):
        x, inner = g.silu(f"stem{level}/act", _mean_conv(g, f"stem{level}", x, inner, channels)), channels
    deeper = g.silu("stem3/act", _mean_conv(g, "stem3", x, channels, channels))
    boxes, scores = [], []
    for stride, feature in ((8, x), (16, deeper)):
        cells = (size // stride) ** 2
        box = g.conv(f"box{stride}", feature, channels, 4 * REG_MAX, 1, bias=_box_bias())
        score = g.conv(f"cls{stride}", feature, channels, 2, 1, weight=_score_weight(stride), bias=[-9.0, -6.0])
        for name, tensor, rows, into in (("box", box, 4 * REG_MAX, boxes), ("cls", score, 2, scores)):
            shape = g.constant(f"{name}{stride}.shape", [1, rows, cells], np.int64)
            into.append(g.node("Reshape", f"{name}{stride}/Reshape", [tensor, shape]))
    g.node("Concat", "head/Concat", [_decoded_boxes(g, boxes, size), _sigmoid_scores(g, scores)], axis=1)
    anchors = (size // 8) ** 2 + (size // 16) ** 2
    return g.model([1, 3, size, size], "head/Concat_out", [1, 6, anchors])


def detector_picture(bright_cells: list[tuple[int, int]], size: int = 64, seed: int = 0) -> npt.NDArray[np.uint8]:
    """A picture for `detector`, BGR uint8 [size, size, 3]: grey noise, white 16 px squares at 8 px cells (x, y)."""
    picture = np.random.default_rng(seed).integers(20, 60, (size, size, 3)).astype(np.uint8)
    for x, y in bright_cells:
        picture[8 * y : 8 * y + 16, 8 * x : 8 * x + 16] = 250
    return picture


def transformer(seed: int = 0, size: int = 64, width: int = 16) -> onnx.ModelProto:
    """A conv stem and one transformer block (LayerNormalization, Gelu, Softmax), then ten class logits; opset 20."""
    g = Graph(seed)
    tokens = (size // 8) ** 2
    x = g.conv("stem", "images", 3, width, 8, 8, pad=0)
    x = g.node("Reshape", "flat", [x, g.constant("flat.shape", [1, width, tokens], np.int64)])
    x = g.node("Transpose", "tokens", [x], perm=[0, 2, 1])
    normed = _layer_norm(g, "norm1", x, width)
    query, key, value = (_linear(g, name, normed, width, width) for name in ("query", "key", "value"))
    scores = g.node("MatMul", "scores", [query, g.node("Transpose", "key_t", [key], perm=[0, 2, 1])])
    scaled = g.node("Mul", "scaled", [scores, g.constant("scaled.by", 1 / math.sqrt(width))])
    mixed = g.node("MatMul", "mixed", [g.node("Softmax", "attention", [scaled], axis=-1), value])
    x = g.node("Add", "add1", [x, _linear(g, "project", mixed, width, width)])
    hidden = g.node("Gelu", "gelu", [_linear(g, "mlp1", _layer_norm(g, "norm2", x, width), width, 4 * width)])
    x = g.node("Add", "add2", [x, _linear(g, "mlp2", hidden, 4 * width, width)])
    pooled = g.node("ReduceMean", "pool", [x, g.constant("pool.axes", [1], np.int64)], keepdims=0)
    output = _linear(g, "classes", pooled, width, 10)
    return g.model([1, 3, size, size], output, [1, 10], opset=20)


def resnet18(seed: int = 0, size: int = 64, classes: int = 10, shared_bias: bool = True) -> onnx.ModelProto:
    """ResNet18's graph. With `shared_bias`, convs of a width share one zero bias, as exporters leave it: the trap."""
    g = Graph(seed)
    if shared_bias:
        for width in (64, 128, 256, 512):
            g.constant(f"zeros{width}", np.zeros(width))

    def conv(name: str, x: str, inner: int, outer: int, kernel: int, stride: int = 1) -> str:
        return g.conv(name, x, inner, outer, kernel, stride, bias_name=f"zeros{outer}" if shared_bias else None)

    x = g.node("Relu", "stem/relu", [conv("stem", "images", 3, 64, 7, 2)])
    x = g.node("MaxPool", "stem/pool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inner = 64
    for stage, width in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            name = f"layer{stage + 1}.{block}"
            y = g.node("Relu", f"{name}/relu1", [conv(f"{name}.conv1", x, inner, width, 3, stride)])
            y = conv(f"{name}.conv2", y, width, width, 3)
            if stride == 2:
                x = conv(f"{name}.down", x, inner, width, 1, stride)
            x = g.node("Relu", f"{name}/relu2", [g.node("Add", f"{name}/add", [x, y])])
            inner = width
    x = g.node("Flatten", "flatten", [g.node("GlobalAveragePool", "pool", [x])])
    weight = g.random.normal(0, 1 / math.sqrt(512), (512, classes))
    output = g.node("Gemm", "fc", [x, g.constant("fc.weight", weight), g.constant("fc.bias", np.zeros(classes))])
    return g.model([1, 3, size, size], output, [1, classes])


def _mean_conv(g: Graph, name: str, x: str, inner: int, outer: int) -> str:
    """A 3 x 3 conv of stride 2 whose channel 0 carries the brightness on; the others are random."""
    weight = g.random.normal(0, 1 / math.sqrt(9 * inner), (outer, inner, 3, 3)).astype(np.float32)
    weight[0] = 0
    weight[0, : 3 if inner == 3 else 1] = 1 / (27 if inner == 3 else 6)
    return g.conv(name, x, inner, outer, 3, 2, weight=weight)


def _score_weight(stride: int) -> npt.NDArray[np.float32]:
    weight = np.zeros((2, 8, 1, 1), np.float32)
    weight[0, 0] = 18.0 if stride == 8 else 8.0
    weight[1, 1] = 1.0
    return weight


def _box_bias() -> npt.NDArray[np.float32]:
    """The peak of each side's distribution at 1 (in cells)."""
    side = np.full(REG_MAX, -4.0, np.float32)
    side[1] = 4.0
    return np.tile(side, 4)


def _sigmoid_scores(g: Graph, parts: list[str]) -> str:
    return g.node("Sigmoid", "head/Sigmoid", [g.node("Concat", "head/cls", parts, axis=2)])


def _decoded_boxes(g: Graph, parts: list[str], size: int) -> str:
    centres, strides = [], []
    for stride in (8, 16):
        cells = size // stride
        y, x = np.mgrid[:cells, :cells] + 0.5
        centres.append(np.stack([x.ravel(), y.ravel()]))
        strides.append(np.full(cells * cells, stride))
    count = sum(len(s) for s in strides)
    logits = g.node("Concat", "head/box", parts, axis=2)
    four = g.node("Reshape", "dfl/four", [logits, g.constant("dfl.shape", [1, 4, REG_MAX, count], np.int64)])
    bins = g.node("Softmax", "dfl/Softmax", [g.node("Transpose", "dfl/Transpose", [four], perm=[0, 2, 1, 3])], axis=1)
    ramp = np.arange(REG_MAX, dtype=np.float32).reshape(1, REG_MAX, 1, 1)
    mean = g.node("Conv", "dfl/conv", [bins, g.constant("dfl.weight", ramp)], kernel_shape=[1, 1])
    sides = g.node("Reshape", "dfl/sides", [mean, g.constant("sides.shape", [1, 4, count], np.int64)])
    g.node("Split", "dfl/split", [sides, g.constant("split.sizes", [2, 2], np.int64)], outputs=2, axis=1)
    centre = g.constant("anchors", np.concatenate(centres, axis=1)[None])
    low = g.node("Sub", "head/low", [centre, "dfl/split_out0"])
    high = g.node("Add", "head/high", [centre, "dfl/split_out1"])
    middle = g.node("Div", "head/middle", [g.node("Add", "head/sum", [low, high]), g.constant("two", 2.0)])
    extent = g.node("Sub", "head/extent", [high, low])
    cells = g.node("Concat", "head/xywh", [middle, extent], axis=1)
    return g.node("Mul", "head/px", [cells, g.constant("strides", np.concatenate(strides)[None, None])])


def _layer_norm(g: Graph, name: str, x: str, width: int) -> str:
    scale = g.constant(f"{name}.scale", 1 + 0.1 * g.random.normal(size=width))
    return g.node("LayerNormalization", name, [x, scale, g.constant(f"{name}.bias", np.zeros(width))], axis=-1)


def _linear(g: Graph, name: str, x: str, inner: int, outer: int) -> str:
    weight = g.constant(f"{name}.weight", g.random.normal(0, 1 / math.sqrt(inner), (inner, outer)))
    product = g.node("MatMul", name, [x, weight])
    return g.node("Add", f"{name}/bias", [product, g.constant(f"{name}.bias", np.zeros(outer))])
