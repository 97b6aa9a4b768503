"""The canary: one stored inference that a plan must give again before it is trusted with parts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from edge_app.config.manifest import Artifact
from edge_app.config.save import set_canary
from edge_app.detections import Classes, Detections, iou
from edge_app.engine import Engine, fit_of, source_of, tensor_of
from edge_app.errors import InvalidOutput, ModelError
from edge_app.frame import Frame, FrameStatus, PixelFormat
from edge_app.model import DEFAULT_SCORE, ModelCard, check_digest, sha256_of
from edge_app.preprocess import Plan
from edge_app.runtime.base import TensorInfo
from edge_app.runtime.cpu import open_cpu
from edge_app.verdict import PowerMode

SCORE_TOLERANCE = 0.2
"""By how much a score may differ: plans of one model are quantised differently."""
IOU_AT_LEAST = 0.6
NAMED_AT = 0.7
"""A classifier must name its canary with at least this: no other label can then be within the tolerance."""
Found = Detections | Classes
Scores = npt.NDArray[np.float32]
SYNTHETIC = re.compile(r"^synthetic product=(\d+) seed=(\d+)$")


class Canary:
    """A picture, and what the float model found in it."""

    def __init__(self, frame: Frame, expected: Found, firm: Scores, labels: Sequence[str]) -> None:
        """`firm` [C]: what is at or above its label's score must be found again, and nothing else well above it.

        Of a classifier the score of the label that it gave must come again. `labels` [C]: their names.

        Raises:
            InvalidOutput: nothing that is expected is firm, so that any answer but a false alarm would do.
        """
        self._frame, self._labels = frame, labels
        self._expected, self._firm = expected, _checked(expected, firm, labels)

    def prove(self, engine: Engine) -> str | None:
        """Runs the picture on an engine. None if what was found is what was stored, else what differs.

        Raises:
            EdgeAppError: the run failed.
        """
        work = engine.bind()
        engine.preprocess(self._frame, work, (0, 0, self._frame.width, self._frame.height))
        on_npu = engine.session.provider == "qnn"
        engine.run(work, PowerMode.BURST if on_npu else PowerMode.NONE)
        found = engine.result(work)
        if isinstance(found, Classes) and isinstance(self._expected, Classes):
            return difference_of_classes(self._expected, found, self._labels)
        if isinstance(found, Detections) and isinstance(self._expected, Detections):
            return difference(self._expected, found, self._firm, self._labels)
        raise InvalidOutput(
            "the canary is another kind of model's",
            wanted=type(self._expected).__name__.lower(),
            got=type(found).__name__.lower(),
        )


def _checked(expected: Found, firm: Scores, labels: Sequence[str]) -> Scores:
    if isinstance(expected, Classes):
        if expected.scores.max() < NAMED_AT:
            raise InvalidOutput(
                "the canary proves nothing: the model is not sure what its picture shows",
                wanted=f"a label with a score of at least {NAMED_AT}",
                got=f"{labels[expected.best]} with {expected.scores.max():.3f}",
                remedy="record one that it is sure of: edge_app model canary NAME --picture P",
            )
        return firm
    if not (expected.scores >= firm[expected.labels]).any():
        best = f"{labels[expected.labels[0]]} with {expected.scores.max():.3f}" if len(expected) else "nothing found"
        wanted = ", ".join(f"{label} with {score:.3f}" for label, score in zip(labels, firm, strict=True))
        raise InvalidOutput(
            "the canary proves nothing: no detection in its picture reaches the score at which its label FAILs",
            wanted=f"at least one of {wanted}",
            got=best,
            remedy="record one with a clear defect: edge_app model canary NAME --picture P",
        )
    return firm


def difference(expected: Detections, found: Detections, firm: Scores, labels: Sequence[str]) -> str | None:
    """What of two lists of detections does not belong together; None if nothing.

    Args:
        expected: what was stored.
        found: what a plan found now.
        firm: [C] by label, what is well above or below is no matter of luck.
        labels: [C] their names.
    """
    for one, other, what in ((expected, found, "not found again"), (found, expected, "found, but not stored")):
        slack = 0.0 if one is expected else SCORE_TOLERANCE
        for index in np.flatnonzero(one.scores >= firm[one.labels] + slack):
            if not _has(other, one, int(index)):
                label, box = labels[one.labels[index]], one.boxes_px[index].tolist()
                return f"{label} with {one.scores[index]:.2f}, box {box}: {what}"
    return None


def difference_of_classes(expected: Classes, found: Classes, labels: Sequence[str]) -> str | None:
    """What of a classifier's scores for the canary's picture is not as it was stored; None if nothing."""
    label = expected.best
    was, now = float(expected.scores[label]), float(found.scores[label])
    if abs(now - was) <= SCORE_TOLERANCE:
        return None
    return f"{labels[label]} with {was:.2f}: now {now:.2f}, and {labels[found.best]} with {found.scores.max():.2f}"


def _has(others: Detections, one: Detections, index: int) -> bool:
    near = (iou(one.boxes_px[index], others.boxes_px) >= IOU_AT_LEAST) & (others.labels == one.labels[index])
    return bool((near & (np.abs(others.scores - one.scores[index]) <= SCORE_TOLERANCE)).any())


def load_canary(card: ModelCard) -> Canary | None:
    """The canary of a model; None if its manifest has none.

    Raises:
        ModelError: absent, damaged, of a picture that can't be made, or with nothing in it that reaches the scores of
            the manifest (they may have been chosen anew since it was recorded).
    """
    if card.manifest is None or card.manifest.canary is None or card.folder is None:
        return None
    stored = card.manifest.canary
    file = check_digest(card.folder, Artifact(file=stored.file, sha256=stored.sha256))
    with np.load(file, allow_pickle=False) as arrays:
        outputs = {name: np.ascontiguousarray(arrays[name]) for name in arrays.files}
    frame = _frame(canary_picture(stored.picture, card.folder))
    infos = tuple(TensorInfo(name, array.shape, array.dtype) for name, array in outputs.items())
    firm = firm_scores(card)
    decode = card.decoder(infos, firm * np.float32(0.5), card.head)
    geometry = Plan(source_of(frame), tensor_of(card.input), fit_of(card.input)).geometry
    expected = decode(tuple(outputs.values()), geometry)
    try:
        return Canary(frame, expected, firm, card.labels)
    except InvalidOutput as error:
        remedy = error.remedy
        raise ModelError(error.what, where=str(file), wanted=error.wanted, got=error.got, remedy=remedy) from error


def firm_scores(card: ModelCard) -> Scores:
    """[C] the manifest's operating scores: what the canary's picture shows at or above must be found again."""
    return np.array([card.score.get(label, DEFAULT_SCORE) for label in card.labels], np.float32)


def canary_picture(picture: str, folder: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """The picture that a manifest names: `synthetic product=P seed=S`, or a file in the model's folder."""
    if (match := SYNTHETIC.match(picture)) is not None:
        from edge_app.camera.pcb import draw, forget_products

        drawn = draw(int(match[1]), int(match[2])).image
        forget_products()
        return drawn
    image = cv2.imread(str(folder / picture), cv2.IMREAD_COLOR)
    if image is None:
        raise ModelError(
            "the canary's picture can't be had",
            where=str(folder / picture),
            wanted="a picture, or `synthetic product=P seed=S`",
            got=picture,
        )
    return np.asarray(image, np.uint8)


