"""Decoding one picture file whole, or saying what is wrong with it.

OpenCV is not told to be strict and can't be: a truncated JPEG comes back with its lower part grey, as if it were a
picture (libjpeg only prints a warning). So the file's own structure is checked first: a JPEG must reach its end
marker, a PNG its IEND chunk with every checksum right, WebP and BMP the length that they announce. Other formats
fail in their decoders. Damage *inside* a JPEG that leaves its markers intact can't be seen here.

16-bit pictures are reduced to their upper 8 bits; transparency is dropped; EXIF orientation is not applied.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import cv2
import numpy as np

from edge_app.camera.base import Pixels

ENDINGS = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp")
"""File names that are taken for pictures (in any case)."""

_JPEG_MARKER = re.compile(rb"\xff+([^\x00\xff])")
_JPEG_SCAN_END = re.compile(rb"\xff+[^\x00\xff\xd0-\xd7]")
_EXIF = re.compile(rb"exif", re.IGNORECASE)
_JPEG_ALONE = frozenset((0x01, *range(0xD0, 0xD9)))
_JPEG_END, _JPEG_SCAN = 0xD9, 0xDA


class BrokenPicture(Exception):
    """The file holds no whole picture; the message says why."""


def load_bgr(file: Path) -> Pixels:
    """Reads a picture as BGR, uint8 [H, W, 3]. Raises BrokenPicture."""
    return _load(file, cv2.IMREAD_COLOR)


def load_upright(file: Path) -> Pixels:
    """As `load_bgr`, where labels are of what people see: a picture that is stored turned is a BrokenPicture too."""
    pixels = load_bgr(file)
    data = file.read_bytes()
    shown = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if _EXIF.search(data) else None
    if shown is None or np.array_equal(shown, pixels):
        return pixels
    raise BrokenPicture("stored turned, which no line follows (EXIF): store it upright, e.g. `mogrify -auto-orient`")


def load_gray(file: Path) -> Pixels:
    """Reads a picture as grey, uint8 [H, W]. Raises BrokenPicture."""
    return _load(file, cv2.IMREAD_GRAYSCALE)


def _load(file: Path, flags: int) -> Pixels:
    try:
        data = file.read_bytes()
    except (OSError, ValueError) as error:  # the latter of a name with a NUL in it
        raise BrokenPicture(f"can't be read: {getattr(error, 'strerror', None) or error}") from error
    flaw = find_flaw(data)
    if flaw is not None:
        raise BrokenPicture(flaw)
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:
        raise BrokenPicture(f"can't be decoded: {error.err}") from error
    if pixels is None:
        raise BrokenPicture("can't be decoded: no picture in a known format, or a damaged one")
    return np.asarray(pixels, np.uint8)


def find_flaw(data: bytes) -> str | None:
    """What is wrong with the structure of a picture file, or None. Formats that are not checked here pass."""
    if not data:
        return "the file is empty"
    if data.startswith(b"\xff\xd8"):
        return _jpeg_flaw(data)
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return _png_flaw(data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _length_flaw(data, int.from_bytes(data[4:8], "little") + 8)
    if data.startswith(b"BM"):
        return _length_flaw(data, int.from_bytes(data[2:6], "little"))
    return None


def _length_flaw(data: bytes, announced: int) -> str | None:
    return None if len(data) >= announced else f"truncated: {len(data)} of {announced} bytes"


def _jpeg_flaw(data: bytes) -> str | None:
    """Walks the segments (ITU-T T.81, annex B), since an embedded thumbnail has an end marker of its own."""
    position = 2
    while (marker := _JPEG_MARKER.match(data, position)) is not None:
        code, position = marker.group(1)[0], marker.end()
        if code == _JPEG_END:
            return None
        if code in _JPEG_ALONE:
            continue
        position += int.from_bytes(data[position : position + 2], "big")
        if code == _JPEG_SCAN:
            scan_end = _JPEG_SCAN_END.search(data, position)
            position = scan_end.start() if scan_end is not None else len(data)
    if position >= len(data):
        return f"truncated JPEG: {len(data)} bytes, no end marker"
    return f"damaged JPEG: no marker at byte {position}"


def _png_flaw(data: bytes) -> str | None:
    """Walks the chunks (W3C PNG, 5.3): length, type, data, CRC-32 of type and data."""
    view, position = memoryview(data), 8
    while position + 12 <= len(data):
        length = int.from_bytes(view[position : position + 4], "big")
        end = position + 12 + length
        if end > len(data):
            break
        kind = bytes(view[position + 4 : position + 8])
        if zlib.crc32(view[position + 4 : end - 4]) != int.from_bytes(view[end - 4 : end], "big"):
            return f"damaged PNG: wrong checksum in chunk {kind!r} at byte {position}"
        if kind == b"IEND":
            return None
        position = end
    return f"truncated PNG: {len(data)} bytes, no IEND chunk"
