from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
import toys
from onnx import TensorProto

from edge_app.config.tensor import HeadSpec, InputSpec
from edge_app.errors import ConfigError, ModelError
from edge_app.toolchain import audit, calibration, graph, measure, quantize, rescue, sensitivity
from edge_app.toolchain.quantize import Prepared, Recipe, Style

IMAGE = InputSpec(name="images", width=64, height=64)
A8 = Recipe("a8", Style())


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for number in range(33):
        cells = [tuple(random.integers(0, 7, 2).tolist()) for _ in range(number % 4)]
        cv2.imwrite(str(folder / f"{number:03}.png"), toys.detector_picture(cells, seed=number))
    return calibration.choose(folder, None, 0)


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return quantize.prepare(toys.detector(), HeadSpec(kind="yolov8", strides=(8, 16)), IMAGE, "toy")


@pytest.fixture(scope="module")
def ranges(prepared: Prepared, pictures: list[Path], tmp_path_factory: pytest.TempPathFactory) -> calibration.Ranges:
    work = tmp_path_factory.mktemp("ranges")
    onnx.save(prepared.model, work / "m.onnx")
    return calibration.ranges_of(work / "m.onnx", pictures, IMAGE, "minmax", work)


Build = Callable[[Recipe], onnx.ModelProto]


@pytest.fixture
def build(prepared: Prepared, ranges: calibration.Ranges, tmp_path: Path) -> Build:
    return lambda recipe: quantize.quantized(prepared, ranges, recipe, tmp_path)


def digest(model: onnx.ModelProto) -> str:
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()


def test_prepared_model_is_cut_and_its_head_says_so(prepared: Prepared) -> None:
    assert prepared.head.kind == "yolov8_cut"
    assert [output.name for output in prepared.model.graph.output] == ["box8", "cls8", "box16", "cls16"]


def test_ranges_are_those_of_the_runs(prepared: Prepared, ranges: calibration.Ranges, pictures: list[Path]) -> None:
    outputs = measure.run_cpu(prepared.model.SerializeToString(), IMAGE, measure.samples_of(pictures))
    low, high = min(o[1].min() for o in outputs), max(o[1].max() for o in outputs)
    assert ranges["cls8"] == pytest.approx((low, high), rel=1e-4)


def test_the_same_inputs_give_the_same_bytes(build: Build) -> None:
    assert digest(build(A8)) == digest(build(A8))


def test_integers_cross_and_bytes_go_in_as_they_are(build: Build) -> None:
    model, image, outputs = quantize.with_integer_io(build(A8), IMAGE)
    assert (image.dtype, image.layout, image.quant_zero_point) == ("uint8", "NHWC", 0)
    assert image.quant_scale == pytest.approx(1 / 255, rel=1e-6)
    assert [(o.name, o.dtype, o.shape) for o in outputs][:2] == [
        ("box8", "uint8", (1, 64, 8, 8)),
        ("cls8", "uint8", (1, 2, 8, 8)),
    ]
    types = [info.type.tensor_type.elem_type for info in (*model.graph.input, *model.graph.output)]
    assert types == [TensorProto.UINT8] * 5
    onnx.checker.check_model(model, full_check=True)


def test_quantised_outputs_are_close_to_float(build: Build, prepared: Prepared, pictures: list[Path]) -> None:
    samples = measure.samples_of(pictures[:4])
    wanted = measure.run_cpu(prepared.model.SerializeToString(), IMAGE, samples)
    noise = {}
    for recipe in (A8, Recipe("a16", Style())):
        model, image, outputs = quantize.with_integer_io(build(recipe), IMAGE)
        got = [measure.real(one, outputs) for one in measure.run_cpu(model.SerializeToString(), image, samples)]
        noise[recipe.activations] = measure.noise_to_signal(got, wanted)
    assert noise["a16"] < noise["a8"] < 0.01


def test_raised_layers_and_no_others_compute_at_16_bits(build: Build) -> None:
    model = graph.inferred(build(Recipe("mixed", Style(), ("cls8", "stem3"))), "toy")
    macs = audit.count_macs(model)
    assert macs.a16 == 8 * 2 * 64 + 9 * 8 * 8 * 16  # the layers behind stem3 stay at 8 bits
    assert macs.in_float == 0
    assert audit.count_macs(graph.inferred(build(A8), "toy")).a16 == 0


