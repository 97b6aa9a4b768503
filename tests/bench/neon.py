"""What the NEON kernels cost, where no board is at hand: instructions of the inner loop, and llvm-mca's cycles for it.

    python tests/bench/neon.py [--cpu cortex-a78] [--json]

These are counts and a model's estimate, not times: caches and memory are not in them, and LLVM 14 knows the Cortex-A78
only as a Cortex-A57, which issues fewer instructions a cycle. A loop makes 16 output pixels.
Needs gcc-aarch64-linux-gnu and llvm.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path

KERNELS = Path(__file__).parents[2] / "edge_app" / "preprocess"
FUNCTIONS = (
    "packed_pick_wide", "packed_box2_wide", "packed_general_wide", "packed_general_narrow", "mono_pick_wide",
    "mono_general_wide", "nv12_pick_wide", "nv12_box2_wide", "nv12_general_wide", "yuyv_pick_wide",
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
        raise SystemExit(f"{function} is not in the assembly: was it renamed?")
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


def cycles(loop: list[str], cpu: str) -> float:
    """Cycles of one turn, by llvm-mca; branches are left out, since it takes straight code only."""
    straight = "\n".join(line for line in loop if not re.match(r"(b|cb|tb)", line))
    with tempfile.NamedTemporaryFile("w", suffix=".s") as file:
        file.write(straight + "\n")
        file.flush()
        command = ["llvm-mca", "-mtriple=aarch64", f"-mcpu={cpu}", "-iterations=100", file.name]
        report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    total = re.search(r"^Total Cycles:\s+(\d+)", report, re.M)
    if total is None:
        raise SystemExit(f"llvm-mca gave no cycles for {cpu}")
    return int(total[1]) / 100


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", nargs="+", default=["cortex-a78"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    source = assembly()
    table: dict[str, dict[str, float]] = {}
    for function in FUNCTIONS:
        loop = longest_loop(body(source, function))
        row: dict[str, float] = {"instructions_per_px": round(len(loop) / PIXELS, 2)}
        row |= {f"mca_cycles_per_px_{cpu}": round(cycles(loop, cpu) / PIXELS, 2) for cpu in options.cpu}
        table[function] = row
    if options.json:
        print(json.dumps(table, indent=1))
        return
    for function, row in table.items():
        print(f"{function:24s} " + "  ".join(f"{name} {value:6.2f}" for name, value in row.items()))


if __name__ == "__main__":
    main()
