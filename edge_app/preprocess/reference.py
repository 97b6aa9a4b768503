"""The oracle: what the C kernels must give, bit for bit, in NumPy and in the plainest order.

The whole frame is converted to RGB, its region resized, the result normalised or quantised. Integers throughout, up
to the last step. Slow, for tests.

Sources of the arithmetic: OpenCV's cvtColor (20-bit fixed point for Y'CbCr, 15-bit for luma, bilinear demosaicing)
and its INTER_LINEAR for uint8 (11-bit weights). Checked against cv2 in tests/unit/preprocess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge_app.frame import PixelFormat
from edge_app.preprocess.geometry import Geometry
from edge_app.preprocess.measure import MOST_COLUMNS, MOST_ROWS, Grid
from edge_app.preprocess.plan import Affine, Plan, Source, Tensor, is_raw

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_RED_SITE = {
    PixelFormat.BAYER_RG8: (0, 0),
    PixelFormat.BAYER_GR8: (0, 1),
    PixelFormat.BAYER_GB8: (1, 0),
    PixelFormat.BAYER_BG8: (1, 1),
}
"""Row and column of the red site in the 2x2 pattern."""

_YUV = {
    ("bt601", "limited"): (16, 1220542, 1673527, -852492, -409993, 2116026),
    ("bt601", "full"): (0, 1048576, 1470104, -748826, -360853, 1858077),
    ("bt709", "limited"): (16, 1220945, 1879825, -558796, -223607, 2215014),
    ("bt709", "full"): (0, 1048576, 1651297, -490864, -196424, 1945738),
}
"""y_min, y_gain, v_to_r, v_to_g, u_to_g, u_to_b; times 2^20."""


def run(plan: Plan, frame: Bytes) -> npt.NDArray[np.generic]:
    """The whole tensor, padding included, in the tensor's shape and type.

    Args:
        plan: what to do.
        frame: flat uint8 array of at least plan.frame_bytes bytes.
    """
    channels = tensor_channels(to_rgb(plan.source, frame), plan.tensor)
    x0, y0, x1, y1 = plan.geometry.region
    picture = resize(channels[y0:y1, x0:x1], plan.geometry, plan.fit.method)
    whole = np.full((plan.tensor.height, plan.tensor.width, plan.tensor.channels), plan.fit.pad_value, np.int64)
    g = plan.geometry
    whole[g.pad_y : g.pad_y + g.inner_height, g.pad_x : g.pad_x + g.inner_width] = picture
    values = encode(whole, plan.tensor)
    if plan.tensor.layout == "NCHW":
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values[None])


def to_rgb(source: Source, frame: Bytes) -> Ints:
    """The frame as int64 [H, W, 3], red first."""
    flat = np.asarray(frame).reshape(-1)
    rows = _plane(flat, 0, source.stride_bytes, source.height, source.row_bytes).astype(np.int64)
    kind = source.pixel_format
    if kind is PixelFormat.GRAY8:
        return np.repeat(rows[:, :, None], 3, axis=2)
    if kind in (PixelFormat.RGB8, PixelFormat.BGR8):
        packed = rows.reshape(source.height, source.width, 3)
        return packed if kind is PixelFormat.RGB8 else packed[:, :, ::-1]
    if kind is PixelFormat.NV12:
        return _nv12_to_rgb(source, flat, rows)
    if kind is PixelFormat.YUYV:
        return _yuyv_to_rgb(source, rows)
    return _bayer_to_rgb(rows, _RED_SITE[kind])


def _plane(flat: Bytes, offset: int, stride: int, rows: int, row_bytes: int) -> Bytes:
    at = offset + np.arange(rows)[:, None] * stride + np.arange(row_bytes)[None]
    plane: Bytes = flat[at]
    return plane


def _nv12_to_rgb(source: Source, flat: Bytes, luma: Ints) -> Ints:
    offset, stride = source.chroma
    half_height, half_width = (source.height + 1) // 2, (source.width + 1) // 2
    chroma = _plane(flat, offset, stride, half_height, half_width * 2).reshape(half_height, half_width, 2)
    full = chroma.repeat(2, axis=0).repeat(2, axis=1)[: source.height, : source.width].astype(np.int64)
    return _yuv_to_rgb(luma, full[:, :, 0], full[:, :, 1], source)


def _yuyv_to_rgb(source: Source, rows: Ints) -> Ints:
    pairs = rows.reshape(source.height, -1, 4)
    luma = pairs[:, :, [0, 2]].reshape(source.height, -1)[:, : source.width]
    u = pairs[:, :, 1].repeat(2, axis=1)[:, : source.width]
    v = pairs[:, :, 3].repeat(2, axis=1)[:, : source.width]
    return _yuv_to_rgb(luma, u, v, source)


def _yuv_to_rgb(y: Ints, u: Ints, v: Ints, source: Source) -> Ints:
    y_min, y_gain, v_to_r, v_to_g, u_to_g, u_to_b = _YUV[source.matrix, source.range]
    luma = np.maximum(y - y_min, 0) * y_gain + (1 << 19)
    u, v = u - 128, v - 128
    rgb = np.stack([luma + v_to_r * v, luma + v_to_g * v + u_to_g * u, luma + u_to_b * u], axis=2)
    clipped: Ints = np.clip(rgb >> 20, 0, 255)
    return clipped


def _bayer_to_rgb(raw: Ints, red: tuple[int, int]) -> Ints:
    """Bilinear demosaicing; the outermost rows and columns repeat their inner neighbours."""
    c = raw[1:-1, 1:-1]
    up, down, left, right = raw[:-2, 1:-1], raw[2:, 1:-1], raw[1:-1, :-2], raw[1:-1, 2:]
    cross = (up + down + left + right + 2) >> 2
    corners = (raw[:-2, :-2] + raw[:-2, 2:] + raw[2:, :-2] + raw[2:, 2:] + 2) >> 2
    sides, poles = (left + right + 1) >> 1, (up + down + 1) >> 1
    red_row = (np.arange(1, raw.shape[0] - 1) % 2 == red[0])[:, None]
    red_column = (np.arange(1, raw.shape[1] - 1) % 2 == red[1])[None]
    at_red, at_blue = red_row & red_column, ~red_row & ~red_column
    r = np.where(at_red, c, np.where(at_blue, corners, np.where(red_row, sides, poles)))
    g = np.where(at_red | at_blue, cross, c)
    b = np.where(at_blue, c, np.where(at_red, corners, np.where(red_row, poles, sides)))
    return np.pad(np.stack([r, g, b], axis=2), ((1, 1), (1, 1), (0, 0)), mode="edge")


def tensor_channels(rgb: Ints, tensor: Tensor) -> Ints:
    """RGB as the tensor's channels, [H, W, 3] or [H, W, 1]. Gray of a gray frame is the frame: the weights sum to 1."""
    if tensor.color == "GRAY":
        luma: Ints = (rgb @ np.array([[9798], [19235], [3735]]) + (1 << 14)) >> 15
        return luma
    return rgb if tensor.color == "RGB" else rgb[:, :, ::-1]


