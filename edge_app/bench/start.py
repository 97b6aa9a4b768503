"""From the start of the process to the first sealed result, and what it went into (see `edge_app.bench.one_start`)."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from edge_app.bench.figures import Figures, Options
from edge_app.bench.ports import free_port
from edge_app.durable import write_whole
from edge_app.errors import RuntimeFault

STARTS = 5
Environment = Mapping[str, str]
ONE_START = [sys.executable, "-P", "-m", "edge_app.bench.one_start"]


def figures(options: Options) -> Iterator[Figures]:
    """`--help`, the null session, the cpu plan; and a context against the compiler, where there is a QNN."""
    parts: dict[str, Callable[[Options, Environment], Figures | None]] = {
        "start_help": help_text,
        "start_null": lambda options, environment: first_result(options, "null", environment),
        "start_cpu": lambda options, environment: first_result(options, "cpu", environment),
        "start_context": context_or_compiler,
    }
    with as_installed() as environment:
        for key, part in parts.items():
            found = part(options, environment) if key.startswith(options.only) else None
            if found is not None:
                yield found


@contextmanager
def as_installed() -> Iterator[Environment]:
    """For processes that find bytecode from their second start on, as pip leaves it beside a package that it installs.

    A checkout need not have any, and compiling it at each start takes a fifth of a second and 10 MB.
    """
    with tempfile.TemporaryDirectory() as folder:
        yield {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}


def help_text(_options: Options, environment: Environment) -> Figures:
    """Beside a bare interpreter, in turns."""
    ours, bare = [], []
    help_command = [sys.executable, "-P", "-m", "edge_app", "--help"]
    wall_ms(help_command, environment)
    for _ in range(2 * STARTS):
        ours.append(wall_ms(help_command, environment))
        bare.append(wall_ms([sys.executable, "-c", "pass"], environment))
    return Figures("start_help", "edge_app --help", {
        "wall_ms": round(statistics.median(ours), 1),
        "bare_python_ms": round(statistics.median(bare), 1),
    })  # fmt: skip


def output_of(command: list[str], environment: Environment) -> str:
    """What a process says. Raises RuntimeFault: it failed."""
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise RuntimeFault(f"a process that was to be measured ended with {done.returncode}",
                           where=" ".join(command[1:5]), got=done.stderr[-1000:])  # fmt: skip
    return done.stdout


def stopped(line: subprocess.Popen[bytes], seconds: float) -> int:
    """Its exit code after a SIGTERM; one that does not end by itself is killed, and that is its code."""
    line.send_signal(signal.SIGTERM)
    try:
        return line.wait(seconds)
    except subprocess.TimeoutExpired:
        line.kill()
        return line.wait()


def wall_ms(command: list[str], environment: Environment) -> float:
    """Of one process, from start to end."""
    start = time.perf_counter()
    output_of(command, environment)
    return (time.perf_counter() - start) * 1000


def first_result(options: Options, provider: str, environment: Environment) -> Figures:
    """Medians over several starts, with a picture from a file; and of the shipped line, which draws its parts."""
    common = (f"runtime.provider={provider}", "results.publish=tcp://127.0.0.1:*", "results.commands=null")
    with tempfile.TemporaryDirectory() as folder:
        write_picture(Path(folder))
        picture = ("camera.type=folder", f"camera.path={folder}", "camera.loop=true")
        kinds = {
            "": (*picture, "monitor.http=null"),
            "with_monitor_ms": (*picture, f"monitor.http=127.0.0.1:{free_port()}"),
            "drawn_camera_ms": ("monitor.http=null",),
        }
        starts: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
        for turn in range(1 + STARTS):
            for kind, overrides in kinds.items():
                steps = started(options.pipeline, [*common, *overrides, *options.overrides], environment)
                if turn:  # the first one compiles
                    starts[kind].append(steps)
    figures = {name: median_of(starts[""], name) for name in starts[""][0]}
    figures |= {kind: median_of(starts[kind], "first_result_ms") for kind in kinds if kind}
    return Figures(f"start_{provider}", f"process start to first sealed result, {provider}", figures)


def median_of(starts: list[dict[str, float]], step: str) -> float:
    """Of one step."""
    return round(statistics.median(one[step] for one in starts), 1)


def write_picture(folder: Path) -> None:
    """A part of the synthetic line. Raises RuntimeFault: no space."""
    import cv2

    from edge_app.camera.pcb import DEFAULT_PRODUCT, draw, examining_seed

    picture = cv2.imencode(".png", draw(DEFAULT_PRODUCT, examining_seed(0)).image)[1]
    write_whole(folder / "part.png", picture.tobytes(), "the picture to run on", RuntimeFault)


def started(pipeline: Path, overrides: list[str], environment: Environment) -> dict[str, float]:
    """One start, in a process of its own."""
    command = [*ONE_START, str(time.monotonic()), str(pipeline), *overrides]
    steps: dict[str, float] = json.loads(output_of(command, environment))
    return steps


def context_or_compiler(options: Options, environment: Environment) -> Figures | None:
    """Loading a compiled plan against compiling the QDQ model at load, in processes of their own; simulated on x86_64.

    None if the model has no plan on this machine's disk.
    """
    from edge_app.config.load import load_pipeline
    from edge_app.model import resolve

    pipeline = load_pipeline(options.pipeline, list(options.overrides))
    card = resolve(pipeline.model, pipeline.preprocess)
    if card.manifest is None or card.folder is None or card.manifest.quantized is None:
        return None
    made = [plan for plan in card.manifest.plans if plan.plan.value == "htp"
            and (card.folder / plan.artifacts[0].file).is_file()]  # fmt: skip
    if not made or made[0].soc is None:
        return None
    plan = made[0]
    quantized = card.manifest.quantized.model.file
    files = {"context": card.folder / plan.artifacts[0].file, "compiler": card.folder / quantized}
    target = [str(plan.soc), str(plan.soc_model), str(plan.htp_arch)]
    loads: dict[str, float | str | None] = {}
    for name, file in files.items():
        command = [*ONE_START, "--load", str(file), *target]
        took = [float(output_of(command, environment).split()[-1]) for _ in range(3)]
        loads[f"{name}_ms"] = round(statistics.median(took), 1)
    return Figures("start_context", f"session of the {plan.soc} htp plan: from its context, or compiled at load", loads)
