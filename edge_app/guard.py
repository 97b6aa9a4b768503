"""The frame guard: could a defect have been seen in this picture at all? Pure: measures in, a finding or None out.

A model finds nothing on a black, white, blurred or foreign picture, and finding nothing looks like a good part. So a
frame must first look like a good one: it must show one of the references learnt (`edge_app.guard_learning`), in its
place, and lie within that product's limits. Without references only what needs none is checked.

How a part is recognised. A frame's profiles (mean luma of each column and of each row) are divided by its contrast,
averaged to SAMPLES values, and freed of what is finer than FINE or coarser than COARSE samples: light that falls off
to one side goes, and so do noise and single defects. The frame's profiles, moved by up to SEARCH samples either way,
are correlated with the middle of each reference's; both axes must agree.

The correlation is (a.b + F) / sqrt((a.a + F)(b.b + F)), F = values * FLOOR**2: for profiles with structure it is the
cosine of the angle between them; profiles without any (vertical stripes have no structure from row to row) agree
with one another. So a shift *along* a pattern that does not change in that direction can't be seen, by anyone; nor
can a shift onto another reference's place, where crops of one board are products of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from edge_app.preprocess import FrameMeasures
from edge_app.verdict import Reason

Floats = npt.NDArray[np.float32]

SAMPLES = 160
SEARCH = 10
FINE, COARSE = 2, 25
FLOOR = 0.025
"""Share of the contrast that a few defects bring into a profile without structure."""
_FLAT = 0.01
"""A reference with less structure than this along an axis can't tell where it lies along that axis."""
_BLOCK = 64
"""References that are multiplied at a time: few enough for BLAS to stay on this thread. On busy cores its own threads
wait for one another, up to 60 ms (measured), where all of 1,250 references in blocks take 0.1 ms."""
_DETAIL_WINDOW = 9
_MIDDLE = SAMPLES - 2 * SEARCH
_FLOOR = FLOOR * _MIDDLE**0.5
_MOVED = np.arange(_MIDDLE)[:, None] + np.arange(2 * SEARCH + 1)
"""Which samples come to lie on the middle of a reference when a profile is moved: [_MIDDLE, 2 SEARCH + 1]."""
_AGREE = 0.02
"""A place elsewhere must fit better than the part's own by this before the part counts as shifted: patterns repeat."""

DARKEST_LUMA, LEAST_CONTRAST = 10.0, 20.0
"""No product is told of these: a picture darker or flatter than this shows nothing (a covered sensor's noise reaches
a contrast of 17)."""


@dataclass(frozen=True)
class Finding:
    """Why a frame can't be judged: BAD_IMAGE or NO_PART, and for people which limit, what was wanted, what was got."""

    reason: Reason
    detail: str


@dataclass(frozen=True)
class Limits:
    """What good frames of one product keep to. Luma and contrast are 0..255, fractions 0..1."""

    luma: tuple[float, float]
    least_contrast: float
    most_dark: float
    most_bright: float
    most_noise: float
    widest_edge_px: float
    """1 / sharpness."""
    least_detail: float
    """Of the matched reference's detail: blur takes it away."""
    largest_shift_px: float
    least_match: float


@dataclass(frozen=True)
class Product:
    """One product: its limits, and N references. columns, rows: signatures float32 [N, SAMPLES]; detail: [N]."""

    name: str
    width: int
    height: int
    limits: Limits
    columns: Floats
    rows: Floats
    detail: Floats

    @cached_property
    def middles(self) -> tuple[Floats, Floats]:
        """Columns and rows of the references without the SEARCH samples at their ends, normalised, in blocks."""
        inner = slice(SEARCH, SAMPLES - SEARCH)
        return _in_blocks(_normalised(self.columns[:, inner])), _in_blocks(_normalised(self.rows[:, inner]))

    @cached_property
    def structured(self) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """[N] whether a reference has structure across its columns, and down its rows, by which a shift shows."""
        return _structured(self.columns), _structured(self.rows)

    @property
    def step_px(self) -> tuple[float, float]:
        """Frame px from one sample to the next, along a row and along a column."""
        return self.width / SAMPLES, self.height / SAMPLES


@dataclass(frozen=True)
class Signature:
    """What of a frame is matched: float32 [SAMPLES] each, and its detail."""

    columns: Floats
    rows: Floats
    detail: float

    @cached_property
    def moved(self) -> Floats:
        """Columns and rows, each moved by -SEARCH..SEARCH samples, normalised: [2, _MIDDLE + 1, 2 SEARCH + 1]."""
        profiles = np.stack([self.columns, self.rows])
        squares = np.cumsum(profiles.astype(np.float64) ** 2, axis=1)
        energy = squares[:, _MIDDLE - 1 :].copy()  # of the samples that lie on the middle
        energy[:, 1:] -= squares[:, : -_MIDDLE]
        length = np.sqrt(energy + _FLOOR**2)[:, None].astype(np.float32)
        return np.concatenate([np.take(profiles, _MOVED, axis=1) / length, np.float32(_FLOOR) / length], axis=1)