def measures(source: Source, grid: Grid, frame: Bytes) -> bytes:
    """What ea_measures of measure.h holds: the scalars, and the means of columns and rows, 0 beyond the grid."""
    here, across, down = samples(source, grid, frame)
    columns, rows = np.zeros((2, MOST_COLUMNS)), np.zeros((2, MOST_ROWS))
    columns[:, : grid.columns] = here.mean(axis=0), across.mean(axis=0)
    rows[:, : grid.rows] = here.mean(axis=1), down.mean(axis=1)
    profiles = np.concatenate([*columns, *rows]).astype(np.float32)
    return np.array(scalars(here, across, down), np.float64).tobytes() + profiles.tobytes()


def samples(source: Source, grid: Grid, frame: Bytes) -> tuple[Ints, Ints, Ints]:
    """Luma at each sample point, the step to the px on its right, and that to the px below, [rows, columns] each."""
    gray = (to_rgb(source, frame) @ np.array([38, 75, 15]) + 64) >> 7
    x0, y0, x1, y1 = grid.region
    x, y = x0 + spread(x1 - x0, grid.columns), y0 + spread(y1 - y0, grid.rows)
    right, below = np.minimum(x + 1, x1 - 1), np.minimum(y + 1, y1 - 1)
    if source.pixel_format in _RED_SITE:  # the outermost columns of a Bayer frame have no colours of their own
        x = np.maximum(np.minimum(x, source.width - 3), 1)
        right = np.minimum(x + 1, source.width - 2)
    here = gray[np.ix_(y, x)]
    return here, np.abs(gray[np.ix_(y, right)] - here), np.abs(gray[np.ix_(below, x)] - here)


