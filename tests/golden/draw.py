"""Numbers drawn by seed, the same in NumPy and in C (tests/c/check.h), and the hash of what was made of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def drawn(seed: int, count: int) -> npt.NDArray[np.uint32]:
    """The first `count` numbers of a seed."""
    z = np.uint32(seed) + np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9)
    z = (z ^ (z >> 16)) * np.uint32(0x7FEB352D)
    z = (z ^ (z >> 15)) * np.uint32(0x846CA68B)
    return z ^ (z >> 16)


def drawn_bytes(seed: int, count: int) -> npt.NDArray[np.uint8]:
    """Uniform bytes."""
    return (drawn(seed, count) >> 24).astype(np.uint8)


def drawn_floats(seed: int, low: npt.ArrayLike, high: npt.ArrayLike, count: int) -> npt.NDArray[np.float32]:
    """Uniform floats; low and high are numbers or arrays of `count`."""
    low, high = np.asarray(low, np.float32), np.asarray(high, np.float32)
    unit = (drawn(seed, count) >> 8).astype(np.float32) * np.float32(1 / 16777216)
    return low + unit * (high - low)


def hashed(data: bytes, start: int = 0xCBF29CE484222325) -> int:
    """FNV-1a, 64 bits."""
    value = start
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value
