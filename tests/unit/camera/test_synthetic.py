from __future__ import annotations

import numpy as np
import pytest

from edge_app.camera import open_camera, pcb
from edge_app.camera.base import Camera
from edge_app.config.camera import SyntheticCamera
from edge_app.errors import CameraError
from edge_app.frame import Frame, FrameStatus, PixelFormat


def camera(**keys: object) -> Camera:
    return open_camera(SyntheticCamera.model_validate({"type": "synthetic", **keys}))


def frames(source: Camera) -> list[Frame]:
    result = list(iter(source.read, None))
    source.close()
    return result


def test_parts_are_those_of_the_seeds_for_lines() -> None:
    got = frames(camera(product=13, seed=40, frames=4, defect_rate=0.5))
    assert [f.frame_id for f in got] == [1, 2, 3, 4]
    for index, frame in enumerate(got):
        picture = pcb.draw(13, pcb.examining_seed(40 + index), defective_share=0.5)
        assert frame.status is FrameStatus.COMPLETE
        np.testing.assert_array_equal(frame.pixels, picture.image)
        assert frame.truth is not None
        assert [(d.label, d.box_px) for d in frame.truth] == [(d.label, d.box_px) for d in picture.defects]


def test_defect_rate() -> None:
    assert all(f.truth == () for f in frames(camera(frames=5, defect_rate=0.0)))
    assert all(f.truth for f in frames(camera(frames=5, defect_rate=1.0)))


@pytest.mark.parametrize(
    ("condition", "mean_luma"),
    [
        ("normal", (110, 190)),
        ("lens_cap", (3, 9)),
        ("lamp_off", (10, 30)),
        ("empty", (80, 120)),
        ("defocus", (110, 190)),
    ],
)
def test_conditions_look_like_their_names(condition: str, mean_luma: tuple[float, float]) -> None:
    (frame,) = frames(camera(frames=1, condition=condition, pixel_format=PixelFormat.GRAY8))
    assert frame.pixels is not None
    assert mean_luma[0] < frame.pixels.mean() < mean_luma[1]


def test_shifted_and_other_product_differ_from_normal() -> None:
    normal, shifted, other = (
        frames(camera(frames=1, condition=c, defect_rate=0.0, pixel_format=PixelFormat.GRAY8))[0].pixels
        for c in ("normal", "shifted", "other_product")
    )
    assert normal is not None
    assert shifted is not None
    assert other is not None
    moved_back = np.abs(shifted[100:500, 120:500].astype(int) - normal[100:500, 100:480]).mean()
    assert moved_back < 6 < np.abs(shifted.astype(int) - normal).mean()
    assert np.abs(other.astype(int) - normal).mean() > 20


@pytest.mark.parametrize("pixel_format", PixelFormat)
def test_pixel_formats(pixel_format: PixelFormat) -> None:
    source = camera(frames=1, pixel_format=pixel_format, row_align_bytes=1024)
    (frame,) = frames(source)
    assert frame.pixels is not None
    assert (frame.width, frame.height) == (source.width, source.height) == (640, 640)
    assert frame.pixels.strides[0] == (2048 if frame.pixels.strides[0] > 1024 else 1024)


def test_recycled_buffers_are_drawn_into_again() -> None:
    source = camera(frames=12)
    addresses = set()
    while (frame := source.read()) is not None:
        assert frame.pixels is not None
        addresses.add(frame.pixels.ctypes.data)
        source.recycle(frame)
    source.close()
    assert len(addresses) <= 6


def test_stop_before_the_end() -> None:
    source = camera(rate_fps=0.001)
    assert source.read() is not None
    source.stop()
    assert source.read() is None
    source.close()


def test_a_product_for_training_is_refused() -> None:
    with pytest.raises(CameraError, match="for training"):
        camera(product=2)
