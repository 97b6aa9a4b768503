"""Whole lines, run for their figures: pictures in memory, the real wire, and a subscriber in a process of its own."""

from __future__ import annotations

import json
import multiprocessing
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cv2
import zmq

from edge_app import memory
from edge_app.app import App, build
from edge_app.bench.aside import start_aside
from edge_app.bench.figures import Options
from edge_app.bench.ports import free_port
from edge_app.camera.pcb import DEFAULT_PRODUCT, draw, examining_seed
from edge_app.camera.picture import load_bgr
from edge_app.clock import utc_us
from edge_app.config.load import load_pipeline
from edge_app.config.pipeline import Pipeline
from edge_app.frame import Frame, FrameStatus, PixelFormat

PICTURES = 16
SLOW_JOINER_S = 0.5
WARM_UP = 10
"""One part in so many of a run is not measured: the first."""
LOOK_S = 0.002


@dataclass(frozen=True, slots=True)
class Received:
    """One result, as a subscriber has it."""

    latency_us: int
    """From capture to the moment at which the subscriber had the bytes."""
    reason: str
    stage_us: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a line."""

    fps: float
    cpu_ms_per_frame: float
    """Of the whole process, all threads."""
    lost: int
    received: Sequence[Received]

    @property
    def latencies_us(self) -> list[int]:
        """Sorted; without the first tenth."""
        return sorted(one.latency_us for one in self.received[len(self.received) // WARM_UP :])


def write_pictures(folder: Path, width: int = 1920, height: int = 1080) -> None:
    """Parts of the synthetic line, as pictures of a camera of this size; together far larger than a cache."""
    for seed in range(PICTURES):
        image = draw(DEFAULT_PRODUCT, examining_seed(seed)).image
        cv2.imwrite(str(folder / f"{seed}.png"), cv2.resize(image, (width, height)))


def frames_of(pictures: Path) -> list[Frame]:
    """As the camera gives them."""
    images = [load_bgr(file) for file in sorted(pictures.glob("*.png"))]
    return [
        Frame(n, n, 0, 0, FrameStatus.COMPLETE, PixelFormat.BGR8, image.shape[1], image.shape[0], image)
        for n, image in enumerate(images, 1)
    ]


def line_of(options: Options, pictures: Path, *overrides: str, port: int | None = None) -> Pipeline:
    """The pipeline, on pictures that are decoded before it begins; without a frame guard."""
    return load_pipeline(
        options.pipeline,
        ["camera.type=folder", f"camera.path={pictures}", "camera.loop=true", "camera.preload=true",
         f"results.publish=tcp://127.0.0.1:{port or '*'}", "results.commands=null", "judge.guard=null",
         "monitor.http=null", *overrides, *options.overrides],
    )  # fmt: skip


def realtime(rate_fps: float, deadline_ms: int = 10_000) -> tuple[str, ...]:
    """Overrides for a camera that does not wait."""
    return f"camera.rate_fps={rate_fps:g}", "limits.pacing=realtime", f"limits.deadline_ms={deadline_ms}"


def run_line(options: Options, pictures: Path, frames: int, *overrides: str) -> Run:
    """So many frames through the whole line, to a subscriber."""
    port = free_port()
    here, there = multiprocessing.get_context("spawn").Pipe()
    subscriber = start_aside(_subscribe, there, port)
    there.close()  # so that a process that dies is an EOFError here, not a wait for ever
    here.recv()
    app = build(line_of(options, pictures, *overrides, port=port), "bench", frames)
    app.outlet.start()
    memory.end_loading()  # as `edge_app --pipeline` does; else the collector goes through the peers' packages too
    time.sleep(SLOW_JOINER_S)
    try:
        fps, cpu_ms = _timed(app, frames)
    finally:
        app.close()
    here.send("end")
    received = [Received(*one) for one in here.recv()]
    subscriber.join()
    counts = app.line.sealer.counts()
    return Run(fps, cpu_ms, counts.triggers - counts.sealed, received)


def _timed(app: App, frames: int) -> tuple[float, float]:
    """Frames a second and CPU milliseconds a frame, from the first tenth on; the outlet has been started.

    Before it the camera opens, which decodes all its pictures, and caches and buffers warm up.
    """
    app.line.start()
    while app.line.sealer.last_seq < frames // WARM_UP and not app.wait(LOOK_S):
        pass
    warmed_up, start_s, cpu_start_s = app.line.sealer.last_seq, time.perf_counter(), time.process_time()
    app.wait()
    measured = app.line.sealer.last_seq - warmed_up
    fps = measured / (time.perf_counter() - start_s)
    return fps, (time.process_time() - cpu_start_s) * 1000 / measured


def _subscribe(pipe: Connection, port: int) -> None:
    """Collects results until the pipe says so, and those that are still on their way."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sock = context.socket(zmq.SUB)
    sock.set(zmq.RECONNECT_IVL, 10)
    sock.set(zmq.RCVHWM, 0)
    sock.subscribe(b"v1/result/")
    sock.connect(f"tcp://127.0.0.1:{port}")
    pipe.send("ready")
    arrived: list[tuple[int, bytes]] = []
    while not pipe.poll(0) or sock.poll(50):
        if sock.poll(20):
            body = sock.recv_multipart()[1]
            arrived.append((utc_us(), body))
    results: list[tuple[int, Any]] = [(at_us, json.loads(body)) for at_us, body in arrived]
    pipe.send([(at_us - one["t_capture_us"], one["reason"], one["stage_us"]) for at_us, one in results])
    context.destroy(linger=0)


def median(values: Sequence[float]) -> float:
    """Of nothing: an error, since a figure would be made up."""
    return statistics.median(values)
