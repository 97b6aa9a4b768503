from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import toys
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from edge_app.config.tensor import HeadSpec, InputSpec
from edge_app.errors import ConfigError
from edge_app.toolchain import calibration, graph, quantize
from edge_app.toolchain.cut import EDGES, Cut, cut, segment_models
from edge_app.toolchain.hostnodes import Group, chosen, groups, measured
from edge_app.toolchain.measure import Sample
from edge_app.toolchain.quantize import Prepared, Recipe, Style

IMAGE = InputSpec(name="images", width=64, height=64)
PICTURES = [toys.detector_picture([(n % 6, 3)], seed=n) for n in range(6)]
INTEGERS = {TensorProto.UINT8, TensorProto.UINT16}
SILUS = [(f"stem{n}/act/Sigmoid", f"stem{n}/act/Mul") for n in range(4)]


class Toy:
    """A quantised detector, two of whose head convs run at 16 bits."""

    def __init__(self, folder: Path) -> None:
        self.prepared: Prepared = quantize.prepare(
            toys.detector(), HeadSpec(kind="yolov8", strides=(8, 16)), IMAGE, "toy"
        )
        onnx.save(self.prepared.model, folder / "m.onnx")
        calibrator = calibration.create_calibrator(
            folder / "m.onnx", None, augmented_model_path=str(folder / "a.onnx"),
            calibrate_method=calibration.METHODS["minmax"],
        )  # fmt: skip
        for picture in PICTURES:
            calibrator.collect_data(calibration.Pictures("images", [calibration.tensor(picture, IMAGE)[0]]))
        self.ranges = calibration._bounds(calibrator)
        recipe = Recipe("mixed", Style(), ("box16", "cls16"))
        model = quantize.quantized(self.prepared, self.ranges, recipe, folder)
        integer, image, _ = quantize.with_integer_io(model, IMAGE)
        self.qdq = graph.inferred(integer, "toy")
        self.data = calibration.tensor(PICTURES[0], image)[0]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return Toy(tmp_path_factory.mktemp("toy"))


def outputs(model: onnx.ModelProto, data: np.ndarray) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {"images": data}))


def circle_free(parts: Cut) -> bool:
    """Whether segments can run one after another: each is one node of the graph that is left."""
    where = {name: f"segment{number}" for number, names in enumerate(parts.segments) for name in names}
    index = graph.Index(parts.model)
    before: dict[str, set[str]] = {}
    for node in parts.model.graph.node:
        place = where.get(node.name, node.name)
        makers = {index.producer[name].name for name in index.dynamic_inputs(node) if name in index.producer}
        before.setdefault(place, set()).update({where.get(name, name) for name in makers} - {place})
    while ready := {place for place, needs in before.items() if not needs}:
        before = {place: needs - ready for place, needs in before.items() if place not in ready}
    return not before


def test_silus_are_found_whole(toy: Toy) -> None:
    assert groups(toy.qdq, ["Sigmoid", "Mul"]) == SILUS
    assert groups(toy.qdq, ["Mul"]) == [(mul,) for _, mul in SILUS]


def test_one_silu_on_the_host_makes_two_segments_and_two_crossings_of_integers(toy: Toy) -> None:
    parts = cut(toy.qdq, SILUS[1])
    assert (len(parts.segments), len(parts.crossings)) == (2, 2)
    first, second = segment_models(parts)
    types = [[info.type.tensor_type.elem_type for info in (*m.graph.input, *m.graph.output)] for m in (first, second)]
    assert types == [[TensorProto.UINT8] * 2, [TensorProto.UINT8] * 3 + [TensorProto.UINT16] * 2]
    inner = [node for node in parts.model.graph.node if node.name in parts.host]
    # In float from the DQ to the Q: nothing is quantised between the Sigmoid and the Mul.
    assert sorted(node.op_type for node in inner) == ["DequantizeLinear"] * 2 + ["Mul", "QuantizeLinear", "Sigmoid"]


def test_what_a_host_node_makes_is_quantised_once_to_the_width_that_is_read(toy: Toy) -> None:
    parts = cut(toy.qdq, SILUS[3])
    index = graph.Index(parts.model)
    (into_npu,) = {name for name in parts.crossings if index.producer[name].name in parts.host}
    assert index.types[into_npu].tensor_type.elem_type == TensorProto.UINT16


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_set_of_nodes_can_go_to_the_host(toy: Toy, data: st.DataObject) -> None:
    names = [node.name for node in toy.qdq.graph.node if node.op_type not in EDGES]
    host = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=6))
    parts = cut(toy.qdq, host)
    assert set(host) <= parts.host
    assert circle_free(parts)
    everywhere = [name for segment in parts.segments for name in segment]
    assert len(everywhere) == len(set(everywhere))
    assert not parts.host & set(everywhere)
    for model in segment_models(parts):
        onnx.checker.check_model(model, full_check=True)
        assert {info.type.tensor_type.elem_type for info in (*model.graph.input, *model.graph.output)} <= INTEGERS
    for got, wanted in zip(outputs(parts.model, toy.data), outputs(toy.qdq, toy.data), strict=True):
        a, b = got.astype(float).ravel(), wanted.astype(float).ravel()
        assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) > 0.999


def test_unknown_nodes_and_edges_are_refused(toy: Toy) -> None:
    edge = next(node.name for node in toy.qdq.graph.node if node.op_type in EDGES)
    for name in ("nobody", edge):
        with pytest.raises(ConfigError, match="the model has not"):
            cut(toy.qdq, [name])


def test_the_most_sensitive_go_first_as_far_as_crossings_allow(toy: Toy) -> None:
    ranked = [Group(SILUS[n], 1.0 / (n + 1)) for n in (2, 0, 1, 3)]
    assert chosen(toy.qdq, ranked, 1) == ()
    assert chosen(toy.qdq, ranked, 2) == SILUS[2]
    assert chosen(toy.qdq, ranked, 4) == (*SILUS[2], *SILUS[0])
    every = chosen(toy.qdq, ranked, 100)
    assert set(every) == {name for silu in SILUS for name in silu}
    assert len(cut(toy.qdq, every).crossings) == 8


def test_a_node_whose_range_is_far_too_wide_is_the_most_sensitive(toy: Toy) -> None:
    samples = [Sample(f"p{n}", str(n), picture) for n, picture in enumerate(PICTURES[:2])]
    wide = {**toy.ranges, "stem1/act/Mul_out": (-500.0, 500.0)}
    ranked = measured(toy.qdq, ["Sigmoid", "Mul"], toy.prepared, wide, samples)
    assert ranked[0].nodes == SILUS[1]
    assert ranked[0].error > 10 * ranked[1].error
    assert sorted(group.nodes for group in ranked) == SILUS
