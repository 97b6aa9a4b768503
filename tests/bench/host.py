"""What the host alone costs a frame: 1080p frames in memory, null session, real wire; and how near the pipeline comes
to its slowest stage.

    python tests/bench/host.py [--frames 2000] [--json]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import cv2

from edge_app.app import build
from edge_app.camera.pcb import DEFAULT_PRODUCT, draw, examining_seed
from edge_app.config.load import load_pipeline
from edge_app.model import resolve
from edge_app.placed import place_model
from edge_app.verdict import PlanKind, PowerMode

ROOT = Path(__file__).resolve().parents[2]


def write_pictures(folder: Path, width: int, height: int) -> None:
    """Eight parts of the synthetic line, as pictures of a camera of this size."""
    for seed in range(8):
        image = draw(DEFAULT_PRODUCT, examining_seed(seed)).image
        cv2.imwrite(str(folder / f"{seed}.png"), cv2.resize(image, (width, height)))


def measure(provider: str, frames: int, pictures: Path, extra: list[str]) -> dict[str, float]:
    """One run of the whole line on pictures that were decoded before it began."""
    pipeline = load_pipeline(
        ROOT / "pipelines" / "defect.yaml",
        ["camera.type=folder", f"camera.path={pictures}", "camera.loop=true", "camera.preload=true",
         f"runtime.provider={provider}", "results.publish=tcp://127.0.0.1:*", "results.commands=null",
         "judge.guard=null", *extra],
    )  # fmt: skip
    app = build(pipeline, "bench", frames)
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    app.start()
    app.wait()
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    stages = app.line.sealer.latencies_us()
    summary = app.summary()
    app.close()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "frames": summary.frames,
        "fps": round(frames / wall, 1),
        "cpu_ms_per_frame": round(cpu * 1000 / frames, 4),
        "latency_p50_ms": round(statistics.median(stages) / 1000, 3),
        "latency_p99_ms": round(sorted(stages)[int(0.99 * len(stages))] / 1000, 3),
        "lost": summary.lost,
    }


def slowest_stage_fps(runs: int, extra: list[str]) -> float:
    """How often per second the cpu plan's inference runs by itself, one thread: the slowest stage of the line."""
    pipeline = load_pipeline(ROOT / "pipelines" / "defect.yaml", ["runtime.provider=cpu", "runtime.threads=1", *extra])
    card = resolve(pipeline.model, pipeline.preprocess)
    engine = place_model(pipeline, card).engines[PlanKind.CPU]
    work = engine.bind()
    start = time.perf_counter()
    for _ in range(runs):
        engine.run(work, PowerMode.NONE)
    return runs / (time.perf_counter() - start)


def pipelined(pictures: Path, runs: int, rounds: int, extra: list[str]) -> dict[str, float]:
    """The line's frame rate beside its slowest stage's, interleaved."""
    ratios = []
    for _ in range(rounds):
        alone = slowest_stage_fps(runs, extra)
        line = measure("cpu", runs, pictures, ["runtime.threads=1", *extra])["fps"]
        ratios.append(line / alone)
    return {"rounds": rounds, "line_to_slowest_stage": round(statistics.median(ratios), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=2000)
    parser.add_argument("--set", dest="overrides", action="append", default=[], help="as of edge_app --pipeline")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_pictures(Path(folder), 1920, 1080)
        figures = {"null_1080p": measure("null", args.frames, Path(folder), args.overrides)}
        figures["pipelined"] = pipelined(Path(folder), 100, 5, args.overrides)
    if args.json:
        print(json.dumps(figures))
        return
    for name, values in figures.items():
        print(name)
        for key, value in values.items():
            print(f"  {key:20} {value}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
