"""Golden vectors of the preprocessing kernels, from the NumPy oracle: `python tests/golden/make_preprocess.py`.

One line a case: name, the 28 integers and 9 floats of its plan (module.c), the seed of its frame, and the hash of the
tensor or measures. tests/c/test_preprocess.c holds every path on every CPU to them; NEON runs there under qemu.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from draw import drawn_bytes, hashed

from edge_app.frame import PixelFormat
from edge_app.preprocess import Fit, Plan, Source, Tensor, reference
from edge_app.preprocess.measure import Grid, native_ints

FILE = Path(__file__).with_name("preprocess.txt")
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def plans() -> Iterator[tuple[str, Plan]]:
    """Name and plan of every case."""
    for kind in PixelFormat:
        for name, width, height, fit in (
            ("letterbox", 211, 133, Fit()),
            ("pick", 192, 108, Fit("stretch")),
            ("half", 128, 72, Fit("stretch")),
            ("means", 480, 270, Fit("stretch")),
            ("up", 37, 29, Fit("stretch")),
            ("narrow", 1500, 40, Fit("letterbox_topleft")),
            ("region", 211, 133, Fit("crop", region=(3, 5, 170, 121))),
            ("area", 211, 133, Fit(method="area")),
            ("antialias", 211, 133, Fit("crop", method="antialias")),
        ):
            # means: scale 30, so weights are 1/2 as they are at scale 2, but pixels lie apart
            size = {"pick": (64, 36), "half": (64, 36), "means": (16, 9), "up": (64, 36), "narrow": (64, 36)}.get(
                name, (50, 42)
            )
            bgr = kind in (PixelFormat.RGB8, PixelFormat.BAYER_GB8, PixelFormat.NV12)
            tensor = Tensor(*size, dtype="uint8", color="BGR" if bgr else "RGB")
            yield f"{kind}-{name}", Plan(Source(width, height, kind, stride=4 * width + 5), tensor, fit)
        yield f"{kind}-gray", Plan(Source(90, 50, kind), Tensor(40, 30, dtype="uint8", color="GRAY"), Fit())
    source = Source(211, 133, PixelFormat.BGR8)
    for name, tensor in (
        ("f32", Tensor(50, 42)),
        ("f32-nhwc", Tensor(50, 42, layout="NHWC")),
        ("f32-imagenet", Tensor(50, 42, **IMAGENET)),
        ("f32-0-255-bgr", Tensor(50, 42, color="BGR", scale=1.0)),
        ("u8-nhwc", Tensor(50, 42, layout="NHWC", dtype="uint8")),
        ("u8-encoded", Tensor(50, 42, dtype="uint8", quant_scale=0.0078, quant_zero_point=3)),
        ("u8-imagenet", Tensor(50, 42, dtype="uint8", quant_scale=0.0187, quant_zero_point=114, **IMAGENET)),
        ("u16", Tensor(50, 42, dtype="uint16", quant_scale=1 / 65535, quant_zero_point=0)),
        ("u16-nhwc", Tensor(50, 42, layout="NHWC", dtype="uint16", quant_scale=3e-5, quant_zero_point=100)),
    ):
        yield f"tensor-{name}", Plan(source, tensor, Fit())
    for matrix in ("bt601", "bt709"):
        for value_range in ("limited", "full"):
            for kind in (PixelFormat.NV12, PixelFormat.YUYV):
                coded = Source(64, 48, kind, matrix=matrix, range=value_range)
                yield f"{kind}-{matrix}-{value_range}", Plan(coded, Tensor(32, 24, dtype="uint8"), Fit("stretch"))


def measured() -> Iterator[tuple[str, Source]]:
    """Name and source of every case of frame measures."""
    for kind in PixelFormat:
        yield f"{kind}-measure", Source(150, 90, kind)
        yield f"{kind}-measure-wide", Source(1300, 33, kind)


def lines() -> Iterator[str]:
    """The lines of the file."""
    seed = 0
    for name, plan in plans():
        seed += 1
        frame = drawn_bytes(seed, plan.frame_bytes)
        yield _line(name, plan.native_ints(), plan.native_floats(), seed, reference.run(plan, frame).tobytes())
    for name, source in measured():
        seed += 1
        grid = Grid.of(source, None)
        frame = drawn_bytes(seed, source.stride_bytes * source.height * 2)
        yield _line(name, native_ints(source, grid), (0.0,) * 9, seed, reference.measures(source, grid, frame))


def _line(name: str, ints: tuple[int, ...], floats: tuple[float, ...], seed: int, result: bytes) -> str:
    numbers = " ".join(str(int(i)) for i in ints) + " " + " ".join(float(np.float32(f)).hex() for f in floats)
    return f"{name} {numbers} {seed} {hashed(result):x}\n"


if __name__ == "__main__":
    FILE.write_text("".join(lines()))
    print(f"{FILE}: {sum(1 for _ in FILE.open())} cases")
