"""Pictures of a folder, as a camera."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path

from edge_app.camera.base import Births, Pace, PixelPool, Pixels
from edge_app.camera.convert import Converter
from edge_app.camera.picture import ENDINGS, BrokenPicture, load_bgr, load_gray
from edge_app.config.camera import FolderCamera
from edge_app.errors import CameraError
from edge_app.frame import Frame, FrameStatus, PixelFormat
from edge_app.listing import read_paths

_DIGITS = re.compile(r"(\d+)")
Shot = tuple[Pixels, int, int]
"""Pixels in the camera's format, width, height."""


class FolderSource:
    """A camera that gives the pictures of a folder, of a list, or one picture. Implements Camera.

    The files are listed once, at `open`. A picture that is broken, or gone by then, is an INCOMPLETE frame.
    """

    live = False
    simulated = True
    trouble: str | None = None
    width: int | None = None
    height: int | None = None

    def __init__(self, section: FolderCamera) -> None:
        self._section = section
        self._pace = Pace(section.rate_fps)
        self.pixel_format = section.pixel_format
        self.period_us = self._pace.period_us
        self._stopped = threading.Event()
        self._pool = PixelPool()
        self._converter = Converter(section.pixel_format, self._pool, section.row_align_bytes)
        self._births = Births(section.pixel_format)
        self._files: Iterator[Path] = iter(())
        self._preloaded: dict[Path, Shot | BrokenPicture] = {}

    def open(self) -> None:
        """List the pictures, and with `preload` decode them. Raises CameraError."""
        files = list_pictures(self._section)
        self._stopped.clear()
        self._pace = Pace(self._section.rate_fps)
        self._births = Births(self._section.pixel_format)
        self._files = _in_turn(files, self._section)
        if self._section.preload:
            self._preloaded = {file: self._try(file) for file in files}

    def read(self) -> Frame | None:
        """Born when its picture is decoded and due: that is the moment of this camera's exposure."""
        file = None if self._stopped.is_set() else next(self._files, None)
        if file is None:
            return None
        shot = self._preloaded.get(file) or self._try(file)
        self._pace.wait(self._stopped)
        if self._stopped.is_set():
            return None
        if isinstance(shot, BrokenPicture):
            return self._births.failed(FrameStatus.INCOMPLETE, f"{file.name}: {shot}", name=file.name)
        pixels, width, height = shot
        return self._births.complete(pixels, width, height, name=file.name)

    def recycle(self, frame: Frame) -> None:
        """Take a converted picture's buffer back (what a decoder allocated is left to Python)."""
        if not self._preloaded:
            self._pool.take_back(frame.pixels)

    def stop(self) -> None:
        """End reading, from any thread."""
        self._stopped.set()

    def close(self) -> None:
        """Forget preloaded pictures."""
        self._preloaded = {}

    def _try(self, file: Path) -> Shot | BrokenPicture:
        try:
            return self._take(file)
        except BrokenPicture as broken:
            return broken

    def _take(self, file: Path) -> Shot:
        """Decodes a picture; what the decoder gives is passed on as it is where the format allows."""
        as_decoded = self._section.row_align_bytes == 1
        if as_decoded and self.pixel_format is PixelFormat.GRAY8:
            pixels = load_gray(file)
            return pixels, pixels.shape[1], pixels.shape[0]
        pixels = load_bgr(file)
        if as_decoded and self.pixel_format is PixelFormat.BGR8:
            return pixels, pixels.shape[1], pixels.shape[0]
        try:
            return self._converter.convert(pixels)
        except ValueError as error:
            raise BrokenPicture(str(error)) from error


def natural_key(name: str) -> tuple[list[str | int], str]:
    """Sorts img2 before img10; names that differ in leading zeros alone keep one order everywhere."""
    parts = _DIGITS.split(name.casefold())
    return [int(part) if index % 2 else part for index, part in enumerate(parts)], name


def list_pictures(section: FolderCamera) -> list[Path]:
    """The pictures in their first order. Raises CameraError if the path is absent, unreadable or has none."""
    path = section.path
    try:
        if path.is_dir():
            matching = path.glob(section.pattern)
            files = [file for file in matching if file.suffix.lower() in ENDINGS and not file.is_dir()]
            next(path.iterdir(), None)  # glob passes over a folder that may not be read
        elif path.suffix.lower() == ".txt":
            files = read_paths(path, path.parent, CameraError)
        else:
            path.stat()
            files = [path]
        ordered = _ordered(files, section)
    except OSError as error:
        raise CameraError(
            "can't read the pictures",
            where=str(error.filename or path),
            wanted="a folder with pictures, one picture, or a .txt list of pictures",
            got=error.strerror or str(error),
            remedy="check camera.path and its permissions",
        ) from error
    except (ValueError, NotImplementedError) as error:
        raise CameraError(
            "no pattern of file names", where="camera.pattern", wanted="a glob, e.g. *.png", got=str(error)
        ) from error
    if not ordered:
        raise CameraError(
            "there are no pictures",
            where=str(path),
            wanted=f"files named {section.pattern} that end in {' '.join(ENDINGS)}",
            got="an empty list" if path.is_file() else f"{sum(1 for _ in path.iterdir())} other entries",
            remedy="check camera.path and camera.pattern",
        )
    return ordered


def _ordered(files: list[Path], section: FolderCamera) -> list[Path]:
    if section.order == "listed" and section.path.suffix.lower() == ".txt":
        return files
    by_name = sorted(files, key=lambda file: natural_key(str(file)))
    if section.order == "modified":
        return sorted(by_name, key=lambda file: file.stat().st_mtime_ns)
    return by_name


def _in_turn(files: list[Path], section: FolderCamera) -> Iterator[Path]:
    """Each round shuffles anew, so that a looped folder does not repeat one random order."""
    rng = random.Random(section.seed)
    while True:
        turn = list(files)
        if section.order == "shuffle":
            rng.shuffle(turn)
        yield from turn
        if not section.loop:
            return
