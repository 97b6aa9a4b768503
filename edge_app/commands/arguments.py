"""Arguments that several commands take."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """An argument that is a whole number above 0."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"wanted a whole number above 0, got {text}")
    return value
