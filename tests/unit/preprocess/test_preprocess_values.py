"""Values of the tensor: normalising, encodings, padding, what is written and what is not."""

from __future__ import annotations

import numpy as np
import pytest

from edge_app.errors import ConfigError
from edge_app.frame import PixelFormat
from edge_app.preprocess import Fit, Plan, Source, Tensor

RAMP = np.arange(256, dtype=np.uint8).reshape(1, 256)
GRAY = Source(256, 1, PixelFormat.GRAY8)


def of_ramp(**tensor) -> np.ndarray:
    """What each of the 256 pixel values becomes."""
    plan = Plan(GRAY, Tensor(256, 1, **tensor), Fit("stretch"))
    out = plan.tensor.empty()
    plan.run(RAMP, out)
    return out.reshape(plan.tensor.channels, 256) if plan.tensor.layout == "NCHW" else out.reshape(256, -1).T


def test_float_is_pixel_over_255_in_every_bit():
    wanted = np.arange(256, dtype=np.float32) / np.float32(255)
    assert all(channel.tobytes() == wanted.tobytes() for channel in of_ramp())
    assert all(channel.tobytes() == wanted.tobytes() for channel in of_ramp(layout="NHWC"))


def test_float_without_scale_is_the_pixel():
    np.testing.assert_array_equal(of_ramp(scale=1.0, color="GRAY")[0], np.arange(256, dtype=np.float32))


def test_mean_and_std_by_channel():
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    values = of_ramp(mean=mean, std=std)
    for c in range(3):
        exact = (np.arange(256) / 255 - mean[c]) / std[c]
        np.testing.assert_allclose(values[c], exact, atol=3e-7)


def test_uint8_holds_pixels_by_default_and_encodes_else():
    np.testing.assert_array_equal(of_ramp(dtype="uint8")[1], np.arange(256))
    values = of_ramp(dtype="uint8", quant_scale=0.01, quant_zero_point=10)[0]
    np.testing.assert_array_equal(values, np.clip(np.rint(np.arange(256) / 255 / 0.01) + 10, 0, 255))


def test_uint16_encodes_to_its_full_range():
    values = of_ramp(dtype="uint16", quant_scale=1 / 65535, quant_zero_point=0)[2]
    np.testing.assert_array_equal(values, np.arange(256) * 257)
    assert values.dtype == np.uint16


def test_encodings_saturate():
    values = of_ramp(dtype="uint8", quant_scale=0.001, quant_zero_point=0, mean=(0.5,) * 3)[0]
    assert (values[0], values[255]) == (0, 255)


def test_padding_is_written_once_and_never_by_run():
    plan = Plan(Source(40, 20, PixelFormat.BGR8), Tensor(64, 64), Fit(pad_value=114))
    out = plan.tensor.empty()
    out[:] = -7
    plan.run(np.zeros((20, 40, 3), np.uint8), out)
    assert (out[0, :, :16] == -7).all()
    assert (out[0, :, 16:48] == 0).all()
    plan.prepare(out)
    assert (out[0, :, :16] == np.float32(114) / np.float32(255)).all()
    assert (out[0, :, 48:] == np.float32(114) / np.float32(255)).all()
    assert (out[0, :, 16:48] == 0).all()


@pytest.mark.parametrize(
    ("frame", "out", "error", "words"),
    [
        (np.zeros(40 * 20 * 3 - 1, np.uint8), None, ValueError, "at least 2400 bytes for 40x20 px, got 2399"),
        (np.zeros((20, 40, 3), np.int16), None, TypeError, "wanted bytes"),
        (np.zeros((20, 80, 3), np.uint8)[:, ::2], None, ValueError, "frame: wanted a C-contiguous buffer"),
        (None, np.zeros((1, 3, 64, 64), np.float64), TypeError, "wanted elements of type 'f', got 'd'"),
        (None, np.zeros((1, 3, 64, 63), np.float32), ValueError, "tensor: wanted 49152 bytes, got 48384"),
        (
            None,
            np.zeros((1, 64, 64, 3), np.float32).transpose(0, 3, 1, 2),
            ValueError,
            "tensor: wanted a C-contiguous, writable",
        ),
        (None, bytes(49152), ValueError, "writable"),
        (None, memoryview(bytearray(49153))[1:].cast("f"), ValueError, "not aligned"),
        ("a string", None, ValueError, "frame: wanted a C-contiguous buffer"),
    ],
)
def test_wrong_buffers_are_refused(frame, out, error, words):
    plan = Plan(Source(40, 20, PixelFormat.BGR8), Tensor(64, 64))
    frame = np.zeros((20, 40, 3), np.uint8) if frame is None else frame
    out = plan.tensor.empty() if out is None else out
    with pytest.raises(error, match=words.replace("(", r"\(")):
        plan.run(frame, out)


