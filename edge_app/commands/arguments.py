"""Arguments that several commands take."""

from __future__ import annotations

import argparse
import math
from pathlib import Path


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


def share(text: str) -> float:
    """An argument that is a part of 1: `0.5%` or `0.005`."""
    value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"wanted a share such as 0.5% or 0.005, got {text}")
    return value


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """`--set`, as every command that reads a pipeline has it."""
    parser.add_argument(
        "--set", dest="overrides", metavar="KEY=VALUE", action="append", default=[],
        help="override a key of the pipeline, e.g. judge.score=0.6; may be repeated",
    )  # fmt: skip


def add_keys(parser: argparse.ArgumentParser) -> None:
    """`--key` and `--node-key`, as every client has them; for `watch.load_keys`."""
    parser.add_argument("--key", metavar="FILE", type=Path, help="my secret key (edge_app keys new)")
    parser.add_argument("--node-key", metavar="FILE", type=Path, help="the node's public key")
