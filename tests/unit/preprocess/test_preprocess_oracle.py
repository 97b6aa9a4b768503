"""Drawn plans: the SIMD path, the scalar path and the NumPy oracle give the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from golden.draw import drawn_bytes, hashed
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_app.frame import PixelFormat
from edge_app.preprocess import Fit, Plan, Source, Tensor, _native, reference
from edge_app.preprocess.measure import Grid, native_ints


@st.composite
def plans(draw):
    kind = draw(st.sampled_from(list(PixelFormat)))
    smallest = 3 if "Bayer" in kind else 1
    width, height = draw(st.integers(smallest, 150)), draw(st.integers(smallest, 60))
    x0, y0 = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    region = (x0, y0, draw(st.integers(x0 + 1, width)), draw(st.integers(y0 + 1, height)))
    source = Source(
        width, height, kind, stride=4 * width + draw(st.integers(0, 20)),
        matrix=draw(st.sampled_from(["bt601", "bt709"])), range=draw(st.sampled_from(["limited", "full"])),
    )  # fmt: skip
    dtype = draw(st.sampled_from(["float32", "uint8", "uint16"]))
    encoding = {} if dtype == "float32" else {"quant_scale": draw(st.sampled_from([1 / 255, 1 / 65535, 0.013])),
                                              "quant_zero_point": draw(st.integers(0, 255))}  # fmt: skip
    tensor = Tensor(
        draw(st.integers(1, 70)), draw(st.integers(1, 40)), draw(st.sampled_from(["NCHW", "NHWC"])), dtype,
        draw(st.sampled_from(["RGB", "BGR", "GRAY"])), scale=draw(st.sampled_from([1 / 255, 1.0])),
        mean=draw(st.sampled_from([(0.0, 0.0, 0.0), (0.485, 0.456, 0.406)])),
        std=draw(st.sampled_from([(1.0, 1.0, 1.0), (0.229, 0.224, 0.225)])), **encoding,
    )  # fmt: skip
    fit = Fit(
        draw(st.sampled_from(["letterbox", "letterbox_topleft", "crop", "stretch"])),
        draw(st.sampled_from(["bilinear", "bilinear", "area", "antialias"])),
        draw(st.integers(0, 255)), draw(st.sampled_from([None, region])),
    )  # fmt: skip
    whole = Plan(source, tensor, Fit(fit.mode, "bilinear", fit.pad_value, fit.region))
    if fit.method == "area" and min(whole.geometry.scale_x, whole.geometry.scale_y) < 1:
        return whole  # area averaging only reduces
    return Plan(source, tensor, fit)


@settings(max_examples=400, deadline=None)
@given(plans(), st.integers(0, 2**31))
def test_all_paths_give_the_same_bits(plan, seed):
    frame = drawn_bytes(seed, plan.frame_bytes)
    wanted = reference.run(plan, frame)
    for run in (plan.run, plan.run_scalar):
        out = plan.tensor.empty()
        plan.prepare(out)
        run(frame, out)
        assert out.tobytes() == wanted.tobytes()


def check_measures(source, region, pixels):
    """Both paths on a frame that repeats `pixels`."""
    grid = Grid.of(source, region)
    native = _native.build(native_ints(source, grid), (0.0,) * 9)
    frame = np.resize(pixels, _native.frame_bytes(native))
    wanted = reference.measures(source, grid, frame)
    assert bytes(_native.measure(native, frame, 1)) == wanted
    assert bytes(_native.measure(native, frame, 0)) == wanted


@pytest.mark.parametrize("kind", list(PixelFormat))
@pytest.mark.parametrize("size", [(3, 3), (16, 4), (97, 41), (700, 401), (1920, 30)])
def test_measures_of_all_paths(kind, size):
    check_measures(Source(*size, kind), None, drawn_bytes(5, 6000))


@pytest.mark.parametrize("pixels", [[0], [255], [0, 255], [0, 0, 255], [7, 8], [250, 251], [4, 5]])
@pytest.mark.parametrize("kind", [PixelFormat.GRAY8, PixelFormat.BGR8])
def test_measures_of_the_largest_grid(kind, pixels):
    """Where sums are as large as they can be, and every value lies on one side of a limit."""
    check_measures(Source(640, 320, kind), None, np.array(pixels, np.uint8))


@settings(max_examples=300, deadline=None)
@given(plans(), st.integers(0, 2**31), st.integers(0, 8), st.integers(0, 255), st.integers(0, 60), st.integers(0, 255))
def test_measures_of_drawn_pictures(plan, seed, smoother, base, edges, height):
    """Noise of any strength at any luma, with any number of edges of any height in it."""
    pixels = base + (drawn_bytes(seed, 997).astype(int) >> smoother)
    pixels[drawn_bytes(seed + 1, 997) < edges] += height
    check_measures(plan.source, plan.fit.region, np.clip(pixels, 0, 255).astype(np.uint8))


def test_golden_vectors_are_those_of_the_oracle():
    """The file that the C tests and NEON are held to is what the oracle gives today."""
    from golden import make_decode, make_preprocess

    assert "".join(make_preprocess.lines()) == make_preprocess.FILE.read_text()
    assert "".join(make_decode.lines()) == make_decode.FILE.read_text()


def antialias_cases():
    from golden.make_preprocess import FILE

    return [line.split() for line in FILE.with_name("antialias.txt").read_text().splitlines()]


@pytest.mark.parametrize("case", antialias_cases(), ids=lambda case: "-".join(case[:4]))
def test_antialiased_pixels_are_torchvisions(case):
    width, height, to_width, to_height, seed = map(int, case[:5])
    tensor = Tensor(to_width, to_height, "NHWC", "uint8", "RGB")
    plan = Plan(Source(width, height, PixelFormat.RGB8), tensor, Fit("stretch", "antialias"))
    out = tensor.empty()
    plan.run(drawn_bytes(seed, plan.frame_bytes), out)
    assert f"{hashed(out.tobytes()):x}" == case[5]
