"""Where pixels land, and the way back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_app.errors import ConfigError
from edge_app.preprocess.geometry import fit_geometry


@pytest.mark.parametrize(
    ("frame", "tensor", "mode", "inner", "pad"),
    [
        ((1920, 1080), (640, 640), "letterbox", (640, 360), (0, 140)),
        ((1080, 1920), (640, 640), "letterbox", (360, 640), (140, 0)),
        ((4096, 3000), (640, 640), "letterbox", (640, 469), (0, 85)),  # 468.75 is rounded, the odd row is at the bottom
        ((640, 640), (416, 416), "letterbox", (416, 416), (0, 0)),
        ((100, 50), (640, 640), "letterbox", (640, 320), (0, 160)),  # enlarges
        ((3, 2), (3, 3), "letterbox", (3, 2), (0, 0)),
        ((5, 4), (2, 2), "letterbox", (2, 2), (0, 0)),  # 1.6
        ((4, 5), (4, 2), "letterbox", (2, 2), (1, 0)),
        ((2, 5), (10, 10), "letterbox", (4, 10), (3, 0)),
        ((8, 5), (4, 4), "letterbox", (4, 2), (0, 1)),  # 2.5 to even
        ((8, 7), (4, 4), "letterbox", (4, 4), (0, 0)),  # 3.5 to even
        ((5000, 1), (64, 64), "letterbox", (64, 1), (0, 31)),  # never less than one row
        ((1920, 1080), (640, 640), "letterbox_topleft", (640, 360), (0, 0)),
        ((1920, 1080), (640, 384), "stretch", (640, 384), (0, 0)),
        ((1280, 720), (224, 224), "crop", (224, 224), (0, 0)),
    ],
)
def test_size_and_place(frame, tensor, mode, inner, pad):
    g = fit_geometry(*frame, *tensor, mode)
    assert (g.inner_width, g.inner_height) == inner
    assert (g.pad_x, g.pad_y) == pad


def test_crop_as_torchvision():
    g = fit_geometry(1280, 720, 224, 224, "crop", shorter_side=256)
    assert (g.resized_width, g.resized_height) == (455, 256)  # int(256 * 1280 / 720)
    assert (g.crop_x, g.crop_y) == (round((455 - 224) / 2), 16)
    covering = fit_geometry(1280, 720, 224, 224, "crop")
    assert (covering.resized_width, covering.resized_height, covering.crop_x) == (398, 224, 87)


def test_boxes_return_to_the_frame():
    g = fit_geometry(1920, 1080, 640, 640, "letterbox")
    boxes = g.to_source_px([[0, 140, 640, 500], [320, 320, 330, 340], [-50, 0, 700, 640]])
    np.testing.assert_array_equal(boxes, np.float32([[0, 0, 1920, 1080], [960, 540, 990, 600], [0, 0, 1920, 1080]]))
    assert boxes.dtype == np.float32
    assert g.to_source_px(np.zeros((0, 4))).shape == (0, 4)


def test_boxes_of_a_region_and_a_crop():
    region = fit_geometry(1000, 800, 100, 100, "stretch", region=(200, 100, 400, 500))
    np.testing.assert_array_equal(region.to_source_px([[0, 0, 50, 100]]), [[200, 100, 300, 500]])
    crop = fit_geometry(1280, 720, 224, 224, "crop")
    np.testing.assert_allclose(
        crop.to_source_px([[0, 0, 224, 224]]), [[87 * 1280 / 398, 0, 311 * 1280 / 398, 720]], rtol=1e-6
    )


sides = st.integers(1, 5000)


@given(
    sides,
    sides,
    st.integers(1, 1300),
    st.integers(1, 1300),
    st.sampled_from(["letterbox", "letterbox_topleft", "crop", "stretch"]),
)
def test_inner_window_is_inside_and_boxes_come_back(width, height, tensor_width, tensor_height, mode):
    try:
        g = fit_geometry(width, height, tensor_width, tensor_height, mode)
    except ConfigError:
        pytest.fail("every size can be fitted")
    assert 0 <= g.pad_x <= tensor_width - g.inner_width
    assert 0 <= g.pad_y <= tensor_height - g.inner_height
    assert 0 <= g.crop_x <= g.resized_width - g.inner_width
    box = np.array([[0, 0, width, height]], np.float64)
    np.testing.assert_allclose(g.to_source_px(g.to_tensor_px(box)), box, rtol=1e-4, atol=0.05)


@pytest.mark.parametrize("region", [(0, 0, 0, 10), (5, 0, 4, 10), (-1, 0, 10, 10), (0, 0, 101, 10)])
def test_a_region_outside_the_frame_is_refused(region):
    with pytest.raises(ConfigError, match="not inside the frame") as error:
        fit_geometry(100, 100, 10, 10, "stretch", region)
    assert str(region) in str(error.value)


def test_a_crop_that_does_not_cover_is_refused():
    with pytest.raises(ConfigError, match="does not cover"):
        fit_geometry(1280, 720, 224, 224, "crop", shorter_side=200)
    with pytest.raises(ConfigError, match="unknown fit"):
        fit_geometry(1280, 720, 224, 224, "zoom")