def spread(n: int, m: int) -> Ints:
    """Positions of m points spread evenly over n px."""
    return ((2 * np.arange(m) + 1) * n - m) // (2 * m)


def scalars(here: Ints, across: Ints, down: Ints) -> tuple[float, ...]:
    """The first nine of FrameMeasures, in their order, from samples."""
    luma, steps = np.sort(here, axis=None), np.sort(np.concatenate([across, down]), axis=None)
    contrast, noise = _least_with(luma, 0.99) - _least_with(luma, 0.01), _least_with(steps, 0.5)
    edge = max(min(4 * 1.4826 * noise, 0.4 * contrast), 8.0)
    edges_x, edges_y = across[across > edge], down[down > edge]
    edges = np.concatenate([edges_x, edges_y])
    return (
        int(luma.sum()) / luma.size, contrast, int((luma <= 4).sum()) / luma.size, int((luma >= 251).sum()) / luma.size,
        noise, *(_slope(some, contrast) for some in (edges, edges_x, edges_y)), edges.size / steps.size,
    )  # fmt: skip


def _least_with(values: Ints, share: float) -> int:
    """The least of the sorted values that at least this share of them do not exceed."""
    return int(values[max(math.ceil(share * values.size), 1) - 1])


def _slope(edges: Ints, contrast: int) -> float:
    """Mean of the steps at edges, weighted by the step itself, as a share of the contrast; 0 without any."""
    return int((edges**2).sum()) / int(edges.sum()) / contrast if edges.size and contrast else 0.0


def resize(picture: Ints, geometry: Geometry, method: str) -> Ints:
    """[h, w, C] resized to the geometry's size and cropped to its inner window."""
    g = geometry
    if method == "area":
        return _area(picture, g)
    if method == "antialias":
        return _antialias(picture, g)
    rows = linear_taps(picture.shape[0], g.resized_height, is_row=True).window(g.crop_y, g.inner_height)
    columns = linear_taps(picture.shape[1], g.resized_width, is_row=False).window(g.crop_x, g.inner_width)
    first = picture[:, columns.p0] * columns.w0[None, :, None] + picture[:, columns.p1] * columns.w1[None, :, None]
    first >>= 4
    upper = (first[rows.p0] * rows.w0[:, None, None]) >> 16
    lower = (first[rows.p1] * rows.w1[:, None, None]) >> 16
    blended: Ints = (upper + lower + 2) >> 2
    return blended


def _area(picture: Ints, g: Geometry) -> Ints:
    """Means of all that an output pixel covers: down the rows to 1/128 grey level, then along them."""
    rows = area_windows(picture.shape[0], g.resized_height)
    columns = area_windows(picture.shape[1], g.resized_width)
    bits, kept = rows.bits, slice(g.crop_y, g.crop_y + g.inner_height)
    sums = (rows.over(picture, kept) + (1 << (bits - 8))) >> (bits - 7)
    bits, kept = columns.bits + 7, slice(g.crop_x, g.crop_x + g.inner_width)
    means = columns.over(sums.transpose(1, 0, 2), kept).transpose(1, 0, 2)
    clipped: Ints = np.clip((means + (1 << (bits - 1))) >> bits, 0, 255)
    return clipped


def _antialias(picture: Ints, g: Geometry) -> Ints:
    """Triangles as wide as the reduction: along the rows to bytes, then down, as torchvision does on uint8."""
    columns = antialias_windows(picture.shape[1], g.resized_width)
    rows = antialias_windows(picture.shape[0], g.resized_height)
    kept, half = slice(g.crop_x, g.crop_x + g.inner_width), 1 << (columns.bits - 1)
    first = (columns.over(picture.transpose(1, 0, 2), kept).transpose(1, 0, 2) + half) >> columns.bits
    kept, half = slice(g.crop_y, g.crop_y + g.inner_height), 1 << (rows.bits - 1)
    clipped: Ints = np.clip((rows.over(np.clip(first, 0, 255), kept) + half) >> rows.bits, 0, 255)
    return clipped


