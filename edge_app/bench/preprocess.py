"""Preprocessing against its peers and against memory itself: one thread, cold frames, turns taken, medians."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from edge_app.bench import floor, neon, peers
from edge_app.bench.figures import Figures, Options
from edge_app.bench.timing import Bytes, Case, Work, cold, run
from edge_app.frame import PixelFormat
from edge_app.preprocess import Fit, Plan, Source, Tensor, measure

IMAGENET: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
GENERAL = ((1280, 720), (2448, 2048), (1600, 1200), (4096, 3000))
FULL_HD = Source(1920, 1080, PixelFormat.BGR8)
HD = Source(1280, 720, PixelFormat.BGR8)
MONO = Source(4096, 3000, PixelFormat.GRAY8)
BAYER = Source(4096, 3000, PixelFormat.BAYER_RG8)
U8 = Tensor(640, 640, dtype="uint8")
U16 = Tensor(640, 640, "NHWC", "uint16", quant_scale=1 / 65535, quant_zero_point=0)
GRAY = Tensor(640, 640, dtype="uint8", color="GRAY")
CLASSIFIER = Tensor(224, 224, **IMAGENET)


@dataclass(frozen=True)
class Spec:
    """A comparison before its frames are drawn."""

    key: str
    title: str
    plan: Plan
    peers: dict[str, Callable[[Plan], Work | None]] = field(default_factory=dict)


def figures(options: Options) -> Iterator[Figures]:
    """W1 to W5, general sizes, the frame measures, and the counts for NEON."""
    peers.one_thread()
    for spec in specs():
        if spec.key.startswith(options.only):
            yield run(case_of(spec), options.rounds)
    for source in (FULL_HD, Source(640, 640, PixelFormat.BGR8)):
        if (key := f"measure_{source.height}").startswith(options.only):
            yield run(measure_case(key, source), options.rounds)
    yield from neon.figures(options.only)


def specs() -> Iterator[Spec]:
    """W1 to W5 and general sizes."""
    kinds: tuple[tuple[int, Literal["float32", "uint8"], str], ...] = ((1, "float32", "f32"), (2, "uint8", "u8"))
    for number, dtype, short in kinds:
        tensor = Tensor(640, 640, dtype=dtype)
        yield Spec(
            f"w{number}_1080p_{short}", f"1080p BGR -> 640 {short}", Plan(FULL_HD, tensor),
            {"tuned_cv2": peers.tuned_cv2, "naive_cv2": peers.naive_cv2, "blob": peers.blob,
             "ultralytics": peers.ultralytics, **({"kornia_rs": peers.kornia_rs} if dtype == "float32" else {}),
             "frame_memcpy": peers.frame_memcpy},
        )  # fmt: skip
        for width, height in GENERAL:
            plan = Plan(Source(width, height, PixelFormat.BGR8), tensor)
            title = f"{width}x{height} BGR -> 640 {short}"
            yield Spec(f"w{number}_{width}x{height}_{short}", title, plan, {"tuned_cv2": peers.tuned_cv2})
        plan = Plan(FULL_HD, Tensor(640, 640, "NHWC", dtype))
        yield Spec(f"w{number}_1080p_{short}_nhwc", f"1080p BGR -> 640 NHWC {short}", plan)
    yield Spec("w2_1080p_u16_nhwc", "1080p BGR -> 640 NHWC u16", Plan(FULL_HD, U16))
    for width, height in ((1920, 1080), (1280, 720), (1600, 1200)):
        plan = Plan(Source(width, height, PixelFormat.NV12), U8)
        yield Spec(f"w3_nv12_{height}p", f"NV12 {width}x{height} -> 640 u8", plan,
                   {"tuned_cv2": peers.tuned_cv2, "libyuv": peers.libyuv_nv12})  # fmt: skip
    plan = Plan(Source(1920, 1080, PixelFormat.YUYV), U8)
    yield Spec("w3_yuyv_1080p", "YUYV 1080p -> 640 u8", plan, {"tuned_cv2": peers.tuned_cv2})
    plan = Plan(HD, CLASSIFIER, Fit("crop"))
    yield Spec("w4_crop224", "720p centre crop -> 224 ImageNet f32", plan, {"tuned_cv2": peers.tuned_cv2})
    plan = Plan(HD, CLASSIFIER, Fit("crop", "antialias"))
    yield Spec("w4_crop224_antialias", "the same, antialiased", plan, {"torchvision": peers.torchvision_antialias})
    yield Spec("w5_mono_12mp", "12 Mpixel mono -> 640 u8", Plan(MONO, GRAY), {"cv2": peers.gray_linear})
    yield Spec("w5_area_12mp", "the same, by area", Plan(MONO, GRAY, Fit(method="area")),
               {"inter_area": peers.gray_area, "libyuv_box": peers.libyuv_box})  # fmt: skip
    yield Spec("w5_bayer_12mp", "12 Mpixel Bayer -> 640 u8", Plan(BAYER, U8), {"tuned_cv2": peers.tuned_cv2})
    yield Spec("area_1080p", "1080p BGR -> 640 u8, by area", Plan(FULL_HD, U8, Fit(method="area")))


def case_of(spec: Spec) -> Case:
    """Ours, the floor and the peers, on cold random frames."""
    plan = spec.plan
    out = plan.tensor.empty()
    plan.prepare(out)
    functions: dict[str, Work | None] = {
        "ours": lambda frame: plan.run(frame, out),
        "floor": floor.of_plan(plan),
    }
    return Case(spec.key, spec.title, frames(plan.frame_bytes), functions | {n: p(plan) for n, p in spec.peers.items()})


def measure_case(key: str, source: Source) -> Case:
    """What the frame guard costs."""
    title = f"frame measures, {source.width}x{source.height} BGR"
    return Case(key, title, frames(source.row_bytes * source.height), {"ours": lambda frame: measure(frame, source)})


def frames(bytes_each: int) -> list[Bytes]:
    """Cold and random."""
    rng = np.random.default_rng(1)
    return cold(lambda _: rng.integers(0, 256, bytes_each, np.uint8), bytes_each)
