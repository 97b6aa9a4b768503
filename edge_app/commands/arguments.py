"""Arguments that several commands take."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edge_app.errors import ConfigError


class Parser(argparse.ArgumentParser):
    """An option is its whole word: what an abbreviation means would change with the next option that is added."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})


def refuse_empty(arguments: Sequence[str]) -> None:
    """An empty argument is a shell variable that was not set; as a path it would be the folder one is in.

    Raises:
        ConfigError: there is one.
    """
    for number, text in enumerate(arguments):
        if not text or re.fullmatch(r"--[a-z-]+=", text):
            where = text or " ".join(arguments[:number][-1:])
            raise ConfigError("an argument is empty", where=where, got="''", remedy="is a shell variable not set?")


def positive(text: str) -> int:
    """An argument that is a whole number above 0."""
    if not re.fullmatch(r"[0-9]+", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"wanted a whole number above 0, got {text}")
    return int(text)


def seed(text: str) -> int:
    """An argument that is a whole number from 0 on."""
    if not re.fullmatch(r"[0-9]+", text):
        raise argparse.ArgumentTypeError(f"wanted a whole number from 0 on, got {text}")
    return int(text)


def above_zero(text: str) -> float:
    """An argument that is a number above 0; neither infinity nor NaN, which no comparison ends."""
    value = _number(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"wanted a number above 0, got {text}")
    return value


def share(text: str) -> float:
    """An argument that is a part of 1: `0.5%` or `0.005`."""
    value = _number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"wanted a share such as 0.5% or 0.005, got {text}")
    return value


def _number(text: str) -> float:
    """NaN of what is none, which no limit takes."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """`--set`, as every command that reads a pipeline has it."""
    parser.add_argument(
        "--set", dest="overrides", metavar="KEY=VALUE", action="append", default=[],
        help="override a key of the pipeline, e.g. judge.score=0.6; may be repeated",
    )  # fmt: skip


def add_plan(parser: argparse.ArgumentParser) -> None:
    """`--plan` and `--soc`, for `check_plan`."""
    parser.add_argument("--plan", choices=["htp", "hybrid"], help="with --runtime qnn (default: htp)")
    parser.add_argument("--soc", metavar="S", help="with --runtime qnn, e.g. qcs8550; `edge_app model show` has them")


def check_plan(args: argparse.Namespace) -> None:
    """A plan of an SoC is for `--runtime qnn`, and that needs both.

    Raises:
        ConfigError: figures of the CPU would bear an SoC's name, or there is none.
    """
    if args.runtime == "qnn" and args.soc is None:
        raise ConfigError("whose plan?", where="--runtime qnn", wanted="--soc S, e.g. qcs8550", got="no --soc")
    if args.runtime != "qnn" and (args.soc or args.plan):
        given = "--soc" if args.soc else "--plan"
        raise ConfigError("only --runtime qnn runs a plan of an SoC", where=given, wanted="--runtime qnn as well",
                          got=f"--runtime {args.runtime}")  # fmt: skip


def add_keys(parser: argparse.ArgumentParser) -> None:
    """`--key` and `--node-key`, as every client has them; for `watch.load_keys`."""
    parser.add_argument("--key", metavar="FILE", type=Path, help="my secret key (edge_app keys new)")
    parser.add_argument("--node-key", metavar="FILE", type=Path, help="the node's public key")
