"""Golden vectors of torchvision's antialiased resize: `python tests/golden/make_antialias.py`, where torch is.

One line a case: width, height, resized width and height, seed of the picture, hash of the result (rows, columns, RGB).
Ours must give the same pixels; the tests need no torch for that. Made with torchvision 0.29.1, torch 2.14.1, x86_64.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torchvision.transforms.v2.functional import resize

sys.path.insert(0, str(Path(__file__).parent))
from draw import drawn_bytes, hashed

FILE = Path(__file__).with_name("antialias.txt")
SIZES = (
    (320, 180, 99, 56),
    (99, 56, 99, 40),
    (64, 64, 128, 96),
    (517, 333, 64, 41),
    (40, 30, 40, 30),
    (256, 256, 224, 224),
)


def line(width: int, height: int, to_width: int, to_height: int, seed: int) -> str:
    """One case."""
    picture = torch.from_numpy(drawn_bytes(seed, width * height * 3).reshape(height, width, 3)).permute(2, 0, 1)
    result = resize(picture, [to_height, to_width], antialias=True).permute(1, 2, 0).contiguous().numpy()
    return f"{width} {height} {to_width} {to_height} {seed} {hashed(result.tobytes()):x}\n"


if __name__ == "__main__":
    FILE.write_text("".join(line(*sizes, seed) for seed, sizes in enumerate(SIZES, 1)))
