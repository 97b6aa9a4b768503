"""What the NEON kernels cost, where no board is at hand: instructions of the inner loop, and llvm-mca's cycles for it.

These are counts and a model's estimate, not times: caches and memory are not in them, and LLVM 14 knows the Cortex-A78
only as a Cortex-A57, which issues fewer instructions a cycle. A loop makes 16 output pixels. Needs the C sources (a
checkout), gcc-aarch64-linux-gnu and llvm.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from edge_app.bench.figures import Figures

KERNELS = Path(__file__).parents[1] / "preprocess"
CPU = "cortex-a78"
FUNCTIONS = (
    "packed_pick_wide", "packed_box2_wide", "packed_general_wide", "packed_general_narrow", "mono_pick_wide",
    "mono_general_wide", "nv12_pick_wide", "nv12_halved", "nv12_general_wide", "yuyv_pick_wide",
    "bayer_general_wide",
)  # fmt: skip
PIXELS = 16


def assembly() -> str:
    """kernel_neon.c, compiled as the package compiles it."""
    flags = ["-std=c11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-asynchronous-unwind-tables"]
    command = ["aarch64-linux-gnu-gcc", *flags, "-S", "-o", "-", str(KERNELS / "kernel_neon.c")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def body(source: str, function: str) -> list[str]:
    """Labels and instructions of one function."""
    found = re.search(rf"^{function}:\n(.*?)^\t\.size\t{function},", source, re.M | re.S)
    if found is None:
        raise LookupError(f"{function} is not in the assembly: was it renamed?")
    lines = (line.strip() for line in found[1].splitlines())
    return [line for line in lines if line and (line.startswith(".L") or not line.startswith((".", "//")))]


def longest_loop(lines: list[str]) -> list[str]:
    """The instructions of the loop over groups: the longest stretch that a branch jumps back over."""
    labels = {line[:-1]: i for i, line in enumerate(lines) if line.endswith(":")}
    best: list[str] = []
    for i, line in enumerate(lines):
        target = labels.get(line.split()[-1], len(lines))
        if line.startswith("b") and target < i and i - target > len(best):
            best = lines[target : i + 1]
    return [line for line in best if not line.endswith(":")]


def cycles(loop: list[str]) -> float:
    """Cycles of one turn, by llvm-mca; branches are left out, since it takes straight code only."""
    straight = "\n".join(line for line in loop if not re.match(r"(b|cb|tb)", line))
    with tempfile.NamedTemporaryFile("w", suffix=".s") as file:
        file.write(straight + "\n")
        file.flush()
        command = ["llvm-mca", "-mtriple=aarch64", f"-mcpu={CPU}", "-iterations=100", file.name]
        report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    total = re.search(r"^Total Cycles:\s+(\d+)", report, re.M)
    if total is None:
        raise LookupError(f"llvm-mca gave no cycles for {CPU}")
    return int(total[1]) / 100


def figures(only: str) -> Iterator[Figures]:
    """A kernel each."""
    wanted = [function for function in FUNCTIONS if f"neon_{function}".startswith(only)]
    tools = ("aarch64-linux-gnu-gcc", "llvm-mca")
    possible = (KERNELS / "kernel_neon.c").is_file() and all(shutil.which(tool) is not None for tool in tools)
    source = assembly() if possible and wanted else None
    for function in wanted:
        loop = None if source is None else longest_loop(body(source, function))
        yield Figures(f"neon_{function}", "inner loop, counted and modelled, not timed", {
            "instructions_per_px": None if loop is None else round(len(loop) / PIXELS, 2),
            f"mca_cycles_per_px_{CPU}": None if loop is None else round(cycles(loop) / PIXELS, 2),
        })  # fmt: skip