@dataclass(frozen=True)
class Match:
    """The reference that a frame fits best, and where: x to the right and y down, px, None if in its place."""

    reference: int
    correlation: float
    shift_px: tuple[float, float] | None


def check(measures: FrameMeasures, products: Sequence[Product], size: tuple[int, int]) -> Finding | None:
    """Whether a frame of `size` (width, height, px) may be judged: None, or why not.

    With no products, only what needs no reference is checked.
    """
    finding = _check_without_reference(measures)
    if finding is not None or not products:
        return finding
    fitting = [product for product in products if (product.width, product.height) == size]
    if not fitting:
        sizes = ", ".join(f"{product.width}x{product.height} ({product.name})" for product in products)
        return Finding(Reason.NO_PART, f"size: wanted {sizes}, got {size[0]}x{size[1]} px")
    signature = signature_of(measures)
    for product in fitting:
        match = match_in_place(signature, product)
        if match is not None and _check_limits(measures, signature, product, match) is None:
            return None
    matches = [(match_anywhere(signature, product), product) for product in fitting]
    match, product = max(matches, key=lambda pair: pair[0].correlation)
    finding = _check_match(match, product) or _check_limits(measures, signature, product, match)
    return finding or _bad(f"position ({product.name})", "a part in its place", "one that fits better elsewhere")


def match_in_place(signature: Signature, product: Product) -> Match | None:
    """The reference that a frame fits within the largest shift allowed; None if it fits none, or fits one elsewhere."""
    across, down = correlations(signature, product, _reach_in_place(product))
    fits = np.minimum(across.max(1), down.max(1))
    best = int(fits.argmax())
    correlation = float(fits[best])
    if correlation < product.limits.least_match:
        return None
    if correlation < 1 - _AGREE and match_anywhere(signature, product).correlation > correlation + _AGREE:
        return None
    return Match(best, correlation, None)


def match_anywhere(signature: Signature, product: Product) -> Match:
    """The reference that a frame fits best when moved by up to SEARCH samples along an axis with structure."""
    reach = _reach_in_place(product)
    across, down = (
        _within(correlation, reach, structured)
        for correlation, reach, structured in zip(
            correlations(signature, product, (SEARCH, SEARCH)), reach, product.structured, strict=True
        )
    )
    best = int(np.minimum(across.max(1), down.max(1)).argmax())
    shift = tuple(
        _peak(correlation[best]) * step if structured[best] else 0.0
        for correlation, step, structured in zip((across, down), product.step_px, product.structured, strict=True)
    )
    return Match(best, float(min(across[best].max(), down[best].max())), (shift[0], shift[1]))


def _reach_in_place(product: Product) -> tuple[int, int]:
    across, down = (min(SEARCH, round(product.limits.largest_shift_px / step)) for step in product.step_px)
    return across, down


def _within(correlation: Floats, reach: int, structured: npt.NDArray[np.bool_]) -> Floats:
    """Correlations [N, 2 SEARCH + 1], with what is out of reach taken out for references without structure."""
    place = np.abs(np.arange(correlation.shape[1]) - SEARCH)
    return np.where(structured[:, None] | (place <= reach), correlation, np.float32(-1))


def correlations(signature: Signature, product: Product, reach: tuple[int, int]) -> tuple[Floats, Floats]:
    """Of a frame moved by -reach..reach samples with each reference: columns [N, 2 reach + 1], and rows."""
    across, down = (
        _correlation(middles, moved, samples)[: len(product.detail)]
        for middles, moved, samples in zip(product.middles, signature.moved, reach, strict=True)
    )
    return across, down


def signature_of(measures: FrameMeasures) -> Signature:
    """See the head of this module."""
    contrast = max(measures.contrast, 1.0)
    return Signature(
        _band(measures.luma_columns, contrast),
        _band(measures.luma_rows, contrast),
        float(np.hypot(_ripple(measures.edge_columns), _ripple(measures.edge_rows)) / contrast),
    )


def _check_without_reference(measures: FrameMeasures) -> Finding | None:
    if measures.mean_luma < DARKEST_LUMA:
        return _bad("dark", f"a mean luma of {DARKEST_LUMA:g} at least", f"{measures.mean_luma:.1f}")
    if measures.contrast < LEAST_CONTRAST:
        return _bad("flat", f"a contrast of {LEAST_CONTRAST:g} at least", f"{measures.contrast:.0f}")
    if measures.edge_fraction == 0:
        return _bad("blurred", "edges", "none")
    return None


def _check_match(match: Match, product: Product) -> Finding | None:
    limits = product.limits
    if match.correlation < limits.least_match:
        wanted = f"a match of {limits.least_match:.2f} with a reference of {product.name}"
        return Finding(Reason.NO_PART, f"part: wanted {wanted}, got {match.correlation:.2f}")
    x, y = match.shift_px or (0.0, 0.0)
    if max(abs(x), abs(y)) > limits.largest_shift_px:
        wanted = f"at most {limits.largest_shift_px:.0f} px"
        return _bad(f"shifted ({product.name})", wanted, f"{x:+.0f} px across, {y:+.0f} px down")
    return None