def _frame(image: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> Frame:
    height, width = image.shape[:2]
    return Frame(1, 1, 0, 0, FrameStatus.COMPLETE, PixelFormat.BGR8, width, height, image)


def record_canary(card: ModelCard, picture: str, file_name: str = "canary.npz") -> None:
    """Runs the float model on a picture, stores its outputs beside the manifest, and names them there.

    Raises:
        ModelError: the model is no folder with a manifest, or the picture can't be made.
        InvalidOutput: nothing in the picture reaches the score at which it FAILs: such a canary would prove nothing.
    """
    if card.folder is None:
        raise ModelError(
            "only a model folder can have a canary", where=str(card.file), wanted="a folder with a manifest"
        )
    frame = _frame(canary_picture(picture, card.folder))
    session = open_cpu(card.file)
    firm = firm_scores(card)
    engine = Engine(session, card.input, card.decoder(session.outputs, firm, card.head))
    work = engine.bind()
    engine.preprocess(frame, work)
    engine.run(work, PowerMode.NONE)
    found = engine.result(work)
    Canary(frame, found, firm, card.labels)  # one that proves nothing is refused before anything is written
    file = card.folder / file_name
    arrays = {info.name: output for info, output in zip(session.outputs, work.binding.outputs, strict=True)}
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    set_canary(card.folder, file_name, sha256_of(file), picture)
