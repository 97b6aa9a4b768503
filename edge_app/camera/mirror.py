"""The drawn mirror of `mirror_scenes`, as a camera."""

from __future__ import annotations

import threading
from pathlib import Path

from edge_app.camera.base import Births, Pace, PixelPool
from edge_app.camera.convert import Converter, stored_size
from edge_app.camera.mirror_scenes import Scenes, drawn_visits, listed_pictures
from edge_app.clock import monotonic_us
from edge_app.config.camera import MirrorCamera
from edge_app.frame import Frame


class MirrorSource:
    """Garments before a mirror, frame by frame. Implements Camera."""

    live = False
    simulated = True
    trouble: str | None = None

    def __init__(self, section: MirrorCamera, *, paced: bool = True) -> None:
        """`paced`: frames come when they are due; else as fast as they are read, with the times they would have had."""
        self._section, self._paced = section, paced
        self._rate = section.rate_fps or 15.0
        self._pace = Pace(self._rate if paced else None)
        self.period_us = round(1e6 / self._rate)
        self.pixel_format = section.pixel_format
        self.width, self.height = stored_size(section.pixel_format, section.width, section.height)
        self._pool = PixelPool()
        self._converter = Converter(section.pixel_format, self._pool, section.row_align_bytes)
        self._stopped = threading.Event()
        self.scenes: Scenes
        """From `open` on."""

    def open(self) -> None:
        """Reads the list of pictures. Raises CameraError if there are none."""
        section = self._section
        visits = drawn_visits(listed_pictures(Path(section.path)), section.seed, section.visits)
        self.scenes = Scenes(visits, section.seed, section.width, section.height, self._rate)
        self._births = Births(section.pixel_format)
        self._stopped.clear()
        self._next, self._start_us = 0, monotonic_us()

    def read(self) -> Frame | None:
        """The next frame of the script; None after its last one."""
        self._pace.wait(self._stopped)
        if self._stopped.is_set() or self._next >= self.scenes.frames:
            return None
        pixels, width, height = self._converter.convert(self.scenes.draw(self._next))
        moment = self.scenes.moment(self._next)
        due_us = None if self._paced else self._start_us + self._next * self.period_us
        self._next += 1
        return self._births.complete(pixels, width, height, name=f"visit {moment.visit}", t_mono_us=due_us)

    def recycle(self, frame: Frame) -> None:
        """Takes the pixels' buffer back."""
        self._pool.take_back(frame.pixels)

    def stop(self) -> None:
        """Ends reading, from any thread."""
        self._stopped.set()

    def close(self) -> None:
        """Nothing is held."""
        self.stop()
