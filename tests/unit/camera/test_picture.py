from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_app.camera.picture import BrokenPicture, find_flaw, load_bgr, load_gray

RNG = np.random.default_rng(7)
PICTURE = cv2.GaussianBlur(RNG.integers(0, 256, (40, 60, 3), dtype=np.uint8), (0, 0), 2)


def encoded(ending: str, picture: np.ndarray = PICTURE, *options: int) -> bytes:
    ok, data = cv2.imencode(ending, picture, options)
    assert ok
    return data.tobytes()


WHOLE = {
    "baseline.jpg": encoded(".jpg"),
    "progressive.jpg": encoded(".jpg", PICTURE, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "restarts.jpg": encoded(".jpg", PICTURE, cv2.IMWRITE_JPEG_RST_INTERVAL, 2),
    "a.png": encoded(".png"),
    "a.webp": encoded(".webp"),
    "a.bmp": encoded(".bmp"),
    "a.tif": encoded(".tif"),
    "a.ppm": encoded(".ppm"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_files_load(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(WHOLE[name])
    pixels = load_bgr(file)
    assert (pixels.shape, pixels.dtype) == ((40, 60, 3), np.uint8)
    assert np.abs(pixels.astype(int) - PICTURE).mean() < 8
    assert load_gray(file).shape == (40, 60)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(sorted(WHOLE)), st.floats(0, 1, exclude_max=True))
def test_every_truncation_is_noticed(tmp_path_factory: pytest.TempPathFactory, name: str, share: float) -> None:
    data = WHOLE[name]
    file = tmp_path_factory.mktemp("cut") / name
    file.write_bytes(data[: int(share * len(data))])
    with pytest.raises(BrokenPicture):
        load_bgr(file)


def test_one_byte_short_is_noticed() -> None:
    for name in ("baseline.jpg", "progressive.jpg", "restarts.jpg", "a.png", "a.webp", "a.bmp"):
        assert find_flaw(WHOLE[name]) is None, name
        assert find_flaw(WHOLE[name][:-1]) is not None, name


def test_a_thumbnails_end_marker_is_not_the_pictures() -> None:
    whole = WHOLE["baseline.jpg"]
    thumbnail = b"Exif\x00\x00" + whole
    application = b"\xff\xe1" + (len(thumbnail) + 2).to_bytes(2, "big") + thumbnail
    with_thumbnail = whole[:2] + application + whole[2:]
    assert find_flaw(with_thumbnail) is None
    assert find_flaw(with_thumbnail[: len(application) + 200]) is not None


def test_a_png_with_a_flipped_bit_is_noticed() -> None:
    data = bytearray(WHOLE["a.png"])
    data[len(data) // 2] ^= 1
    assert "checksum" in (find_flaw(bytes(data)) or "")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"hello", "can't be decoded"),
        (b"\xff\xd8\xff\xe0", "JPEG"),
        (b"\xff\xd8" + b"x" * 50, "damaged JPEG"),
    ],
)
def test_what_is_no_picture(content: bytes, why: str, tmp_path: Path) -> None:
    file = tmp_path / "x.jpg"
    file.write_bytes(content)
    with pytest.raises(BrokenPicture, match=why):
        load_bgr(file)


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(BrokenPicture, match="No such file"):
        load_bgr(tmp_path / "gone.png")
    with pytest.raises(BrokenPicture, match="null byte"):
        load_bgr(tmp_path / "a\0b.png")


def test_deep_pictures_keep_their_upper_bits_and_alpha_is_dropped(tmp_path: Path) -> None:
    deep = PICTURE.astype(np.uint16) * 256 + 200
    cv2.imwrite(str(tmp_path / "deep.png"), deep)
    np.testing.assert_array_equal(load_bgr(tmp_path / "deep.png"), PICTURE)
    clear = np.dstack([PICTURE, np.zeros(PICTURE.shape[:2], np.uint8)])
    cv2.imwrite(str(tmp_path / "clear.png"), clear)
    np.testing.assert_array_equal(load_bgr(tmp_path / "clear.png"), PICTURE)


def test_one_bit_templates_are_black_and_white(tmp_path: Path) -> None:
    board = np.where(RNG.random((33, 47)) < 0.5, 0, 255).astype(np.uint8)
    cv2.imwrite(str(tmp_path / "bit.png"), board, (cv2.IMWRITE_PNG_BILEVEL, 1))
    np.testing.assert_array_equal(load_gray(tmp_path / "bit.png"), board)
    np.testing.assert_array_equal(load_bgr(tmp_path / "bit.png"), np.dstack([board] * 3))


def test_exif_orientation_is_not_applied(tmp_path: Path) -> None:
    quarter_turn = b"\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00"
    turn = b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01" + quarter_turn + bytes(4)
    whole = WHOLE["baseline.jpg"]
    file = tmp_path / "turned.jpg"
    file.write_bytes(whole[:2] + b"\xff\xe1" + (len(turn) + 2).to_bytes(2, "big") + turn + whole[2:])
    assert cv2.imread(str(file)).shape == (60, 40, 3)  # OpenCV alone would turn it
    assert load_bgr(file).shape == (40, 60, 3)
