"""What the host costs a frame: with the null session, which costs nothing, and beside ultralytics' own loop.

Then the whole line with the cpu plan: how near it comes to its slowest stage, what a frame waits, and what happens at
twice the rate that it can do.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from edge_app.app import App, build
from edge_app.bench import gil, peers
from edge_app.bench.figures import Figures, Options
from edge_app.bench.memory import resident
from edge_app.bench.running import (
    PICTURES,
    Received,
    Run,
    frames_of,
    line_of,
    median,
    realtime,
    run_line,
    write_pictures,
)
from edge_app.bench.timing import compared
from edge_app.bench.ultralytics_loop import same_detections, ultralytics_loop
from edge_app.config.load import load_pipeline
from edge_app.engine import Engine, Work
from edge_app.frame_guard import load_products, measure_frame
from edge_app.guard import check
from edge_app.model import resolve
from edge_app.placed import place_model
from edge_app.summary import nearest_rank
from edge_app.verdict import PlanKind, PowerMode

NULL = "runtime.provider=null"
CPU = ("runtime.provider=cpu", "runtime.threads=1", "runtime.timeout_ms=60000")
PACE_FPS = 100.0
CAMERAS = 4
LOOK_S = 0.01
INSPECTED, DROPPED = ("OK", "DEFECT", "MARGINAL"), ("OVERRUN", "OVERLOAD")
TURNS = 3
"""Of comparisons of whole lines."""


def figures(options: Options) -> Iterator[Figures]:
    """All parts, on one set of pictures."""
    peers.one_thread()
    with tempfile.TemporaryDirectory() as name:
        pictures = Path(name)
        write_pictures(pictures)
        parts: dict[str, Callable[[Options, Path], Figures]] = {
            "host_guard": guard_check, "host_null_1080p": null_session, "host_stubbed": beside_stubbed_ultralytics,
            "host_cpu": beside_ultralytics, "pipelined_1_camera": pipelined, "pipelined_4_cameras": four_cameras,
            "overload": overload, "memory_cpu_plan": resident,
        }  # fmt: skip
        for key, part in parts.items():
            if key.startswith(options.only):
                yield part(options, pictures)


def guard_check(options: Options, pictures: Path) -> Figures:
    """CPU time of measuring a 1080p frame, and of comparing a measured one with the pipeline's references.

    The other figures of a host are without the comparison. `accepted`: share of the drawn boards that the guard lets
    through.
    """
    file = load_pipeline(options.pipeline, list(options.overrides)).judge.guard
    products = [] if file is None else load_products(file)
    with tempfile.TemporaryDirectory() as name:
        write_pictures(Path(name), 640, 640)
        boards = [(measure_frame(frame), (frame.width, frame.height)) for frame in frames_of(Path(name))]
    frames = frames_of(pictures)
    measure_ms, cpu_ms, findings = [], [], []
    for turn in range(options.rounds):
        measures, size = boards[turn % len(boards)]
        start_ns = time.thread_time_ns()
        measure_frame(frames[turn % len(frames)])
        measured_ns = time.thread_time_ns()
        findings.append(check(measures, products, size))
        measure_ms.append((measured_ns - start_ns) / 1e6)
        cpu_ms.append((time.thread_time_ns() - measured_ns) / 1e6)
    references = sum(len(product.detail) for product in products)
    return Figures("host_guard", f"frame guard: 1080p measured; 640x640 beside {references} references", {
        "measure_1080p_cpu_ms": round(median(measure_ms), 4),
        "cpu_ms": round(median(cpu_ms), 4),
        "accepted": round(findings.count(None) / len(findings), 3),
    })  # fmt: skip


def null_session(options: Options, pictures: Path) -> Figures:
    """A 1080p frame in memory to its result on the socket, at a steady rate and as fast as it goes.

    The kernels are measured at both rates too: between two frames of a steady rate a core goes to sleep and its caches
    go cold, which makes them dearer by a quarter. What spreads their times when they run alone is the machine; at the
    steady rate they run as often as the line does, since what a machine does every two seconds is not in one second.
    """
    frames = options.rounds * 5
    kernels, paced_kernels = Took(), Took()
    kernels_alone(options, pictures, options.rounds, None, kernels)
    kernels_alone(options, pictures, frames // 2, PACE_FPS, paced_kernels)
    paced = run_line(options, pictures, frames, NULL, *realtime(PACE_FPS))
    flat_out = run_line(options, pictures, frames, NULL)
    kernels_alone(options, pictures, options.rounds, None, kernels)
    kernels_alone(options, pictures, frames // 2, PACE_FPS, paced_kernels)
    cpu_ms, paced_cpu_ms = fmean(kernels.cpu_ms), fmean(paced_kernels.cpu_ms)  # the line's is a mean too
    walls = sorted(paced_kernels.wall_ms)
    p50, p99 = (nearest_rank(paced.latencies_us, share) / 1000 for share in (0.5, 0.99))
    return Figures("host_null_1080p", f"null session, 1080p to the socket, {PACE_FPS:g} frames a second", {
        "p50_ms": p50,
        "p99_ms": p99,
        "p99_to_p50": round(p99 / p50, 2),
        "kernels_p99_to_p50": round(nearest_rank(walls, 0.99) / nearest_rank(walls, 0.5), 2),
        "cpu_ms": round(paced.cpu_ms_per_frame, 4),
        "kernels_cpu_ms": round(paced_cpu_ms, 4),
        "cpu_ms_beyond_kernels": round(paced.cpu_ms_per_frame - paced_cpu_ms, 4),
        "flat_out_fps": round(flat_out.fps, 1),
        "flat_out_cpu_ms": round(flat_out.cpu_ms_per_frame, 4),
        "flat_out_kernels_cpu_ms": round(cpu_ms, 4),
        "flat_out_cpu_ms_beyond_kernels": round(flat_out.cpu_ms_per_frame - cpu_ms, 4),
        "lost": paced.lost + flat_out.lost,
        **gil_holds(options, pictures),
    })  # fmt: skip


@dataclass(frozen=True, slots=True)
class Took:
    """Of one work, run by run."""

    cpu_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)


def kernels_alone(options: Options, pictures: Path, runs: int, pace_fps: float | None, took: Took) -> None:
    """Frame measures, preprocessing and decode alone, on the same frames; at a rate, or flat out. Adds to `took`."""
    engine, work = engine_of(options, pictures, PlanKind.NULL, NULL)
    frames = frames_of(pictures)
    engine.preprocess(frames[0], work)
    engine.run(work, PowerMode.NONE)
    due_s = time.perf_counter()
    for turn in range(runs):
        frame = frames[turn % len(frames)]
        if pace_fps is not None:
            due_s += 1 / pace_fps
            time.sleep(max(0.0, due_s - time.perf_counter()))
        start_s, start_ns = time.perf_counter(), time.thread_time_ns()
        measure_frame(frame)
        engine.preprocess(frame, work)
        engine.result(work)
        took.cpu_ms.append((time.thread_time_ns() - start_ns) / 1e6)
        took.wall_ms.append((time.perf_counter() - start_s) * 1000)


def engine_of(options: Options, pictures: Path, plan: PlanKind, *overrides: str) -> tuple[Engine, Work]:
    """One plan by itself, with buffers of its own."""
    pipeline = line_of(options, pictures, *overrides)
    engine = place_model(pipeline, resolve(pipeline.model, pipeline.preprocess)).engines[plan]
    return engine, engine.bind()


def gil_holds(options: Options, pictures: Path) -> dict[str, float | str | None]:
    """How long a paced line holds the GIL; nothing where there is no compiler."""
    frames = options.rounds * 2
    with tempfile.TemporaryDirectory() as folder:
        probe = gil.build_probe(Path(folder))
        if probe is None:
            return {}
        app = build(line_of(options, pictures, NULL, *realtime(PACE_FPS)), "bench", frames)

        def run() -> None:
            app.start()
            app.wait()

        waits_us = gil.waits_us(probe, run)
        app.close()
    return gil.held(waits_us, frames / PACE_FPS, frames)


# -- ultralytics ------------------------------------------------------------------------------------------------------


def beside_stubbed_ultralytics(options: Options, pictures: Path) -> Figures:
    """Frames a second of both with a model that costs nothing; ours ends on the socket, theirs in a Results object."""
    frames = options.rounds * 2
    return _beside("host_stubbed", "1080p, the model stubbed out", {
        "ours": lambda: run_line(options, pictures, frames, NULL).fps,
        "ultralytics": _fps_of(ultralytics_loop(pictures, None), frames),
    })  # fmt: skip


def beside_ultralytics(options: Options, pictures: Path) -> Figures:
    """The same with pcb-defect on onnxruntime's CPU provider, all cores both: the same float model, the same letterbox.

    `session_alone` runs that model and does nothing else: a host that costs nothing could not be faster.
    """
    card = resolve(line_of(options, pictures).model, line_of(options, pictures).preprocess)
    frames = max(16, options.rounds // 4)
    engine, work = engine_of(options, pictures, PlanKind.CPU, "runtime.provider=cpu")
    engine.preprocess(frames_of(pictures)[0], work)
    peer = ultralytics_loop(pictures, card.file, card.input.width)
    beside = _beside("host_cpu", "1080p, pcb-defect on the CPU, all cores", {
        "ours": lambda: run_line(options, pictures, frames, "runtime.provider=cpu").fps,
        "ultralytics": _fps_of(peer, frames),
        "session_alone": lambda: _runs_per_second(engine, work, frames),
    })  # fmt: skip
    if peer is None:
        return beside
    same = same_detections(engine, work, frames_of(pictures), peer(PICTURES))
    return replace(beside, values={**beside.values, "same_detections": round(same, 4)})


def _beside(key: str, title: str, fps_of: Mapping[str, Callable[[], float] | None]) -> Figures:
    """In turns; each gives its frames a second."""
    times: dict[str, list[float]] = {name: [] for name, work in fps_of.items() if work is not None}
    for _ in range(TURNS):
        for name, work in fps_of.items():
            if work is not None:
                times[name].append(1 / work())
    return compared(key, title, fps_of, times)


def _fps_of(peer: Callable[[int], object] | None, frames: int) -> Callable[[], float] | None:
    if peer is None:
        return None

    def fps() -> float:
        start = time.perf_counter()
        peer(frames)
        return frames / (time.perf_counter() - start)

    return fps


# -- pipelined --------------------------------------------------------------------------------------------------------


def pipelined(options: Options, pictures: Path) -> Figures:
    """The line beside its slowest stage alone, in turns; then the way of a frame that waits for nobody."""
    runs = max(20, options.rounds // 2)
    engine, work = engine_of(options, pictures, PlanKind.CPU, *CPU)
    engine.preprocess(frames_of(pictures)[0], work)
    ratios, alone_fps = [], []
    for _ in range(TURNS):
        alone_fps.append(_runs_per_second(engine, work, runs))
        line = run_line(options, pictures, runs, *CPU)
        ratios.append(line.fps / ((alone_fps[-1] + _runs_per_second(engine, work, runs)) / 2))
    calm = run_line(options, pictures, runs, *CPU, *realtime(median(alone_fps) * 0.5))
    return Figures("pipelined_1_camera", "cpu plan on one thread, 1080p", {
        "slowest_stage_fps": round(median(alone_fps), 2),
        "line_to_slowest_stage": round(median(ratios), 4),
        "latency_p50_ms": nearest_rank(calm.latencies_us, 0.5) / 1000,
        "latency_to_sum_of_stages": round(nearest_rank(calm.latencies_us, 0.5) / sum_of_stages_us(calm.received), 3),
    })  # fmt: skip


def _runs_per_second(engine: Engine, work: Work, runs: int) -> float:
    start = time.perf_counter()
    for _ in range(runs):
        engine.run(work, PowerMode.NONE)
    return runs / (time.perf_counter() - start)


def four_cameras(options: Options, pictures: Path) -> Figures:
    """Four lines in one process beside their four slowest stages alone, in turns: frames a second of all together.

    Four of them keep all cores busy, so a frame's CPU time beside that of its inference says the same; and on a machine
    that is busy with something else too, only that does.
    """
    runs = max(20, options.rounds // 8)
    bound = [engine_of(options, pictures, PlanKind.CPU, *CPU) for _ in range(CAMERAS)]
    for engine, work in bound:
        engine.preprocess(frames_of(pictures)[0], work)
    alone, together = [], []
    lost = 0
    for _ in range(TURNS):
        alone.append(_engines_side_by_side(bound, runs))
        pipelines = [line_of(options, pictures, *CPU, f"station.station=st{n}") for n in range(CAMERAS)]
        apps = [build(pipeline, "bench", runs) for pipeline in pipelines]
        together.append(_lines_side_by_side(apps, runs))
        lost += sum(runs - app.line.sealer.counts().sealed for app in apps)
    alone.append(_engines_side_by_side(bound, runs))
    around = [(Speed((a.fps + b.fps) / 2, (a.cpu_ms + b.cpu_ms) / 2)) for a, b in pairwise(alone)]
    return Figures("pipelined_4_cameras", "four lines in one process, cpu plan on one thread each, 1080p", {
        "slowest_stage_fps": round(median([one.fps for one in alone]), 2),
        "line_to_slowest_stage": round(median([a.fps / b.fps for a, b in zip(together, around, strict=True)]), 4),
        "cpu_to_slowest_stage": round(median([a.cpu_ms / b.cpu_ms for a, b in zip(together, around, strict=True)]), 4),
        "lost": lost,
    })  # fmt: skip


@dataclass(frozen=True, slots=True)
class Speed:
    """Of several that work side by side."""

    fps: float
    """Of all together."""
    cpu_ms: float
    """Of the process, for one frame."""


def _engines_side_by_side(bound: Sequence[tuple[Engine, Work]], runs: int) -> Speed:
    done = [0] * len(bound)

    def work_off(number: int) -> None:
        engine, work = bound[number]
        for _ in range(runs):
            engine.run(work, PowerMode.NONE)
            done[number] += 1

    threads = [threading.Thread(target=work_off, args=(number,)) for number in range(len(bound))]
    for thread in threads:
        thread.start()
    speed = _while_all_work(lambda: done, runs)
    for thread in threads:
        thread.join()
    return speed


def _lines_side_by_side(apps: Sequence[App], runs: int) -> Speed:
    for app in apps:
        app.start()
    speed = _while_all_work(lambda: [app.line.sealer.last_seq for app in apps], runs)
    for app in apps:
        app.wait()
        app.close()
    return speed


def _while_all_work(done: Callable[[], Sequence[int]], runs: int) -> Speed:
    """From when each has done one until one is through: as they start and end one by one, cores are idle."""
    while min(counts := done()) < 1:
        time.sleep(LOOK_S)
    start, cpu_start, before = time.perf_counter(), time.process_time(), sum(counts)
    while max(counts := done()) < runs:
        time.sleep(LOOK_S)
    frames = sum(counts) - before
    return Speed(frames / (time.perf_counter() - start), (time.process_time() - cpu_start) * 1000 / frames)


def sum_of_stages_us(received: Sequence[Received]) -> float:
    """Medians of the stages, added up: what a frame needs that waits for nobody."""
    stages = ("guard", "preprocess", "infer", "decode")
    whole = [one.stage_us for one in received if all(stage in one.stage_us for stage in stages)]
    return sum(median([stage_us[stage] for stage_us in whole]) for stage in stages)


def overload(options: Options, pictures: Path) -> Figures:
    """Twice the rate that the line can do: latency does not grow, and every drop is sealed.

    Without a slot it is OVERRUN. Soon the scheduler sees that triggers come faster than the plan runs and lowers the
    rate: from then on most are OVERLOAD.
    """
    runs = max(20, options.rounds // 2)
    engine, work = engine_of(options, pictures, PlanKind.CPU, *CPU)
    engine.preprocess(frames_of(pictures)[0], work)
    rate = 2 * _runs_per_second(engine, work, runs)
    run: Run = run_line(options, pictures, runs * 4, *CPU, *realtime(rate))
    reasons = Counter(one.reason for one in run.received)
    inspected = [one.latency_us for one in run.received if one.reason in INSPECTED]
    third = len(inspected) // 3
    return Figures("overload", f"twice what the cpu plan can do: {rate:.0f} frames a second", {
        "overrun_share": round(reasons["OVERRUN"] / len(run.received), 3),
        "overload_share": round(reasons["OVERLOAD"] / len(run.received), 3),
        "other_unknown": sum(count for reason, count in reasons.items() if reason not in (*INSPECTED, *DROPPED)),
        "latency_p50_ms": nearest_rank(sorted(inspected), 0.5) / 1000,
        "last_third_to_first": round(median(inspected[-third:]) / median(inspected[:third]), 3),
        "lost": run.lost,
    })  # fmt: skip
