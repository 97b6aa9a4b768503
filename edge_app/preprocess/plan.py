"""From a camera frame to the model's input tensor: what is given, what is wanted, and the plan that does it in C."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from edge_app.errors import ConfigError
from edge_app.frame import PixelFormat
from edge_app.preprocess import _native
from edge_app.preprocess.geometry import FitMode, Geometry, Region, fit_geometry

if TYPE_CHECKING:
    from edge_app.preprocess._native import Buffer

Method = Literal["bilinear", "area", "antialias"]

FORMATS = (
    PixelFormat.BGR8, PixelFormat.RGB8, PixelFormat.GRAY8, PixelFormat.NV12, PixelFormat.YUYV,
    PixelFormat.BAYER_RG8, PixelFormat.BAYER_GB8, PixelFormat.BAYER_GR8, PixelFormat.BAYER_BG8,
)  # fmt: skip
_METHODS = ("bilinear", "area", "antialias")
_LAYOUTS = ("NCHW", "NHWC")
_DTYPES = ("float32", "uint8", "uint16")
_COLORS = ("RGB", "BGR", "GRAY")
_LARGEST = {"uint8": 255, "uint16": 65535}


@dataclass(frozen=True, slots=True)
class Source:
    """How a frame lies in memory.

    Attributes:
        width, height: px.
        stride: bytes from row to row of the first plane; default: no padding.
        uv_offset: NV12: bytes from the frame's start to its chroma; default: right behind the luma rows.
        uv_stride: NV12: bytes from row to row of the chroma; default: as stride.
        matrix, range: NV12 and YUYV: how colours were coded. OpenCV always takes bt601, limited.
    """

    width: int
    height: int
    pixel_format: PixelFormat
    stride: int | None = None
    uv_offset: int | None = None
    uv_stride: int | None = None
    matrix: Literal["bt601", "bt709"] = "bt601"
    range: Literal["limited", "full"] = "limited"

    @property
    def row_bytes(self) -> int:
        """Bytes that the pixels of one row take, padding not counted."""
        if self.pixel_format is PixelFormat.YUYV:
            return (self.width + 1) // 2 * 4
        return self.width * self.pixel_format.bytes_per_pixel

    @property
    def stride_bytes(self) -> int:
        """Bytes from row to row of the first plane."""
        return self.row_bytes if self.stride is None else self.stride

    @property
    def chroma(self) -> tuple[int, int]:
        """NV12: offset of the chroma plane and bytes from row to row of it."""
        stride = self.uv_stride
        if stride is None:
            stride = max(self.stride_bytes, (self.width + 1) // 2 * 2)
        return self.stride_bytes * self.height if self.uv_offset is None else self.uv_offset, stride

    @property
    def chroma_if_nv12(self) -> tuple[int, int]:
        """`chroma`, or zeros for formats of one plane."""
        return self.chroma if self.pixel_format is PixelFormat.NV12 else (0, 0)


@dataclass(frozen=True, slots=True)
class Tensor:
    """The model's input, batch of one. value = (pixel * scale - mean) / std, per channel in the tensor's order.

    Integer tensors hold round(value / quant_scale) + quant_zero_point, half to even, saturated. With the defaults a
    float32 tensor holds pixel / 255 and a uint8 tensor the pixels themselves.
    """

    width: int
    height: int
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    dtype: Literal["float32", "uint8", "uint16"] = "float32"
    color: Literal["RGB", "BGR", "GRAY"] = "RGB"
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    quant_scale: float | None = None
    quant_zero_point: int | None = None

    @property
    def channels(self) -> int:
        """3, or 1 for GRAY."""
        return 1 if self.color == "GRAY" else 3

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the array, with the batch of one in front."""
        if self.layout == "NCHW":
            return 1, self.channels, self.height, self.width
        return 1, self.height, self.width, self.channels

    def empty(self) -> np.ndarray:
        """A new array of this shape and type, 64-byte aligned: the kernels' stores then never cross a cache line.

        Its content is undefined until Plan.prepare and Plan.run.
        """
        nbytes = int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize
        raw = np.empty(nbytes + 64, np.uint8)
        start = -raw.ctypes.data % 64
        return raw[start : start + nbytes].view(self.dtype).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Fit:
    """How the picture is put into the tensor: see geometry.fit_geometry.

    Attributes:
        method: bilinear as OpenCV's INTER_LINEAR; area: the mean of all that a pixel covers (reductions only);
            antialias: as torchvision's Resize(antialias=True) on uint8.
        pad_value: grey level (a pixel, before scale and mean) of the letterbox bars.
        region: x0, y0, x1, y1 of the frame that is looked at, px; None: all of it.
        shorter_side: crop only: px that the shorter side is resized to before the centre is cut out.
    """

    mode: FitMode = "letterbox"
    method: Method = "bilinear"
    pad_value: int = 114
    region: Region | None = None
    shorter_side: int | None = None


