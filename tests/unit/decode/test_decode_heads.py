"""Heads: what is decoded to what, on tensors whose detections are known; what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from edge_app.decode import ClassifyDecoder, HeadSpec, Output, make_decoder, recognise
from edge_app.errors import ConfigError, InvalidOutput
from edge_app.frame import PixelFormat
from edge_app.preprocess import Plan, Source, Tensor


def decoder(spec: HeadSpec, *arrays: np.ndarray, **encoding):
    return make_decoder(spec, [Output(f"out{i}", a.shape, str(a.dtype), **encoding) for i, a in enumerate(arrays)])


def yolov8(*anchors: tuple[float, ...]) -> np.ndarray:
    """[1, 4+C, N] from rows of x, y, w, h, scores."""
    return np.ascontiguousarray(np.float32(anchors).T[None])


def test_yolov8_boxes_scores_labels():
    out = yolov8((100, 80, 20, 10, 0.1, 0.9), (50, 50, 8, 8, 0.6, 0.3), (10, 10, 4, 4, 0.25, 0.2))
    found = decoder(HeadSpec("yolov8", 2), out)([out])
    np.testing.assert_array_equal(found.boxes_px, [[90, 75, 110, 85], [46, 46, 54, 54]])
    np.testing.assert_array_equal(found.scores, np.float32([0.9, 0.6]))
    assert found.labels.tolist() == [1, 0]  # 0.25 is not above 0.25
    assert not found.truncated


def test_yolov5_multiplies_objectness():
    out = np.float32([[[100, 80, 20, 10, 0.5, 0.2, 0.8], [1, 1, 2, 2, 0.2, 1.0, 0.9]]])
    found = decoder(HeadSpec("yolov5", 2, score=0.3), out)([out])
    assert found.labels.tolist() == [1]
    np.testing.assert_allclose(found.scores, [0.4], rtol=1e-6)
    np.testing.assert_array_equal(found.boxes_px, [[90, 75, 110, 85]])


def test_yolox_grid_and_stride():
    """Input 64x32, strides 8, 16, 32: 8x4 + 4x2 + 2x1 = 42 anchors. Anchor 32 + 5 is cell (1, 1) of stride 16."""
    out = np.zeros((1, 42, 6), np.float32)
    out[0, 37] = (0.5, 0.25, np.log(2), np.log(3), 0.9, 1.0)
    found = decoder(HeadSpec("yolox", 1, 64, 32), out)([out])
    assert len(found) == 1
    x, y, w, h = 1.5 * 16, 1.25 * 16, 2 * 16, 3 * 16
    np.testing.assert_allclose(found.boxes_px, [[x - w / 2, y - h / 2, x + w / 2, y + h / 2]], rtol=1e-6)


def test_end2end_is_not_suppressed_again():
    out = np.float32([[[10, 10, 20, 20, 0.4, 1], [10, 10, 20, 20, 0.8, 1], [0, 0, 5, 5, 0.1, 0]]])
    found = decoder(HeadSpec("end2end", 2), out)([out])
    np.testing.assert_array_equal(found.scores, np.float32([0.8, 0.4]))
    assert found.labels.tolist() == [1, 1]


def cut_head(dtype: str = "float32") -> tuple[HeadSpec, list[np.ndarray], dict]:
    """One object of class 1 in cell (3, 2) of stride 8: sides 2, 1, 3 and 4 cells away. Input 64x32."""
    spec = HeadSpec("yolov8_cut", 2, 64, 32)
    arrays = []
    for stride in (8, 16, 32):
        box = np.full((1, 64, 32 // stride, 64 // stride), -6, np.float32)
        scores = np.full((1, 2, 32 // stride, 64 // stride), -6, np.float32)
        if stride == 8:
            for side, cells in enumerate((2, 1, 3, 4)):
                box[0, side * 16 + cells, 2, 3] = 19.5
            scores[0, 1, 2, 3] = 3.0
        arrays += [box, scores]
    if dtype == "float32":
        return spec, arrays, {}
    encoding = {"scale": 0.1, "zero_point": 60}
    return spec, [np.clip(np.rint(a / 0.1) + 60, 0, 255).astype(dtype) for a in arrays], encoding


@pytest.mark.parametrize("dtype", ["float32", "uint8", "uint16"])
def test_cut_head(dtype):
    spec, arrays, encoding = cut_head(dtype)
    found = decoder(spec, *arrays, **encoding)(arrays)
    assert found.labels.tolist() == [1]
    np.testing.assert_allclose(found.scores, [1 / (1 + np.exp(-3))], rtol=1e-5)
    x, y = 3.5, 2.5
    np.testing.assert_allclose(found.boxes_px, [np.array([x - 2, y - 1, x + 3, y + 4]) * 8], atol=0.01)


def test_cut_head_takes_its_outputs_in_any_order():
    spec, arrays, _ = cut_head()
    order = [3, 0, 5, 4, 1, 2]
    shuffled = [arrays[i] for i in order]
    found = decoder(spec, *shuffled)(shuffled)
    np.testing.assert_array_equal(found.boxes_px, decoder(spec, *arrays)(arrays).boxes_px)


def test_thresholds_by_class_do_not_hide_a_lower_class():
    """Class 0 scores more but is below its own threshold; class 1 is above its."""
    out = yolov8((50, 50, 10, 10, 0.6, 0.3))
    found = decoder(HeadSpec("yolov8", 2, score=(0.7, 0.2)), out)([out])
    assert found.labels.tolist() == [1]


def test_first_of_equal_classes_wins():
    out = yolov8((50, 50, 10, 10, 0.3, 0.6, 0.6))
    assert decoder(HeadSpec("yolov8", 3), out)([out]).labels.tolist() == [1]


def test_suppression_by_class_and_agnostic():
    out = yolov8((50, 50, 20, 20, 0.9, 0), (51, 50, 20, 20, 0.8, 0), (50, 51, 20, 20, 0, 0.7), (90, 90, 20, 20, 0.6, 0))
    found = decoder(HeadSpec("yolov8", 2), out)([out])
    np.testing.assert_array_equal(found.scores, np.float32([0.9, 0.7, 0.6]))
    found = decoder(HeadSpec("yolov8", 2, agnostic=True), out)([out])
    np.testing.assert_array_equal(found.scores, np.float32([0.9, 0.6]))


def test_iou_is_compared_strictly():
    out = yolov8((5, 5, 10, 10, 0.9), (10, 5, 20, 10, 0.8))  # 100 of 200: IoU exactly 0.5
    assert len(decoder(HeadSpec("yolov8", 1, iou=0.5), out)([out])) == 2
    assert len(decoder(HeadSpec("yolov8", 1, iou=0.499), out)([out])) == 1


def test_a_suppressed_box_does_not_suppress():
    out = yolov8((50, 50, 20, 20, 0.9), (58, 50, 20, 20, 0.8), (66, 50, 20, 20, 0.7))
    found = decoder(HeadSpec("yolov8", 1, iou=0.3), out)([out])
    np.testing.assert_array_equal(found.scores, np.float32([0.9, 0.7]))


def test_a_limit_that_bites_is_told():
    out = yolov8(*((20.0 * i, 50, 10, 10, 0.5 + 0.01 * i) for i in range(10)))
    found = decoder(HeadSpec("yolov8", 1, max_detections=4), out)([out])
    assert found.truncated
    np.testing.assert_array_equal(found.scores, np.float32([0.59, 0.58, 0.57, 0.56]))
    assert not decoder(HeadSpec("yolov8", 1, max_detections=10), out)([out]).truncated


def test_nothing_found():
    out = np.zeros((1, 6, 50), np.float32)
    found = decoder(HeadSpec("yolov8", 2, score=0.0), out)([out])
    assert len(found) == 0
    assert found.boxes_px.shape == (0, 4)


def test_boxes_in_sensor_px():
    plan = Plan(Source(1920, 1080, PixelFormat.BGR8), Tensor(640, 640))
    out = yolov8((320, 320, 100, 100, 0.9), (10, 320, 100, 100, 0.8))
    found = decoder(HeadSpec("yolov8", 1), out)([out], plan.geometry.to_source_px)
    np.testing.assert_array_equal(found.boxes_px, [[810, 390, 1110, 690], [0, 390, 180, 690]])


@pytest.mark.parametrize("poison", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["yolov8", "yolov5", "yolox", "end2end", "yolov8_cut"])
def test_nan_and_infinity_anywhere_are_invalid_output(kind, poison):
    from golden import make_decode

    spec = HeadSpec(kind, 3, make_decode.SIZE, make_decode.SIZE, score=0.5)
    infos, values = make_decode.tensors(spec, "float32", 1)
    decode = make_decoder(spec, infos)
    rng = np.random.default_rng(2)
    for array in values:
        for _ in range(20):
            at = int(rng.integers(array.size))
            kept, array.flat[at] = array.flat[at], poison
            with pytest.raises(InvalidOutput, match="NaN or infinite"):
                decode(values)
            array.flat[at] = kept
    decode(values)


def test_an_overflowing_box_is_invalid_output():
    out = np.zeros((1, 42, 6), np.float32)
    out[0, 0] = (0, 0, 95, 0, 1, 1)
    with pytest.raises(InvalidOutput):
        decoder(HeadSpec("yolox", 1, 64, 32), out)([out])


@pytest.mark.parametrize("label", [2, -1, 0.5])
def test_a_class_that_is_none_is_invalid_output(label):
    out = np.float32([[[10, 10, 20, 20, 0.9, label]]])
    with pytest.raises(InvalidOutput, match="class number"):
        decoder(HeadSpec("end2end", 2), out)([out])


def test_another_shape_than_promised_is_invalid_output():
    out = np.zeros((1, 6, 50), np.float32)
    decode = decoder(HeadSpec("yolov8", 2), out)
    for wrong in (
        np.zeros((1, 6, 49), np.float32),
        np.zeros((1, 6, 50), np.float64),
        np.zeros((1, 50, 6), np.float32).transpose(0, 2, 1),
    ):
        with pytest.raises(InvalidOutput):
            decode([wrong])
    with pytest.raises(InvalidOutput):
        decode([out, out])


@pytest.mark.parametrize(
    ("spec", "shapes", "words"),
    [
        (HeadSpec("yolov8", 2), [(1, 7, 50)], "6 values for each anchor"),
        (HeadSpec("yolov8", 2), [(1, 6, 50), (1, 6, 50)], "one float32 output"),
        (HeadSpec("yolov5", 2), [(1, 50, 6)], "7 values for each anchor"),
        (HeadSpec("yolox", 1, 64, 32), [(1, 41, 6)], "as many anchors"),
        (HeadSpec("yolox", 1, 60, 32), [(1, 42, 6)], "strides do not fit"),
        (HeadSpec("yolox", 1), [(1, 42, 6)], "strides do not fit"),
        (HeadSpec("end2end", 2), [(1, 300, 7)], "6 values for each anchor"),
        (HeadSpec("yolov8_cut", 2, 64, 32), [(1, 64, 4, 8), (1, 2, 4, 8)], "two outputs for each of the strides"),
        (HeadSpec("classify", 5), [(1, 4)], r"one output \[1, 5\]"),
    ],
)
def test_heads_that_do_not_fit_are_refused(spec, shapes, words):
    with pytest.raises(ConfigError, match=words):
        make_decoder(spec, [Output("out", shape) for shape in shapes])


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "yolov7"},
        {"classes": 0},
        {"score": 1.5},
        {"score": (0.5,)},
        {"iou": -0.1},
        {"max_detections": 0},
        {"temperature": 0},
    ],
)
def test_impossible_settings_are_refused(options):
    with pytest.raises(ConfigError):
        HeadSpec(**{"kind": "yolov8", "classes": 2, **options})


@pytest.mark.parametrize(
    ("shapes", "classes", "kind"),
    [
        ([(1, 84, 8400)], None, "yolov8"),
        ([(1, 10, 3549)], 6, "yolov8"),
        ([(1, 300, 6)], 80, "end2end"),
        ([(1, 1000)], None, "classify"),
        ([(1, 64, 80, 80), (1, 6, 80, 80), (1, 64, 40, 40), (1, 6, 40, 40)], 6, "yolov8_cut"),
        ([(1, 6, 80, 80), (1, 64, 80, 80)], None, "yolov8_cut"),
    ],
)
def test_heads_are_recognised_by_shape(shapes, classes, kind):
    assert recognise(shapes, classes) == kind


@pytest.mark.parametrize(
    ("shapes", "classes", "words"),
    [
        ([(1, 25200, 85)], 80, "yolov5, yolox"),
        ([(1, 25200, 85)], None, "yolov5, yolox"),
        ([(1, 84, 8400)], 79, "no known kind"),
        ([(2, 84, 8400)], 80, "no known kind"),
        ([(1, 3, 4, 5)], None, "no known kind"),
        ([], None, "no known kind"),
    ],
)
def test_ambiguous_heads_are_refused(shapes, classes, words):
    with pytest.raises(ConfigError, match=words):
        recognise(shapes, classes)


def test_classifier():
    logits = np.float32([[1.0, 3.0, 2.0]])
    scores = decoder(HeadSpec("classify", 3, softmax=True), logits)([logits])
    np.testing.assert_allclose(scores.scores, np.exp([1, 3, 2]) / np.exp([1, 3, 2]).sum(), rtol=1e-6)
    assert scores.best == 1
    flat = decoder(HeadSpec("classify", 3, softmax=True, temperature=1000.0), logits)([logits])
    np.testing.assert_allclose(flat.scores, [1 / 3] * 3, atol=1e-3)
    probabilities = np.float32([[0.2, 0.5, 0.3]])
    np.testing.assert_array_equal(
        decoder(HeadSpec("classify", 3), probabilities)([probabilities]).scores, probabilities[0]
    )
    encoded = np.uint8([[51, 128, 76]])
    found = decoder(HeadSpec("classify", 3), encoded, scale=1 / 255, zero_point=0)([encoded])
    np.testing.assert_allclose(found.scores, [0.2, 0.502, 0.298], atol=1e-3)


def test_classifier_refuses_damage():
    decode = ClassifyDecoder(HeadSpec("classify", 3), [Output("out", (1, 3))])
    for bad in ([[0.2, np.nan, 0.3]], [[0.2, 0.5, 3.0]], [[1.2, -0.5, 0.3]], [[0.2, 0.8]]):
        with pytest.raises(InvalidOutput):
            decode([np.float32(bad)])
    logits = ClassifyDecoder(HeadSpec("classify", 3, softmax=True, temperature=0.5), [Output("out", (1, 3))])
    with pytest.raises(InvalidOutput):  # finite, and infinite once they are divided: their shares would be NaN
        logits([np.float32([[3e38, 3e38, 0]])])
    with pytest.raises(ConfigError, match="scale and zero point"):
        ClassifyDecoder(HeadSpec("classify", 3), [Output("out", (1, 3), "uint8")])


def test_a_decoder_serves_one_thread_at_a_time_and_says_so():
    from concurrent.futures import ThreadPoolExecutor

    out = np.random.default_rng(1).uniform(0, 1, (1, 84, 8400)).astype(np.float32)
    decode = decoder(HeadSpec("yolov8", 80, score=0.5, max_detections=10), out)
    wanted = decode([out]).scores

    def run(_):
        try:
            return np.array_equal(decode([out]).scores, wanted)
        except RuntimeError as error:
            return "another thread" in str(error)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(40)))