def _check_limits(measures: FrameMeasures, signature: Signature, product: Product, match: Match) -> Finding | None:
    limits = product.limits
    edge_px = 1 / measures.sharpness if measures.sharpness > 0 else float("inf")
    detail = signature.detail / max(float(product.detail[match.reference]), 1e-6)
    low, high = limits.luma
    outside = (
        ("brightness", f"a mean luma of {low:.0f} to {high:.0f}", f"{measures.mean_luma:.0f}",
         not low <= measures.mean_luma <= high),
        ("contrast", f"{limits.least_contrast:.0f} at least", f"{measures.contrast:.0f}",
         measures.contrast < limits.least_contrast),
        ("clipped to black", f"{limits.most_dark:.1%} at most", f"{measures.dark_fraction:.1%}",
         measures.dark_fraction > limits.most_dark),
        ("clipped to white", f"{limits.most_bright:.1%} at most", f"{measures.bright_fraction:.1%}",
         measures.bright_fraction > limits.most_bright),
        ("noise", f"{limits.most_noise:.1f} at most", f"{measures.noise:.1f}", measures.noise > limits.most_noise),
        ("blurred", f"edges of {limits.widest_edge_px:.1f} px at most", f"{edge_px:.1f} px",
         edge_px > limits.widest_edge_px),
        ("blurred", f"{limits.least_detail:.0%} of the reference's detail at least", f"{detail:.0%}",
         detail < limits.least_detail),
    )  # fmt: skip
    for what, wanted, got, exceeded in outside:
        if exceeded:
            return _bad(f"{what} ({product.name})", wanted, got)
    return None


def _bad(what: str, wanted: str, got: str) -> Finding:
    return Finding(Reason.BAD_IMAGE, f"{what}: wanted {wanted}, got {got}")


def _band(profile: Floats, contrast: float) -> Floats:
    """A profile as shares of the contrast, averaged to SAMPLES values, between FINE and COARSE."""
    return np.asarray(np.einsum("ij,j", _bands(profile.size), profile) / np.float32(contrast), np.float32)


@lru_cache(maxsize=8)
def _bands(size: int) -> Floats:
    """[SAMPLES, size]: what each value of a profile adds to each of its band. By einsum it stays on this thread."""
    edges, pixels = np.linspace(0, size, SAMPLES + 1), np.arange(size)[:, None]
    shared = np.minimum(pixels + 1, edges[1:]) - np.maximum(pixels, edges[:-1])
    fine = _smoothed(np.maximum(shared, 0) / np.diff(edges), FINE)
    return np.ascontiguousarray((fine - _smoothed(fine, COARSE)).T, np.float32)


def _ripple(profile: Floats) -> float:
    """Standard deviation of what is finer than a few columns: it falls when edges smear into their neighbours."""
    return float(np.std(profile - _smoothed(profile, _DETAIL_WINDOW)))


def _smoothed(values: npt.NDArray[np.floating], window: int) -> npt.NDArray[np.float64]:
    """Running mean along the last axis; beyond its ends a profile goes on as it ended."""
    before, after = window // 2, window - 1 - window // 2
    ends = values[..., :1].repeat(before, -1), values, values[..., -1:].repeat(after, -1)
    sums = np.cumsum(np.concatenate(ends, -1), -1, dtype=np.float64)
    means = sums[..., window - 1 :] / window
    means[..., 1:] -= sums[..., :-window] / window
    return means


def _in_blocks(profiles: Floats) -> Floats:
    """[N, L] as [blocks, _BLOCK, L], zeros behind the last."""
    padded = np.zeros((-(-len(profiles) // _BLOCK) * _BLOCK, profiles.shape[1]), np.float32)
    padded[: len(profiles)] = profiles
    return padded.reshape(-1, _BLOCK, profiles.shape[1])


def _correlation(middles: Floats, moved: Floats, reach: int) -> Floats:
    """[N, 2 reach + 1]: of each reference with a profile moved by -reach..reach samples; N to a whole block."""
    within = np.ascontiguousarray(moved[:, SEARCH - reach : SEARCH + reach + 1])
    return np.asarray((middles @ within).reshape(-1, 2 * reach + 1), np.float32)


def _structured(profiles: Floats) -> npt.NDArray[np.bool_]:
    return np.asarray(np.sqrt((profiles**2).mean(1)) > _FLAT, np.bool_)


def _normalised(profiles: Floats) -> Floats:
    """To length 1, the floor as one more value: the products of two such are the correlation of the module's head."""
    length = np.sqrt((profiles.astype(np.float64) ** 2).sum(1, keepdims=True) + _FLOOR**2)
    return np.concatenate([profiles / length, _FLOOR / length], axis=1).astype(np.float32)


def _peak(correlation: Floats) -> float:
    """Where the best correlation is, in samples from the middle: a parabola through the peak and its neighbours."""
    best = int(correlation.argmax())
    place = float(best - correlation.size // 2)
    if 0 < best < correlation.size - 1:
        before, at, after = (float(value) for value in correlation[best - 1 : best + 2])
        bend = before - 2 * at + after
        if bend < 0:
            place += (before - after) / (2 * bend)
    return place