def test_overlapping_buffers_are_refused():
    plan = Plan(Source(64, 64, PixelFormat.GRAY8), Tensor(64, 64, dtype="uint8", color="GRAY"))
    memory = np.zeros(64 * 64 + 100, np.uint8)
    with pytest.raises(ValueError, match="overlap"):
        plan.run(memory[: 64 * 64], memory[100:])
    plan.run(np.zeros(64 * 64, np.uint8), memory[100:])


@pytest.mark.parametrize(
    ("source", "tensor", "fit", "words"),
    [
        (Source(0, 4, PixelFormat.BGR8), Tensor(8, 8), Fit("stretch"), "not inside the frame"),
        (Source(40000, 4, PixelFormat.BGR8), Tensor(8, 8), Fit(), "frame sides"),
        (Source(2, 2, PixelFormat.BAYER_RG8), Tensor(8, 8), Fit(), "at least 3x3"),
        (Source(40, 20, PixelFormat.BGR8, stride=119), Tensor(8, 8), Fit(), "stride is shorter"),
        (Source(40, 20, PixelFormat.NV12, uv_stride=39), Tensor(8, 8), Fit(), "chroma"),
        (Source(40, 20, PixelFormat.NV12, uv_offset=-1), Tensor(8, 8), Fit(), "chroma"),
        (Source(40, 20, PixelFormat.BGR8), Tensor(0, 8), Fit("stretch"), "tensor sides"),
        (Source(40, 20, PixelFormat.BGR8), Tensor(8, 8, layout="HWC"), Fit(), "unknown layout"),
        (Source(40, 20, PixelFormat.BGR8), Tensor(8, 8, mean=(0.5,)), Fit(), "mean has too few values"),
        (Source(40, 20, PixelFormat.BGR8), Tensor(8, 8, std=(1.0, 0.0, 1.0)), Fit(), "std not 0"),
        (Source(40, 20, PixelFormat.BGR8), Tensor(8, 8, quant_scale=0.1), Fit(), "float32 tensor has no encoding"),
        (
            Source(40, 20, PixelFormat.BGR8),
            Tensor(8, 8, dtype="uint8", quant_scale=0.1, quant_zero_point=256),
            Fit(),
            "encoding",
        ),
        (Source(40, 20, PixelFormat.BGR8), Tensor(8, 8), Fit(pad_value=256), "pad_value"),
        (Source(40, 20, PixelFormat.BGR8), Tensor(80, 8), Fit("stretch", "area"), "only reduces"),
        (Source(40, 20, PixelFormat.BGR8), Tensor(8, 8), Fit(method="lanczos"), "unknown resize method"),
    ],
)
def test_impossible_plans_are_refused(source, tensor, fit, words):
    with pytest.raises(ConfigError, match=words):
        Plan(source, tensor, fit)


def test_one_plan_runs_on_many_threads():
    from concurrent.futures import ThreadPoolExecutor

    plan = Plan(Source(300, 200, PixelFormat.BGR8), Tensor(64, 64), Fit(method="antialias"))
    frames = [np.random.default_rng(i).integers(0, 256, plan.frame_bytes, np.uint8) for i in range(16)]

    def run(frame: np.ndarray) -> bytes:
        out = plan.tensor.empty()
        plan.prepare(out)
        for _ in range(20):
            plan.run(frame, out)
        return out.tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, frames)) == [run(frame) for frame in frames]
