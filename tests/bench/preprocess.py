"""Preprocessing against its peers and against memory itself: one thread, cold frames, turns taken, medians.

    python tests/bench/preprocess.py [--rounds 200] [--only w1] [--json]

Peers that are not installed (torch, ultralytics, libyuv) are left out. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import peers
from timing import Case, Work, cold, report

from edge_app.frame import PixelFormat
from edge_app.preprocess import Fit, Plan, Source, Tensor, measure

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
GENERAL = ((1280, 720), (2448, 2048), (1600, 1200), (4096, 3000))
CROP = Fit("crop")


def build_floor() -> ctypes.CDLL:
    """Compiles floor.c with the system's compiler."""
    folder = tempfile.mkdtemp()
    library = Path(folder, "floor.so")
    source = Path(__file__).with_name("floor.c")
    subprocess.run(["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    floor = ctypes.CDLL(str(library))
    floor.floor_run.restype = ctypes.c_uint64
    return floor


def floor_of(plan: Plan, floor: ctypes.CDLL) -> Work:
    """Reads the rows that the plan's method touches, whole, and writes its output."""
    s, g, t = plan.source, plan.geometry, plan.tensor
    span = g.scale_y if plan.fit.method != "bilinear" else (1 if float(g.scale_y) % 2 == 1 else 2)
    per_output = max(1, round(span))
    first = np.floor((np.arange(g.inner_height) + g.crop_y + 0.5) * g.scale_y - 0.5 * (span if span > 2 else 1))
    rows = np.clip(first[:, None] + np.arange(per_output), 0, s.height - 1).astype(np.int64)
    offsets = np.ascontiguousarray(rows * s.stride_bytes)
    row_bytes = s.row_bytes
    if s.pixel_format is PixelFormat.NV12:
        chroma = s.chroma[0] + rows // 2 * s.chroma[1]
        offsets = np.ascontiguousarray(np.concatenate([offsets, chroma[:, ::2]], axis=1))
        per_output += -(-per_output // 2)
    out = t.empty()
    plane, out_row = t.width * t.height * out.itemsize, g.inner_width * out.itemsize
    args = (
        offsets.ctypes.data_as(ctypes.c_void_p), g.inner_height, per_output, ctypes.c_size_t(row_bytes),
        out.ctypes.data_as(ctypes.c_void_p), t.channels, ctypes.c_size_t(plane), ctypes.c_size_t(out_row),
    )  # fmt: skip
    return lambda frame: (floor.floor_run(frame.ctypes.data_as(ctypes.c_void_p), *args), out, offsets)


def case(key: str, title: str, plan: Plan, floor: ctypes.CDLL, **others: Work | None) -> Case:
    """Ours, the floor and the peers that are installed, on cold random frames."""
    rng = np.random.default_rng(1)
    frames = cold(lambda _: rng.integers(0, 256, plan.frame_bytes, np.uint8), plan.frame_bytes)
    out = plan.tensor.empty()
    plan.prepare(out)
    functions: dict[str, Work] = {"ours": lambda frame: plan.run(frame, out), "floor": floor_of(plan, floor)}
    return Case(key, title, frames, functions | {name: work for name, work in others.items() if work is not None})


def cases(floor: ctypes.CDLL) -> Iterator[Case]:
    """W1 to W5, general sizes, and the frame measures."""
    full_hd = Source(1920, 1080, PixelFormat.BGR8)
    for number, dtype, short in ((1, "float32", "f32"), (2, "uint8", "u8")):
        plan = Plan(full_hd, Tensor(640, 640, dtype=dtype))
        target = np.empty(plan.frame_bytes, np.uint8)
        yield case(
            f"w{number}_1080p_{short}", f"W{number} 1080p BGR -> 640 {short}", plan, floor,
            tuned_cv2=peers.tuned_cv2(plan), naive_cv2=peers.naive_cv2(plan), blob=peers.blob(plan),
            ultralytics=peers.ultralytics(plan),
            frame_memcpy=lambda frame, target=target: np.copyto(target, frame),
        )  # fmt: skip
        for width, height in GENERAL:
            plan = Plan(Source(width, height, PixelFormat.BGR8), Tensor(640, 640, dtype=dtype))
            yield case(f"w{number}_{width}x{height}_{short}", f"W{number} {width}x{height} -> 640 {short}", plan, floor,
                       tuned_cv2=peers.tuned_cv2(plan))  # fmt: skip
        plan = Plan(full_hd, Tensor(640, 640, "NHWC", dtype))
        yield case(f"w{number}_1080p_{short}_nhwc", f"W{number} 1080p -> 640 NHWC {short}", plan, floor)
    plan = Plan(full_hd, Tensor(640, 640, "NHWC", "uint16", quant_scale=1 / 65535, quant_zero_point=0))
    yield case("w2_1080p_u16_nhwc", "W2 1080p -> 640 NHWC u16", plan, floor)
    for width, height in ((1920, 1080), (1280, 720), (1600, 1200)):
        plan = Plan(Source(width, height, PixelFormat.NV12), Tensor(640, 640, dtype="uint8"))
        yield case(f"w3_nv12_{height}p", f"W3 NV12 {width}x{height} -> 640 u8", plan, floor,
                   tuned_cv2=peers.tuned_cv2(plan), libyuv=peers.libyuv_nv12(plan))  # fmt: skip
    plan = Plan(Source(1920, 1080, PixelFormat.YUYV), Tensor(640, 640, dtype="uint8"))
    yield case("w3_yuyv_1080p", "W3 YUYV 1080p -> 640 u8", plan, floor, tuned_cv2=peers.tuned_cv2(plan))
    hd = Source(1280, 720, PixelFormat.BGR8)
    plan = Plan(hd, Tensor(224, 224, **IMAGENET), CROP)
    yield case("w4_crop224", "W4 720p crop -> 224 ImageNet f32", plan, floor, tuned_cv2=peers.tuned_cv2(plan))
    plan = Plan(hd, Tensor(224, 224, **IMAGENET), Fit("crop", "antialias"))
    yield case("w4_crop224_antialias", "W4 720p antialiased crop -> 224", plan, floor,
               torchvision=peers.torchvision_antialias(plan))  # fmt: skip
    mono = Source(4096, 3000, PixelFormat.GRAY8)
    plan = Plan(mono, Tensor(640, 640, dtype="uint8", color="GRAY"))
    yield case("w5_mono_12mp", "W5 12 Mpixel mono -> 640 u8", plan, floor, cv2=peers.gray(plan, cv2.INTER_LINEAR))
    plan = Plan(mono, Tensor(640, 640, dtype="uint8", color="GRAY"), Fit(method="area"))
    yield case("w5_area_12mp", "W5 12 Mpixel mono area -> 640 u8", plan, floor,
               inter_area=peers.gray(plan, cv2.INTER_AREA), libyuv_box=peers.libyuv_box(plan))  # fmt: skip
    plan = Plan(Source(4096, 3000, PixelFormat.BAYER_RG8), Tensor(640, 640, dtype="uint8"))
    yield case("w5_bayer_12mp", "W5 12 Mpixel Bayer -> 640 u8", plan, floor, tuned_cv2=peers.tuned_cv2(plan))
    plan = Plan(full_hd, Tensor(640, 640, dtype="uint8"), Fit(method="area"))
    yield case("area_1080p", "area 1080p BGR -> 640 u8", plan, floor)
    for source in (full_hd, Source(640, 640, PixelFormat.BGR8)):
        plan = Plan(source, Tensor(16, 16))
        inputs = case("", "", plan, floor).inputs
        title = f"frame measures, {source.width}x{source.height} BGR"
        yield Case(
            f"measure_{source.height}", title, inputs, {"ours": lambda frame, source=source: measure(frame, source)}
        )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--only", default="", help="only cases whose key begins so")
    parser.add_argument("--peers", default="", help="only these peers, separated by commas")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    torch = peers.optional("torch")
    if torch is not None:
        torch.set_num_threads(1)
    wanted = [name for name in options.peers.split(",") if name]
    chosen = (c.only(wanted) if wanted else c for c in cases(build_floor()) if c.key.startswith(options.only))
    report(chosen, options.rounds, options.json)


if __name__ == "__main__":
    main()
