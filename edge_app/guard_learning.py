"""Learning the frame guard: from good frames of one product to its limits and references. Pure.

The rule, whole:
- Frames that fail what needs no reference (dark, flat, without edges) teach nothing and are left out, and said so.
- A frame that matches a reference by SAME or better, at most SAME_PLACE_PX off, is another picture of that reference;
  any other frame becomes a reference. Of each group the frame in the middle of its places is the one that is kept.
- The largest shift is what 99 of 100 good frames keep to, and 2 px; 4 px are always allowed. A good frame that lies
  further off becomes a reference of its own.
- The other limits are the extremes of all good frames, widened: luma by a tenth and 8 levels, contrast by a fifth,
  clipping by 2 points, noise by half and 2 levels, edges by half a px; detail may fall to 0.7 of the least seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edge_app.errors import ConfigError
from edge_app.guard import Finding, Limits, Product, Signature, check, match_anywhere, signature_of
from edge_app.preprocess import FrameMeasures

SAME, SAME_PLACE_PX = 0.9, 10.0
LEAST_MATCH = 0.8
LEAST_SHIFT_PX, SHIFT_MARGIN_PX = 4.0, 2.0
EDGE_MARGIN_PX = 0.5
LEAST_FRAMES = 20
"""Fewer good frames of one place can't show how much they vary."""


@dataclass(frozen=True)
class Learnt:
    """A product as learnt, and the frames (by their index) that taught nothing."""

    product: Product
    left_out: tuple[tuple[int, Finding], ...]


@dataclass(frozen=True)
class _Seen:
    """A good frame and the reference that it is a picture of."""

    measures: FrameMeasures
    signature: Signature
    reference: int
    shift_px: tuple[float, float]


def learn(name: str, size: tuple[int, int], frames: Sequence[FrameMeasures]) -> Learnt:
    """Learns one product from good frames, all of `size` (width, height, px).

    Raises:
        ConfigError: no frame is usable.
    """
    findings = [check(frame, (), size) for frame in frames]
    left_out = tuple((index, finding) for index, finding in enumerate(findings) if finding is not None)
    good = [frame for frame, finding in zip(frames, findings, strict=True) if finding is None]
    if not good:
        raise ConfigError(
            "no good frame to learn from",
            where=name,
            wanted="frames with light, contrast and edges",
            got=left_out[0][1].detail if left_out else "no frames at all",
            remedy="check the pictures, or the camera's light and lens",
        )
    signatures = [signature_of(frame) for frame in good]
    middles = _middles(_grouped(good, signatures, size, [], SAME_PLACE_PX))
    shift_px = _largest_shift_px(_grouped(good, signatures, size, middles, SAME_PLACE_PX))
    seen = _grouped(good, signatures, size, middles, shift_px)
    references = sorted({frame.reference for frame in seen})
    limits = _limits(seen, signatures, shift_px)
    return Learnt(_product(name, size, [signatures[index] for index in references], limits), left_out)


def _grouped(
    frames: Sequence[FrameMeasures],
    signatures: Sequence[Signature],
    size: tuple[int, int],
    references: list[int],
    same_place_px: float,
) -> list[_Seen]:
    """Each frame with its reference (an index into the frames): one of those given, or one that it becomes itself."""
    references = list(references)
    seen = []
    product = _product("", size, [signatures[index] for index in references], _ANY)
    for index, (frame, signature) in enumerate(zip(frames, signatures, strict=True)):
        match = match_anywhere(signature, product) if references else None
        shift = (match.shift_px if match is not None else None) or (0.0, 0.0)
        if match is not None and match.correlation >= SAME and max(abs(shift[0]), abs(shift[1])) <= same_place_px:
            seen.append(_Seen(frame, signature, references[match.reference], shift))
            continue
        references.append(index)
        product = _product("", size, [signatures[index] for index in references], _ANY)
        seen.append(_Seen(frame, signature, index, (0.0, 0.0)))
    return seen


def _middles(seen: Sequence[_Seen]) -> list[int]:
    """Of each group the frame (its index) whose place is nearest to the median place of the group."""
    middles = []
    for reference in sorted({frame.reference for frame in seen}):
        group = [index for index, frame in enumerate(seen) if frame.reference == reference]
        places = np.array([seen[index].shift_px for index in group])
        middles.append(group[int(np.abs(places - np.median(places, axis=0)).sum(1).argmin())])
    return middles


def _largest_shift_px(seen: Sequence[_Seen]) -> float:
    shifts = [max(abs(part) for part in frame.shift_px) for frame in seen]
    return max(LEAST_SHIFT_PX, float(np.quantile(shifts, 0.99)) + SHIFT_MARGIN_PX)


def _limits(seen: Sequence[_Seen], signatures: Sequence[Signature], largest_shift_px: float) -> Limits:
    frames = [frame.measures for frame in seen]
    luma = [frame.mean_luma for frame in frames]
    detail = min(frame.signature.detail / max(signatures[frame.reference].detail, 1e-6) for frame in seen)
    return Limits(
        luma=(max(0.0, 0.9 * min(luma) - 8), min(255.0, 1.1 * max(luma) + 8)),
        least_contrast=0.8 * min(frame.contrast for frame in frames),
        most_dark=min(1.0, max(frame.dark_fraction for frame in frames) + 0.02),
        most_bright=min(1.0, max(frame.bright_fraction for frame in frames) + 0.02),
        most_noise=1.5 * max(frame.noise for frame in frames) + 2,
        widest_edge_px=max(1 / frame.sharpness for frame in frames) + EDGE_MARGIN_PX,
        least_detail=0.7 * min(1.0, detail),
        largest_shift_px=largest_shift_px,
        least_match=LEAST_MATCH,
    )


def _product(name: str, size: tuple[int, int], references: Sequence[Signature], limits: Limits) -> Product:
    return Product(
        name=name,
        width=size[0],
        height=size[1],
        limits=limits,
        columns=np.array([reference.columns for reference in references], np.float32),
        rows=np.array([reference.rows for reference in references], np.float32),
        detail=np.array([reference.detail for reference in references], np.float32),
    )


_ANY = Limits((0, 255), 0, 1, 1, 255, 1e9, 0, 1e9, -1)
"""No limits, while there are none yet."""
