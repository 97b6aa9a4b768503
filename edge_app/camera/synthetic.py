"""The printed-circuit-board line of `pcb`, as a camera that knows the truth of every frame."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, islice

from edge_app import threads
from edge_app.camera import pcb
from edge_app.camera.base import Births, Handover, Pace, PixelPool, Pixels
from edge_app.camera.convert import Converter, stored_size
from edge_app.config.camera import SyntheticCamera
from edge_app.errors import CameraError
from edge_app.frame import Frame, TrueDefect

DRAWN_AHEAD = 3
DEFOCUS_PX = 6.0
SHIFT_PX = 20.0
_CONDITIONS: dict[str, Callable[[pcb.Conditions], pcb.Conditions]] = {
    "normal": lambda seen: seen,
    "lens_cap": pcb.lens_capped,
    "lamp_off": pcb.lamp_off,
    "defocus": lambda seen: pcb.defocused(seen, DEFOCUS_PX),
    "shifted": lambda seen: pcb.shifted(seen, SHIFT_PX, 0.0),
    "empty": pcb.without_part,
    "other_product": lambda seen: seen,
}


@dataclass(frozen=True, slots=True)
class _Drawn:
    pixels: Pixels
    width: int
    height: int
    name: str
    truth: tuple[TrueDefect, ...]


class SyntheticSource:
    """Parts of one product, drawn a few ahead in a thread of its own. Implements Camera.

    Part n of the pipeline is drawn from the n-th seed that is kept for lines. `truth` is empty for a good part.
    """

    live = False
    simulated = True
    trouble: str | None = None

    def __init__(self, section: SyntheticCamera) -> None:
        self._section = section
        self._pace = Pace(section.rate_fps)
        self.pixel_format = section.pixel_format
        self.period_us = self._pace.period_us
        self.width, self.height = stored_size(section.pixel_format, pcb.SIZE_PX, pcb.SIZE_PX)
        self._pool = PixelPool()
        self._converter = Converter(section.pixel_format, self._pool, section.row_align_bytes)
        self._births = Births(section.pixel_format)
        self._stopped = threading.Event()
        self._drawn: Handover[_Drawn] = Handover(DRAWN_AHEAD)
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Start drawing. Raises CameraError for a product that is kept for training."""
        if pcb.is_training_product(self._section.product):
            raise CameraError(
                "this product of the synthetic line is for training",
                where="camera.product",
                wanted="an odd number: lines and examinations run on boards that no model was trained on",
                got=str(self._section.product),
                remedy=f"set camera.product to {self._section.product + 1}",
            )
        self._stopped.clear()
        self._pace = Pace(self._section.rate_fps)
        self._births = Births(self._section.pixel_format)
        self._drawn = Handover(DRAWN_AHEAD)
        self._thread = threads.daemon(self._draw_ahead, "draw", (self._drawn,))
        self._thread.start()

    def read(self) -> Frame | None:
        """Born when it is due, not when it was drawn."""
        drawn = self._drawn.get()
        self._pace.wait(self._stopped)
        if drawn is None or self._stopped.is_set():
            return None
        return self._births.complete(drawn.pixels, drawn.width, drawn.height, name=drawn.name, truth=drawn.truth)

    def recycle(self, frame: Frame) -> None:
        """Take the pixels' buffer back."""
        self._pool.take_back(frame.pixels)

    def stop(self) -> None:
        """End reading and drawing, from any thread."""
        self._stopped.set()
        self._drawn.stop()

    def close(self) -> None:
        """End the drawing thread."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _draw_ahead(self, drawn: Handover[_Drawn]) -> None:
        try:
            for part in islice(count(self._section.seed), self._section.frames):
                if not drawn.put(self._draw(part), wait=True):
                    return
        except Exception as error:
            drawn.end(error)  # raised again in `read`
        else:
            drawn.end()

    def _draw(self, part: int) -> _Drawn:
        section = self._section
        product = section.product + (2 if section.condition == "other_product" else 0)
        seed = pcb.examining_seed(part)
        seen = _CONDITIONS[section.condition](pcb.natural_conditions(product, seed))
        picture = pcb.draw(product, seed, conditions=seen, defective_share=section.defect_rate)
        pixels, width, height = self._converter.convert(picture.image)
        truth = tuple(TrueDefect(defect.label, defect.box_px) for defect in picture.defects)
        return _Drawn(pixels, width, height, f"product {product} seed {seed}", truth)
