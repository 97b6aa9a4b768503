"""The kernels against OpenCV: bit for bit where it is OpenCV's arithmetic, and within 1 where it is not.

Only on x86_64: on aarch64 OpenCV may take other paths, and golden vectors hold NEON instead (tests/golden).
"""

from __future__ import annotations

import platform

import cv2
import numpy as np
import pytest
from opencv_way import pixels

from edge_app.frame import PixelFormat
from edge_app.preprocess import Fit, Plan, Source, Tensor

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="OpenCV's arithmetic differs on other CPUs")

SIZES = [
    (1, 1), (2, 2), (3, 3), (7, 5), (16, 16), (17, 33), (333, 517), (640, 640), (1280, 720), (1920, 1080), (1600, 1200),
    (2448, 2048), (4096, 3000),
]  # fmt: skip
SUBSAMPLED = (PixelFormat.NV12, PixelFormat.YUYV)


def possible(kind: PixelFormat, width: int, height: int) -> bool:
    """Whether OpenCV takes such a frame: chroma needs even sides, demosaicing 3x3."""
    if kind in SUBSAMPLED:
        return width % 2 == 0 and height % 2 == 0
    return "Bayer" not in kind or (width >= 3 and height >= 3)


CASES = [(kind, *size) for kind in PixelFormat for size in SIZES if possible(kind, *size)]


def run(plan: Plan, frame: np.ndarray) -> np.ndarray:
    out = plan.tensor.empty()
    plan.prepare(out)
    plan.run(frame, out)
    return out


def as_pixels(plan: Plan, tensor: np.ndarray) -> np.ndarray:
    return tensor[0].transpose(1, 2, 0) if plan.tensor.layout == "NCHW" else tensor[0]


@pytest.mark.parametrize(("kind", "width", "height"), CASES)
def test_every_format_and_size_as_cvtcolor_and_resize(kind, width, height):
    rng = np.random.default_rng(width * 7 + height)
    for size, color, layout, fit in (
        ((640, 640), "RGB", "NCHW", Fit()),
        ((100, 64), "BGR", "NHWC", Fit("stretch")),
        ((64, 100), "GRAY", "NCHW", Fit("letterbox_topleft")),
    ):
        plan = Plan(Source(width, height, kind), Tensor(*size, layout, "uint8", color), fit)
        frame = rng.integers(0, 256, plan.frame_bytes, np.uint8)
        np.testing.assert_array_equal(as_pixels(plan, run(plan, frame)), pixels(plan, frame))


def test_a_coloured_frame_keeps_its_colours_apart():
    """Noise hides a swapped order in neither of two equal channels; a plain colour shows it."""
    frame = np.zeros((90, 160, 3), np.uint8)
    frame[:] = (10, 100, 200)  # blue, green, red
    plan = Plan(Source(160, 90, PixelFormat.BGR8), Tensor(64, 64, dtype="uint8", color="RGB"), Fit("stretch"))
    assert run(plan, frame)[0, :, 32, 32].tolist() == [200, 100, 10]
    plan = Plan(Source(160, 90, PixelFormat.BGR8), Tensor(64, 64, dtype="uint8", color="BGR"), Fit("stretch"))
    assert run(plan, frame)[0, :, 32, 32].tolist() == [10, 100, 200]


@pytest.mark.parametrize("kind", list(PixelFormat))
def test_padded_rows(kind):
    """A padded frame gives what the tight one gives, and its padding is not looked at."""
    tight = Plan(Source(62, 48, kind), Tensor(40, 40, dtype="uint8"), Fit())
    frame = np.random.default_rng(1).integers(0, 256, tight.frame_bytes, np.uint8)
    row, stride = tight.source.row_bytes, tight.source.row_bytes + 13
    rows = frame.reshape(-1, row)
    padded = np.random.default_rng(2).integers(0, 256, (len(rows), stride), np.uint8)
    padded[:, :row] = rows
    plan = Plan(Source(62, 48, kind, stride=stride), tight.tensor, tight.fit)
    np.testing.assert_array_equal(run(plan, padded), run(tight, frame))


def test_nv12_planes_apart():
    """Chroma at its own place and with its own stride, as a camera's DMA buffers have it."""
    width, height = 64, 48
    tight = Plan(Source(width, height, PixelFormat.NV12), Tensor(40, 40, dtype="uint8"), Fit())
    frame = np.random.default_rng(1).integers(0, 256, tight.frame_bytes, np.uint8)
    apart = np.zeros(10000, np.uint8)
    apart[: width * height] = frame[: width * height]
    for row in range(height // 2):
        apart[5000 + row * 100 : 5000 + row * 100 + width] = frame[width * (height + row) :][:width]
    source = Source(width, height, PixelFormat.NV12, uv_offset=5000, uv_stride=100)
    np.testing.assert_array_equal(run(Plan(source, tight.tensor, tight.fit), apart), run(tight, frame))


def test_odd_nv12_and_yuyv_repeat_the_last_chroma():
    """OpenCV refuses odd sides; the picture must equal that of the frame that is one column and row larger."""
    for kind in SUBSAMPLED:
        even = Source(34, 22, kind)
        frame = np.random.default_rng(3).integers(0, 256, Plan(even, Tensor(8, 8)).frame_bytes, np.uint8)
        odd = Source(33, 21, kind, stride=even.stride_bytes, uv_offset=34 * 22 if kind is PixelFormat.NV12 else None)
        tensor = Tensor(33, 21, dtype="uint8")
        whole = run(Plan(even, Tensor(34, 22, dtype="uint8"), Fit("stretch")), frame)
        np.testing.assert_array_equal(run(Plan(odd, tensor, Fit("stretch")), frame), whole[:, :, :21, :33])


@pytest.mark.parametrize(
    ("size", "to"), [((4096, 3000), (640, 469)), ((1920, 1080), (300, 200)), ((333, 517), (64, 99))]
)
@pytest.mark.parametrize("kind", [PixelFormat.GRAY8, PixelFormat.BGR8])
def test_area_within_one_of_inter_area(kind, size, to):
    plan = Plan(Source(*size, kind), Tensor(*to, "NHWC", "uint8", "GRAY" if kind is PixelFormat.GRAY8 else "RGB"),
                Fit("stretch", "area"))  # fmt: skip
    frame = np.random.default_rng(4).integers(0, 256, plan.frame_bytes, np.uint8)
    difference = np.abs(run(plan, frame)[0].astype(int) - pixels(plan, frame, cv2.INTER_AREA).astype(int))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.01
