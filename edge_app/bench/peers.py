"""The same preprocessing by others, as a user who cares for speed would write it. None: the peer is not installed.

tuned_cv2 is OpenCV at its best: resize into its own buffer, split straight into the planes, np.multiply(out=) for
float, padding written once.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import os
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np

from edge_app.bench.timing import Bytes, Work
from edge_app.frame import PixelFormat
from edge_app.preprocess import Plan


def optional(name: str) -> Any | None:
    """A package, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def one_thread() -> None:
    """Every library that is compared works on one thread, as the kernels do. To be called before any of them works."""
    os.environ["RAYON_NUM_THREADS"] = "1"  # kornia-rs, edgefirst: their pools are made at the first use
    cv2.setNumThreads(1)
    torch = optional("torch")
    if torch is not None:
        torch.set_num_threads(1)


def to_bgr(plan: Plan) -> Callable[[Bytes], Any]:
    """The frame as cv2's BGR picture."""
    s = plan.source
    shapes = {PixelFormat.NV12: (s.height * 3 // 2, s.width), PixelFormat.YUYV: (s.height, s.width, 2)}
    codes = {
        PixelFormat.NV12: cv2.COLOR_YUV2BGR_NV12, PixelFormat.YUYV: cv2.COLOR_YUV2BGR_YUYV,
        PixelFormat.BAYER_RG8: cv2.COLOR_BayerRGGB2BGR,
    }  # fmt: skip
    if s.pixel_format is PixelFormat.BGR8:
        return lambda frame: frame.reshape(s.height, s.width, 3)
    shape, code = shapes.get(s.pixel_format, (s.height, s.width)), codes[s.pixel_format]
    buffer = np.empty((s.height, s.width, 3), np.uint8)
    return lambda frame: cv2.cvtColor(frame.reshape(shape), code, dst=buffer)


def region(plan: Plan) -> tuple[slice, slice]:
    """The part of the source that the geometry's inner window shows, for peers that crop before they resize."""
    g = plan.geometry
    x0, y0 = round(g.crop_x * g.scale_x), round(g.crop_y * g.scale_y)
    return slice(y0, y0 + round(g.inner_height * g.scale_y)), slice(x0, x0 + round(g.inner_width * g.scale_x))


def inner(plan: Plan, out: Bytes) -> Bytes:
    """The picture's window [C, h, w] of an NCHW tensor."""
    g = plan.geometry
    window: Bytes = out[0][:, g.pad_y : g.pad_y + g.inner_height, g.pad_x : g.pad_x + g.inner_width]
    return window


def tuned_cv2(plan: Plan) -> Work:
    """resize(dst=), split into the planes, multiply(out=)."""
    g, bgr, where = plan.geometry, to_bgr(plan), region(plan)
    size = (g.inner_width, g.inner_height)
    small = np.empty((g.inner_height, g.inner_width, 3), np.uint8)
    out = plan.tensor.empty()
    planes = inner(plan, out)
    bytes_ = [np.empty(small.shape[:2], np.uint8) for _ in range(3)]
    a, b = plan.affine, plan.affine.b

    def work(frame: Bytes) -> None:
        cv2.resize(bgr(frame)[where], size, dst=small)
        if out.dtype == np.uint8:
            cv2.split(small, [planes[2], planes[1], planes[0]])
            return
        cv2.split(small, bytes_)
        for c in range(3):
            np.multiply(bytes_[2 - c], np.float32(a.a_hi[c] + a.a_lo[c]), out=planes[c])
            if b[c]:
                np.add(planes[c], np.float32(b[c]), out=planes[c])

    return work


def naive_cv2(plan: Plan) -> Work:
    """resize, copyMakeBorder, transpose, astype and divide, as in most examples."""
    g, bgr, where, t = plan.geometry, to_bgr(plan), region(plan), plan.tensor
    right, bottom = t.width - g.inner_width - g.pad_x, t.height - g.inner_height - g.pad_y

    def work(frame: Bytes) -> Any:
        small = cv2.resize(bgr(frame)[where], (g.inner_width, g.inner_height))
        whole = cv2.copyMakeBorder(small, g.pad_y, bottom, g.pad_x, right, cv2.BORDER_CONSTANT, value=(114, 114, 114))
        chw = np.ascontiguousarray(whole[:, :, ::-1].transpose(2, 0, 1))[None]
        return chw.astype(np.float32) / 255 if t.dtype == "float32" else chw

    return work


def blob(plan: Plan) -> Work:
    """cv2.dnn.blobFromImageWithParams, letterboxing."""
    p = cv2.dnn.Image2BlobParams()
    is_float = plan.tensor.dtype == "float32"
    p.scalefactor, p.size = (1 / 255 if is_float else 1.0,) * 4, (plan.tensor.width, plan.tensor.height)
    p.swapRB = True
    p.ddepth = cv2.CV_32F if is_float else cv2.CV_8U
    p.paddingmode, p.borderValue = cv2.dnn.DNN_PMODE_LETTERBOX, (114,) * 4
    bgr = to_bgr(plan)
    return lambda frame: cv2.dnn.blobFromImageWithParams(bgr(frame), p)


def ultralytics(plan: Plan) -> Work | None:
    """Its LetterBox and the predictor's own steps, up to the float (or byte) tensor."""
    torch, augment = optional("torch"), optional("ultralytics.data.augment")
    if torch is None or augment is None:
        return None
    box = augment.LetterBox((plan.tensor.height, plan.tensor.width), auto=False)
    bgr, is_float = to_bgr(plan), plan.tensor.dtype == "float32"

    def work(frame: Bytes) -> Any:
        whole = np.stack([box(image=bgr(frame))])[..., ::-1].transpose((0, 3, 1, 2))
        tensor = torch.from_numpy(np.ascontiguousarray(whole))
        return tensor.float() / 255 if is_float else tensor

    return work


def torchvision_antialias(plan: Plan) -> Work | None:
    """Resize(antialias), CenterCrop, on uint8."""
    torch, functional = optional("torch"), optional("torchvision.transforms.v2.functional")
    if torch is None or functional is None:
        return None
    g, s, t = plan.geometry, plan.source, plan.tensor
    mean, std = list(t.mean), list(t.std)

    def work(frame: Bytes) -> Any:
        picture = torch.from_numpy(frame.reshape(s.height, s.width, 3)).permute(2, 0, 1)
        small = functional.resize(picture, [g.resized_height, g.resized_width], antialias=True)
        cut = functional.center_crop(small, [t.height, t.width])
        return functional.normalize(cut.float() / 255, mean, std) if t.dtype == "float32" else cut

    return work


def kornia_rs(plan: Plan) -> Work | None:
    """Its fused Preprocessor, which makes float32 only."""
    kornia = optional("kornia_rs")
    if kornia is None:
        return None
    s, t = plan.source, plan.tensor
    fused = kornia.Preprocessor(mode="letterbox", format="bgr", pad_value=114)
    return lambda frame: fused.run(frame, s.width, s.height, t.height, t.width)


def frame_memcpy(plan: Plan) -> Work:
    """No preprocessing at all: one copy of the frame."""
    target = np.empty(plan.frame_bytes, np.uint8)
    return lambda frame: np.copyto(target, frame)


def gray_linear(plan: Plan) -> Work:
    """cv2.resize of one plane."""
    return gray(plan, cv2.INTER_LINEAR)


def gray_area(plan: Plan) -> Work:
    """cv2.resize of one plane, by area."""
    return gray(plan, cv2.INTER_AREA)


def gray(plan: Plan, interpolation: int) -> Work:
    """cv2.resize of one plane into a buffer."""
    shape, size = (plan.source.height, plan.source.width), (plan.geometry.inner_width, plan.geometry.inner_height)
    out = inner(plan, plan.tensor.empty())[0]
    return lambda frame: cv2.resize(frame.reshape(shape), size, dst=out, interpolation=interpolation)


def _libyuv() -> Any | None:
    name = ctypes.util.find_library("yuv")
    return ctypes.CDLL(name) if name else None


def _address(array: Bytes) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def libyuv_nv12(plan: Plan) -> Work | None:
    """NV12Scale (bilinear), NV12ToRAW, SplitRGBPlane."""
    yuv = _libyuv()
    if yuv is None:
        return None
    s, g = plan.source, plan.geometry
    w, h = g.inner_width, g.inner_height
    y, uv = np.empty((h, w), np.uint8), np.empty(((h + 1) // 2, (w + 1) // 2 * 2), np.uint8)
    rgb, pitch = np.empty((h, w, 3), np.uint8), plan.tensor.width
    planes = inner(plan, plan.tensor.empty())

    def work(frame: Bytes) -> None:
        at = frame.ctypes.data
        chroma = ctypes.c_void_p(at + s.width * s.height)
        yuv.NV12Scale(ctypes.c_void_p(at), s.width, chroma, s.width, s.width, s.height,
                      _address(y), w, _address(uv), uv.shape[1], w, h, 2)  # fmt: skip
        yuv.NV12ToRAW(_address(y), w, _address(uv), uv.shape[1], _address(rgb), 3 * w, w, h)
        red, green, blue = (_address(plane) for plane in planes)
        yuv.SplitRGBPlane(_address(rgb), 3 * w, red, pitch, green, pitch, blue, pitch, w, h)

    return work


def libyuv_box(plan: Plan) -> Work | None:
    """ScalePlane with the box filter."""
    yuv = _libyuv()
    if yuv is None:
        return None
    s, g = plan.source, plan.geometry
    out = inner(plan, plan.tensor.empty())[0]
    return lambda frame: yuv.ScalePlane(ctypes.c_void_p(frame.ctypes.data), s.width, s.width, s.height, _address(out),
                                        plan.tensor.width, g.inner_width, g.inner_height, 3)  # fmt: skip
