"""The peer of the host's part: ultralytics' own prediction loop, fed from memory; and whether it finds what we find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edge_app.bench import peers
from edge_app.bench.running import frames_of
from edge_app.detections import Detections
from edge_app.engine import Engine, Work
from edge_app.frame import Frame
from edge_app.verdict import PowerMode

COMPARED_SCORE = 0.5
"""Ours returns what reaches its label's operating score, the peer what reaches one score for all: both return these."""
SAME_PX = 2.0
SAME_SCORE = 0.02


def ultralytics_loop(pictures: Path, model: Path | None, size: int = 640) -> Callable[[int], list[Any]] | None:
    """predict(stream=True) over pictures in memory, a frame at a time; None: not installed.

    Args:
        pictures: read before.
        model: an ONNX file; None: inference gives a drawn output at once.
        size: of the model's input, px.

    Returns:
        Runs over so many frames and gives their results.
    """
    package, build = peers.optional("ultralytics"), peers.optional("ultralytics.data.build")
    if package is None or build is None:
        return None
    kind = build.SourceTypes(False, False, False, True)
    yolo = package.YOLO("yolov8n.yaml" if model is None else str(model), task="detect")
    images = [frame.pixels for frame in frames_of(pictures)]
    predictor = yolo._smart_load("predictor")(overrides={"imgsz": size, "verbose": False, "save": False, "conf": 0.25,
                                                         "device": "cpu", "mode": "predict"})  # fmt: skip
    predictor.setup_model(yolo.model, verbose=False)
    if model is None:
        output = peers.optional("torch").from_numpy(_drawn_output())  # type: ignore[union-attr]
        predictor.inference = lambda *_args, **_kwargs: output

    class InMemory:
        """A source that gives one picture after another, as a stream does."""

        bs, mode, source_type = 1, "image", kind
        frames = 0

        def __iter__(self) -> Iterator[Any]:
            return iter([(["frame.png"], [images[n % len(images)]], [""]) for n in range(self.frames)])

        def __len__(self) -> int:
            return self.frames

    set_up = predictor.setup_source

    def work(frames: int) -> list[Any]:
        def setup_source(_source: object, *_args: object) -> None:
            set_up(images[0])
            predictor.dataset = InMemory()
            predictor.dataset.frames = frames

        predictor.setup_source = setup_source
        return list(predictor(source=None, stream=True))

    work(2)
    return work


def _drawn_output() -> Any:
    """[1, 84, 8400] with a handful of objects."""
    from edge_app.bench.decode import head

    return head(0)


def same_detections(engine: Engine, work: Work, frames: Sequence[Frame], theirs: Sequence[Any]) -> float:
    """Share of the detections of either side at COMPARED_SCORE that the other has too: label, box and score."""
    found = same = 0
    for frame, result in zip(frames, theirs, strict=True):
        engine.preprocess(frame, work)
        engine.run(work, PowerMode.NONE)
        ours = engine.result(work)
        assert isinstance(ours, Detections)
        one = np.column_stack([ours.labels, ours.scores, ours.boxes_px])
        other = np.column_stack([array.cpu().numpy() for array in (result.boxes.cls, result.boxes.conf)])
        other = np.column_stack([other, result.boxes.xyxy.cpu().numpy()])
        for side, beside in ((one, other), (other, one)):
            for row in side[side[:, 1] >= COMPARED_SCORE]:
                near = np.abs(beside - row) <= (0, SAME_SCORE, *[SAME_PX] * 4)
                found, same = found + 1, same + bool(near.all(axis=1).any())
    return same / found if found else 0.0
