"""Arguments that several commands take."""

from __future__ import annotations

import argparse
import math


def positive(text: str) -> int:
    """An argument that is a whole number above 0."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"wanted a whole number above 0, got {text}")
    return value


def above_zero(text: str) -> float:
    """An argument that is a number above 0; neither infinity nor NaN, which no comparison ends."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"wanted a number above 0, got {text}")
    return value