def test_unknown_layer_to_raise_is_an_error(build: Build) -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        build(Recipe("mixed", Style(), ("nonsense",)))


def test_encodings_make_the_same_model_again(
    build: Build, prepared: Prepared, ranges: calibration.Ranges, tmp_path: Path
) -> None:
    recipe = Recipe("mixed", Style(), ("cls8",))
    text = json.dumps(quantize.encodings_document(ranges, recipe, ranges))
    again, read = quantize.read_encodings(json.loads(text), "x")
    assert read == recipe
    assert digest(quantize.quantized(prepared, again, read, tmp_path)) == digest(build(recipe))


def test_symmetric_style_puts_the_zero_point_in_the_middle(build: Build) -> None:
    _, _, outputs = quantize.with_integer_io(build(Recipe("a8", Style.parse("activations=symmetric"))), IMAGE)
    assert {output.quant_zero_point for output in outputs} <= {127, 128}


@pytest.mark.parametrize("text", ["activations=odd", "weight=symmetric", "activations"])
def test_bad_style_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="style"):
        Style.parse(text)


def test_clip_before_silu_cuts_only_what_the_output_can_not_show(prepared: Prepared) -> None:
    source, product = "stem0_out", "stem0/act/Mul_out"
    clipped = rescue.clip_before_silu(prepared.model, {source: (-30.0, 20.0), product: (-0.28, 20.0)})
    low, high = clipped[source]
    assert high == 20.0
    half_step = 20.28 / 255 / 2
    assert abs(low / (1 + np.exp(-low))) == pytest.approx(half_step, rel=1e-6)
    assert clipped[product] == (-0.28, 20.0)


def test_clip_leaves_narrow_ranges_alone(prepared: Prepared) -> None:
    narrow = {"stem0_out": (-1.0, 2.0), "stem0/act/Mul_out": (-0.27, 1.8)}
    assert rescue.clip_before_silu(prepared.model, narrow) == narrow


def test_bias_correction_takes_off_the_mean_error_of_int8_weights(prepared: Prepared, pictures: list[Path]) -> None:
    corrected, count = rescue.correct_biases(prepared.model, pictures[:6], IMAGE)
    assert count == 8
    samples = measure.samples_of(pictures[:6])
    wanted = measure.run_cpu(prepared.model.SerializeToString(), IMAGE, samples)

    def mean_error(model: onnx.ModelProto) -> float:
        rounded = onnx.ModelProto()
        rounded.CopyFrom(model)
        index = graph.Index(model)
        rescue.replace_constant(
            rounded, "box16.weight", rescue.quantized_weight(np.array(index.constant("box16.weight")))
        )
        got = measure.run_cpu(rounded.SerializeToString(), IMAGE, samples)
        return float(np.abs(np.mean([a[2] - b[2] for a, b in zip(got, wanted, strict=True)], axis=(0, 1, 3, 4))).max())

    only = onnx.ModelProto()
    only.CopyFrom(prepared.model)
    rescue.replace_constant(only, "box16.bias", np.array(graph.Index(corrected).constant("box16.bias")))
    assert mean_error(only) < 0.01 * mean_error(prepared.model)


def test_equalisation_balances_channels_and_keeps_the_function() -> None:
    model = graph.inferred(toys.resnet18(size=32, shared_bias=False), "x")
    index = graph.Index(model)
    weight = np.array(index.constant("layer1.0.conv1.weight"))
    weight[0] *= 100
    rescue.replace_constant(model, "layer1.0.conv1.weight", weight)
    equal, pairs = rescue.equalise(model)
    assert pairs == 8
    image = InputSpec(name="images", width=32, height=32)
    picture = measure.Sample("x", "x", np.random.default_rng(0).integers(0, 255, (32, 32, 3)).astype(np.uint8))
    a, b = (measure.run_cpu(m.SerializeToString(), image, [picture])[0][0] for m in (model, equal))
    assert np.allclose(a, b, rtol=1e-3, atol=1e-3)
    new = np.abs(np.array(graph.Index(equal).constant("layer1.0.conv1.weight"))).reshape(64, -1).max(axis=1)
    assert new.max() / new.min() < 0.5 * (np.abs(weight).reshape(64, -1).max(axis=1).max() / new.min())