@dataclass(frozen=True)
class Windows:
    """For each output position along one axis: first source position, and weights that sum to about 2 ** bits."""

    bits: int
    windows: list[tuple[int, Ints]]

    def over(self, values: Ints, kept: slice) -> Ints:
        """Weighted sums over the first axis, of the positions that are kept."""
        return np.stack(
            [np.tensordot(weights, values[first : first + len(weights)], 1) for first, weights in self.windows[kept]]
        )


def area_windows(n: int, m: int) -> Windows:
    """Position i covers n * i / m .. n * (i + 1) / m; each pixel weighs its share, the last one what is left."""
    bits = 14
    while bits < 16 and m << (bits + 1) <= n * 16384:
        bits += 1
    windows = []
    for i in range(m):
        start, stop = n * i, n * (i + 1)
        first, last = start // m, -(-stop // m) - 1
        shares = [(p + 1) * m - max(p * m, start) for p in range(first, last)]
        weights = [((share << bits) + n // 2) // n for share in shares]
        windows.append((first, np.array([*weights, (1 << bits) - sum(weights)], np.int64)))
    return Windows(bits, windows)


def antialias_windows(n: int, m: int) -> Windows:
    """Triangle filter around each centre, in the fixed point of torch's uint8 kernel."""
    scale = n / m
    support, shrink = max(scale, 1.0), 1.0 / scale if scale >= 1.0 else 1.0
    shares: list[tuple[int, list[float]]] = []
    for i in range(m):
        centre = scale * (i + 0.5)
        low, high = max(int(centre - support + 0.5), 0), min(int(centre + support + 0.5), n)
        weights = [max(0.0, 1.0 - abs((p - centre + 0.5) * shrink)) for p in range(low, high)]
        shares.append((low, [w / sum(weights) for w in weights]))
    largest, bits = max(max(weights) for _, weights in shares), 0
    while bits < 22 and int(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    return Windows(
        bits, [(low, np.array([int(0.5 + w * (1 << bits)) for w in weights], np.int64)) for low, weights in shares]
    )


class linear_taps:  # noqa: N801
    """Two source positions and their 11-bit weights for each output position along one axis, as OpenCV's."""

    def __init__(self, n: int, m: int, *, is_row: bool) -> None:
        centre = ((np.arange(m) + 0.5) * (n / m) - 0.5).astype(np.float32)
        p = np.floor(centre).astype(np.int64)
        f = centre - p.astype(np.float32)
        if not is_row:
            outside = (p < 0) | (p >= n - 1)
            p, f = np.clip(p, 0, n - 1), np.where(outside, np.float32(0), f)
        self.p0, self.p1 = np.clip(p, 0, n - 1), np.clip(p + 1, 0, n - 1)
        one = np.float32(2048)
        self.w0 = np.rint((np.float32(1) - f) * one).astype(np.int64)
        self.w1 = np.rint(f * one).astype(np.int64)

    def window(self, first: int, count: int) -> linear_taps:
        """Only the positions first .. first + count - 1."""
        for name in ("p0", "p1", "w0", "w1"):
            setattr(self, name, getattr(self, name)[first : first + count])
        return self


def encode(pixels: Ints, tensor: Tensor) -> npt.NDArray[np.generic]:
    """Pixels [H, W, C] as the tensor's values."""
    if is_raw(tensor):
        return pixels.astype(np.uint8)
    a = Affine.of(tensor)
    high, low, offset = (np.array(values, np.float32) for values in (a.a_hi, a.a_lo, a.b))
    p = pixels.astype(np.float32)
    value = p * high + (p * low + offset)
    if tensor.dtype == "float32":
        return value
    largest = np.float32(255 if tensor.dtype == "uint8" else 65535)
    return np.clip(np.rint(value), np.float32(0), largest).astype(tensor.dtype)


def difference(first: Bytes, second: Bytes, threshold: int) -> tuple[int, int, int]:
    """shift, sum and count of difference.h, of two pictures of one size."""
    steps = first.astype(np.int64).ravel() - second.astype(np.int64).ravel()
    shift = int((2 * steps.sum() + steps.size) // (2 * steps.size))
    sizes = np.abs(steps - shift)
    return shift, int(sizes.sum()), int((sizes > threshold).sum())
