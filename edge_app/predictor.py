"""A model from Python, on the CPU: `edge_app.load("models/pcb-defect")(image)`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_app.config.pipeline import Model
from edge_app.config.tensor import Preprocess
from edge_app.detections import Classes, Detections
from edge_app.engine import Engine, Work
from edge_app.frame import Frame, FrameStatus, PixelFormat
from edge_app.model import DEFAULT_SCORE, ModelCard, resolve
from edge_app.runtime.cpu import open_cpu
from edge_app.verdict import PowerMode


class Predictor:
    """A loaded model as a function: `predictor(image)` gives the detections."""

    def __init__(self, card: ModelCard, engine: Engine) -> None:
        self.card = card
        self._engine = engine
        self._work: Work = engine.bind()

    def __call__(self, image: npt.NDArray[np.uint8]) -> Detections | Classes:
        """One inference.

        Args:
            image: uint8, [H, W, 3] in BGR as `cv2.imread` gives it, or [H, W] grey.

        Returns:
            Detections in the image's pixels (labels index `self.card.labels`), or Classes.

        Raises:
            TypeError: not such an image.
            InvalidOutput: NaN or Inf came out.
        """
        if not isinstance(image, np.ndarray):
            raise TypeError(
                f"image: wanted a NumPy array, got {type(image).__name__} (as cv2.imread gives for what it can't read)"
            )
        if image.dtype != np.uint8 or not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)):
            raise TypeError(f"image: wanted uint8 [H, W, 3] (BGR) or [H, W], got {image.dtype} {list(image.shape)}")
        image = np.ascontiguousarray(image)
        pixel_format = PixelFormat.GRAY8 if image.ndim == 2 else PixelFormat.BGR8
        height, width = image.shape[:2]
        frame = Frame(1, 1, 0, 0, FrameStatus.COMPLETE, pixel_format, width, height, image)
        self._engine.preprocess(frame, self._work)
        self._engine.run(self._work, PowerMode.NONE)
        return self._engine.result(self._work)


def load(
    model: str | Path,
    *,
    score: float | None = None,
    threads: int | None = None,
    size: tuple[int, int] | None = None,
) -> Predictor:
    """Loads a model for use from Python, on the CPU: `edge_app.load("models/pcb-defect")(image)`.

    Args:
        model: a model folder or an Ultralytics ONNX file.
        score: lowest score of a detection; None: the manifest's operating scores, else 0.25.
        threads: CPU threads; None: as many as cores.
        size: width, height of the input, for a folder of several sizes.

    Raises:
        ModelError, ConfigError: see `resolve`.
    """
    card = resolve(Model(path=Path(model), size=size), Preprocess())
    session = open_cpu(card.file, threads)
    thresholds = [score if score is not None else card.score.get(label, DEFAULT_SCORE) for label in card.labels]
    decoder = card.decoder(session.outputs, np.array(thresholds, np.float32), card.head)
    return Predictor(card, Engine(session, card.input, decoder))