def test_the_layer_that_is_spoilt_is_found(
    prepared: Prepared, ranges: calibration.Ranges, pictures: list[Path]
) -> None:
    spoilt = {**ranges, "stem2_out": (ranges["stem2_out"][0] * 40, ranges["stem2_out"][1] * 40)}
    errors = sensitivity.layer_errors(prepared, spoilt, measure.samples_of(pictures[:3]))
    assert max(errors, key=lambda e: e.error).layer == "stem2"
    assert sum(e.mac_share for e in errors) == pytest.approx(1.0)


@pytest.mark.parametrize(("needed", "count"), [(0, 0), (1, 1), (5, 5), (8, 8)])
def test_search_raises_no_more_layers_than_needed(needed: int, count: int) -> None:
    errors = [sensitivity.LayerError(f"l{n}", 8.0 - n, 0.125) for n in range(8)]
    tries = sensitivity.fewest_raised(errors, lambda raised: 0.01 * (needed - len(raised)), 0.0)
    assert tries[-1].raised == tuple(f"l{n}" for n in range(count))
    assert tries[-1].loss <= 0.0


def test_search_ends_with_all_raised_when_nothing_suffices() -> None:
    errors = [sensitivity.LayerError(f"l{n}", 1.0, 0.3) for n in range(3)]
    tries = sensitivity.fewest_raised(errors, lambda _raised: 0.5, 0.1)
    assert (len(tries[-1].raised), tries[-1].loss) == (3, 0.5)


def test_calibration_set_of_one_grey_is_an_error(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), np.full((64, 64, 3), 90, np.uint8))
    with pytest.raises(ConfigError, match="one grey level"):
        calibration.examine(calibration.choose(tmp_path, None, 0), IMAGE)


def test_calibration_set_warnings(tmp_path: Path, pictures: list[Path]) -> None:
    few = calibration.examine(pictures[:3], IMAGE)
    assert any("only 3" in warning for warning in few.warnings)
    copies = calibration.examine(pictures[1:2] * 40, IMAGE)
    assert any("near copies" in warning for warning in copies.warnings)
    assert calibration.examine(pictures, IMAGE).warnings == ()
    assert calibration.examine(pictures, IMAGE).sha256 != few.sha256


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_values_that_are_not_finite_are_no_ranges(pictures: list[Path], tmp_path: Path, method: str) -> None:
    """Encodings of infinity came out as NaN, and so did the cosine, and the command ended well."""
    g = toys.Graph(0)
    nothing = g.node("Mul", "nothing", ["images", g.constant("zero", [0.0])])
    model = g.model([1, 3, 64, 64], g.node("Reciprocal", "infinity", [nothing]), [1, 3, 64, 64])
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="no finite range"):
        calibration.ranges_of(tmp_path / "m.onnx", pictures[:2], IMAGE, method, tmp_path)


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_percentile_and_entropy_leave_out_what_is_rare(
    prepared: Prepared, ranges: calibration.Ranges, pictures: list[Path], tmp_path: Path, method: str
) -> None:
    onnx.save(prepared.model, tmp_path / "m.onnx")
    found = calibration.ranges_of(tmp_path / "m.onnx", pictures[:8], IMAGE, method, tmp_path)
    assert found.keys() == ranges.keys()
    narrower = 0
    for name, (low, high) in found.items():
        span = ranges[name][1] - ranges[name][0]
        assert low <= high
        # Histograms are symmetric about 0 and end at a bin's edge: never wider than min-max by more than that.
        assert max(abs(low), abs(high)) <= max(map(abs, ranges[name])) + 0.02 * span
        narrower += high - low < 0.98 * span
    assert narrower > 0
    assert digest(quantize.quantized(prepared, found, A8, tmp_path)) != digest(
        quantize.quantized(prepared, ranges, A8, tmp_path)
    )