@dataclass(frozen=True, slots=True)
class Affine:
    """Per channel: value = pixel * a_hi + (pixel * a_lo + b), in float32.

    a_hi holds the first 16 bits of the factor, so pixel * a_hi is exact and the sum is as good as one rounding: for
    1 / 255 it equals float32(pixel) / 255 in every bit, on every CPU, with or without fused multiply-add.
    """

    a_hi: tuple[float, ...]
    a_lo: tuple[float, ...]
    b: tuple[float, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> Affine:
        """The factors of a tensor's scale, mean, std and encoding."""
        step = _quant(tensor)[0] if tensor.dtype != "float32" else 1.0
        zero = _quant(tensor)[1] if tensor.dtype != "float32" else 0
        highs, lows, offsets = [], [], []
        for mean, std in zip(tensor.mean[: tensor.channels], tensor.std[: tensor.channels], strict=True):
            factor = tensor.scale / (std * step)
            mantissa, exponent = np.frexp(factor)
            high = float(np.ldexp(np.round(mantissa * 65536) / 65536, exponent))
            highs.append(high)
            lows.append(float(np.float32(factor - high)))
            offsets.append(float(np.float32(zero - mean / (std * step))))
        return cls(tuple(highs), tuple(lows), tuple(offsets))


def _quant(tensor: Tensor) -> tuple[float, int]:
    scale = 1 / 255 if tensor.quant_scale is None else tensor.quant_scale
    return scale, tensor.quant_zero_point or 0


@dataclass(frozen=True, slots=True)
class Plan:
    """All that can be worked out before a frame comes. Immutable; any number of threads may run it at once.

    Raises:
        ConfigError: the source, tensor and fit do not go together.
    """

    source: Source
    tensor: Tensor
    fit: Fit = field(default_factory=Fit)
    geometry: Geometry = field(init=False)
    affine: Affine = field(init=False)
    _native: object = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_tensor(self.tensor)
        source, tensor, fit = self.source, self.tensor, self.fit
        geometry = fit_geometry(
            source.width, source.height, tensor.width, tensor.height, fit.mode, fit.region, fit.shorter_side
        )
        _check_method(fit, geometry)
        object.__setattr__(self, "geometry", geometry)
        object.__setattr__(self, "affine", Affine.of(tensor))
        try:
            object.__setattr__(self, "_native", _native.build(self.native_ints(), self.native_floats()))
        except (ValueError, OverflowError) as error:
            raise ConfigError(
                f"this frame can't be put into this tensor: {error}", got=f"{source}, {tensor}, {fit}"
            ) from error

    def prepare(self, out: Buffer) -> None:
        """Write the padding into a new tensor buffer; once is enough, `run` leaves it alone.

        Raises:
            TypeError, ValueError: out has another type or size than the tensor, or is read-only.
        """
        _native.prepare(self._native, out)

    def run(self, frame: Buffer, out: Buffer) -> None:
        """Convert one frame into the tensor buffer `out`. The GIL is released.

        Args:
            frame: uint8, one piece of memory of at least `frame_bytes` bytes, rows `source.stride` apart.
            out: the tensor, C-contiguous, of the tensor's type and size, not overlapping the frame.

        Raises:
            TypeError, ValueError: a buffer has another type or size, is not contiguous, or the two overlap.
        """
        _native.run(self._native, frame, out)

    def run_scalar(self, frame: Buffer, out: Buffer) -> None:
        """As `run`, on the path without SIMD: the same bits, slower."""
        _native.run(self._native, frame, out, 0)

    @property
    def frame_bytes(self) -> int:
        """Bytes that a frame must have at least."""
        return _native.frame_bytes(self._native)

    def native_ints(self) -> tuple[int, ...]:
        """Integers of the C spec, in its order (module.c)."""
        s, t, f, g = self.source, self.tensor, self.fit, self.geometry
        x0, y0, x1, y1 = g.region
        return (
            FORMATS.index(s.pixel_format), s.width, s.height, s.matrix == "bt709", s.range == "full",
            s.stride_bytes, *s.chroma_if_nv12,
            x0, y0, x1 - x0, y1 - y0, g.resized_width, g.resized_height, g.crop_x, g.crop_y,
            t.width, t.height, g.pad_x, g.pad_y, g.inner_width, g.inner_height,
            _COLORS.index(t.color), _LAYOUTS.index(t.layout), _DTYPES.index(t.dtype), _METHODS.index(f.method),
            f.pad_value, is_raw(t),
        )  # fmt: skip

    def native_floats(self) -> tuple[float, ...]:
        """Floats of the C spec, in its order."""
        a = self.affine
        return *_three(a.a_hi), *_three(a.a_lo), *_three(a.b)


def _three(values: tuple[float, ...]) -> tuple[float, float, float]:
    first, second, third = (*values, 0.0, 0.0)[:3]
    return first, second, third


def is_raw(tensor: Tensor) -> bool:
    """Whether a uint8 tensor holds the pixels themselves: the encoding undoes scale, mean and std."""
    if tensor.dtype != "uint8":
        return False
    pixels = np.arange(256, dtype=np.float32)
    a = Affine.of(tensor)
    for high, low, offset in zip(a.a_hi, a.a_lo, a.b, strict=True):
        value = pixels * np.float32(high) + (pixels * np.float32(low) + np.float32(offset))
        if not np.array_equal(np.rint(value), pixels):
            return False
    return True


def _check_tensor(tensor: Tensor) -> None:
    for name, value, known in (
        ("layout", tensor.layout, _LAYOUTS), ("dtype", tensor.dtype, _DTYPES), ("color", tensor.color, _COLORS),
    ):  # fmt: skip
        if value not in known:
            raise ConfigError(f"unknown {name} of the tensor", wanted=", ".join(known), got=repr(value))
    for name, values in (("mean", tensor.mean), ("std", tensor.std)):
        if len(values) < tensor.channels:
            raise ConfigError(f"{name} has too few values", wanted=f"{tensor.channels}", got=f"{len(values)}")
    if not all(np.isfinite([tensor.scale, *tensor.mean, *tensor.std])) or 0 in tensor.std or tensor.scale == 0:
        raise ConfigError(
            "scale, mean and std must be finite, scale and std not 0",
            got=f"scale {tensor.scale}, mean {tensor.mean}, std {tensor.std}",
        )
    if tensor.dtype == "float32":
        if tensor.quant_scale is not None or tensor.quant_zero_point is not None:
            raise ConfigError("a float32 tensor has no encoding", wanted="no quant_scale, no quant_zero_point")
        return
    scale, zero = _quant(tensor)
    if not (np.isfinite(scale) and scale > 0 and 0 <= zero <= _LARGEST[tensor.dtype]):
        raise ConfigError(
            "the encoding of the tensor is wrong",
            wanted=f"quant_scale > 0, quant_zero_point 0..{_LARGEST[tensor.dtype]}",
            got=f"quant_scale {scale}, quant_zero_point {zero}",
        )


def _check_method(fit: Fit, geometry: Geometry) -> None:
    if fit.method not in _METHODS:
        raise ConfigError("unknown resize method", wanted=", ".join(_METHODS), got=repr(fit.method))
    if not 0 <= fit.pad_value <= 255:
        raise ConfigError("pad_value is a grey level", wanted="0..255", got=str(fit.pad_value))
    if fit.method == "area" and (geometry.scale_x < 1 or geometry.scale_y < 1):
        raise ConfigError(
            "area averaging only reduces",
            wanted="a region at least as large as the resized picture",
            got=f"{geometry.scale_x:.3f} x {geometry.scale_y:.3f} frame px per tensor px",
            remedy="use method: bilinear",
        )
