"""Asking for work on one SoC's HTP: each call is a process of its own (see worker.py). Needs no onnx."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edge_app.errors import RuntimeFault
from edge_app.toolchain.socs import Soc

Step = Callable[[int, int], None]
BEST_OPTIMISATION = 3
"""htp_graph_finalization_optimization_mode: 0..3; 3 takes longest to compile and gives the fastest plan."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run of a plan gave, besides its outputs."""

    host_nodes: tuple[tuple[str, str], ...]
    """(name, op type) of nodes that ran on the CPU."""
    rows: tuple[tuple[str, str, int], ...]
    """Profile: (level, event, cycles)."""
    names: tuple[str, ...]
    """Outputs, in the order of the files."""


def compile_plan(
    model: Path, soc: Soc, out: Path, host_ops: Sequence[str] = (), optimization: int = BEST_OPTIMISATION
) -> tuple[tuple[str, str], ...]:
    """Compiles a QDQ model for a SoC into one ONNX with the context inside; it appears whole or not at all.

    Returns:
        (name, op type) of the nodes that stay on the CPU.

    Raises:
        RuntimeFault: the compiler refuses, the disk is full, or nothing may be written there.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out.parent):  # compiling takes minutes: better told before
            pass
    except OSError as error:
        raise cant_write(out, error) from error
    answer = _ask(
        soc,
        {
            "action": "compile",
            "model": str(model),
            "out": str(out),
            "host_ops": list(host_ops),
            "optimization": optimization,
        },
    )
    return tuple((name, op) for name, op in answer["host_nodes"])


def cant_write(plan: Path, error: OSError) -> RuntimeFault:
    """A plan that can't be put where it belongs, as an error that says what to do."""
    return RuntimeFault(
        "the plan can't be written",
        where=str(plan),
        wanted="a folder that this user may write to, with space left",
        got=error.strerror or str(error),
        remedy="as a user who may write there, once: run the pipeline, or `edge_app model compile`; or copy it there",
    )


def compile_all(models: Sequence[Path], soc: Soc, outs: Sequence[Path]) -> None:
    """Compiles several QDQ models for one SoC, one after another in one process: the segments of a cut model.

    Raises:
        RuntimeFault: the compiler refuses one, or the disk is full.
    """
    parts = [[str(model), str(out)] for model, out in zip(models, outs, strict=True)]
    _ask(soc, {"action": "compile_all", "parts": parts, "optimization": BEST_OPTIMISATION})


def write_dlc(model: Path, soc: Soc, folder: Path) -> list[str]:
    """Writes a .dlc of a QDQ model for the QNN and SNPE command-line tools; names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    names: list[str] = _ask(soc, {"action": "dlc", "model": str(model), "out": str(folder)})["files"]
    return names


def run_plan(
    model: Path,
    soc: Soc,
    inputs: Sequence[Path],
    outputs: Sequence[Path],
    *,
    profile: bool = False,
    step: Step = lambda _done, _of: None,
) -> Ran:
    """Runs a plan (or a QDQ model, compiled on the fly) on the HTP of a SoC, the simulated one on x86_64.

    Args:
        model: the plan.
        soc: on which.
        inputs: .npy files, an input tensor each.
        outputs: .npz files to write, a set of outputs each.
        profile: also count cycles by node.
        step: called after each run.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = _ask(
            soc,
            {
                "action": "run",
                "model": str(model),
                "inputs": [str(p) for p in inputs],
                "outputs": [str(p) for p in outputs],
                "profile": str(Path(folder, "profile.csv")) if profile else None,
            },
            step,
        )
    return Ran(
        tuple((name, op) for name, op in answer["host_nodes"]),
        tuple((level, event, cycles) for level, event, cycles in answer["rows"]),
        tuple(answer["names"]),
    )


def support(models: Sequence[Path], soc: Soc) -> list[dict[str, Any]]:
    """For each model: {host_nodes: [(name, op)], error: str or None}."""
    found: list[dict[str, Any]] = _ask(soc, {"action": "support", "models": [str(model) for model in models]})["models"]
    return found


def _ask(soc: Soc, request: dict[str, Any], step: Step = lambda _done, _of: None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "request.json")
        file.write_text(json.dumps({**request, "soc": asdict(soc)}), encoding="utf-8")
        noise = Path(folder, "noise")  # a file: a pipe that nobody reads is full at 64 KB, and the process then waits
        command = [sys.executable, "-P", "-m", "edge_app.toolchain.worker", str(file)]
        with (
            noise.open("wb") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        ):
            try:
                assert process.stdout is not None  # it was asked for above
                for line in process.stdout:
                    words = line.split()
                    if words[:1] == ["progress"]:
                        step(int(words[1]), int(words[2]))
            except BaseException:
                process.kill()
                raise
        answer_file = Path(f"{file}.answer")
        if process.returncode != 0 or not answer_file.is_file():
            raise RuntimeFault(
                f"the process that works for {soc.name} ended without an answer",
                where=str(request.get("model", "")),
                got=f"exit code {process.returncode}: {noise.read_text(errors='replace').strip()[-400:]}",
                remedy="is there memory and disk space left? Run the command again",
            )
        answer: dict[str, Any] = json.loads(answer_file.read_text(encoding="utf-8"))
    if not answer["ok"]:
        raise RuntimeFault(
            f"{soc.name}: {answer['what']}",
            where=answer.get("where"),
            got=answer.get("got"),
            remedy=answer.get("remedy"),
        )
    return answer
