"""Run a pipeline for a while with everything going wrong around it, and say what that did to it.

The line runs as a process of its own, on pictures of the built-in line (one whose camera is a drawn mirror keeps it),
with ports, journal and thermal zones made for the soak, and without the pipeline's keys and evidence. A round of 150 s
has one of each: pictures cut in the middle, a subscriber that stops reading, a full disk for the journal (as root),
SIGHUP, with --step-clock steps of the clock, at last a board that heats up; the rest of a round is for the board to
cool, and for parts. A pipeline without a deadline gets one of 2 s. A client counts what comes; of a line that decides
over many frames, `inspected` are frames. Exit code 1: a result was lost, the line died, or it holds more and more
memory or handles.

examples:
  edge_app soak --pipeline pipelines/defect.yaml --minutes 20
  edge_app soak --pipeline pipelines/defect.yaml --minutes 0.5 --json
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge_app.bench.ports import free_port
from edge_app.bench.start import stopped, write_picture
from edge_app.client import Line, Start
from edge_app.commands.arguments import above_zero, add_overrides
from edge_app.commands.report import add_json_argument, people, print_json, print_table
from edge_app.config.camera import MirrorCamera
from edge_app.config.load import load_pipeline
from edge_app.config.pipeline import Pipeline
from edge_app.errors import ConfigError, ExitCode, RuntimeFault
from edge_app.memory import resident_mb

START_S, END_S = 300.0, 60.0
TROUBLE_S, PAUSE_S = 3.0, 1.0
"""How long a trouble lasts, and the pause after it."""
ROUND_S = 150.0
"""From the first trouble to the first again. After a heat the scheduler stays careful for a minute."""
DEADLINE_MS = 2000.0
SAMPLE_S = 1.0
VISITS_A_MINUTE = 60
"""More than ever come before a drawn mirror."""
MOST_SLOPE_MB = 1.0
"""A minute, over the second half of a run; judged from LONG_S on: before, caches still fill."""
MOST_HANDLES = 8
LONG_S = 600.0
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
ZONES = {"nspss0-thermal": (75.0, 97.0), "cpu0-thermal": (63.0, 70.0), "msm-skin-thermal": (36.0, 40.0)}
"""Type of a thermal zone: usual and hot, degrees."""
TRIP_C, RISE_C = 95.0, 5.0
"""Trip point of all; how far a zone moves between two samples."""
HEAT_S = 10.0
DISK_MIB = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--pipeline", metavar="FILE", type=Path, required=True, help="its camera becomes pictures")
    parser.add_argument("--minutes", metavar="N", type=above_zero, default=2.0, help="how long (default 2)")
    parser.add_argument("--rate", metavar="FPS", type=above_zero, default=2.0, help="pictures a second (default 2)")
    parser.add_argument("--step-clock", action="store_true", help="also step its clock by hours (needs libfaketime)")
    add_overrides(parser)
    add_json_argument(parser)


@dataclass
class Soak:
    """One run: where its files lie, the process, and what was seen."""

    folder: Path
    publish: str = field(default_factory=lambda: f"tcp://127.0.0.1:{free_port()}")
    commands: str = field(default_factory=lambda: f"tcp://127.0.0.1:{free_port()}")
    process: subprocess.Popen[bytes] | None = None
    samples: list[tuple[float, float, int, int]] = field(default_factory=list)
    """Seconds, resident MB, open handles, threads."""
    temps_c: dict[str, float] = field(default_factory=lambda: {kind: usual for kind, (usual, _) in ZONES.items()})
    troubles: dict[str, int] = field(default_factory=dict)
    verdicts: dict[str, int] = field(default_factory=dict)
    hot: bool = False
    drawn: bool = False
    """The line draws what it sees: there is no picture to cut."""
    faketime: Path | None = None
    """The library that steps the line's clock; None: it is left alone."""
    got: int = 0
    lost: int = 0

    @property
    def pid(self) -> int:
        """Of the line."""
        if self.process is None or self.process.poll() is not None:
            raise RuntimeFault("the line ended during the soak", got=self.log()[-2000:], remedy="see its log above")
        return self.process.pid

    def log(self) -> str:
        """The line's log so far."""
        return (self.folder / "log").read_text(errors="replace")

    def show_heat(self) -> None:
        """Writes all zones on their way, a little different each time: one that stands still counts as frozen."""
        for number, (kind, goals_c) in enumerate(ZONES.items()):
            zone = self.folder / "sys" / "class" / "thermal" / f"thermal_zone{number}"
            zone.mkdir(parents=True, exist_ok=True)
            way_c = goals_c[self.hot] - self.temps_c[kind]
            self.temps_c[kind] += min(max(way_c, -RISE_C), RISE_C)
            wobble_mc = 100 * (len(self.samples) % 3)
            texts = {"type": kind, "temp": str(round(1000 * self.temps_c[kind]) + wobble_mc)}
            texts |= {"trip_point_0_type": "hot", "trip_point_0_temp": str(round(1000 * TRIP_C))}
            for name, text in texts.items():
                part = zone / f".{name}"
                part.write_text(f"{text}\n")
                part.replace(zone / name)


def run(args: argparse.Namespace) -> int:
    """Runs, reports; CHECK_FAILED if a gate did not hold."""
    if args.step_clock and FAKETIME is None:
        raise ConfigError("no clock can be stepped", where="--step-clock", wanted="libfaketime", got="none in /usr/lib",
                          remedy="apt-get install libfaketime, or leave --step-clock out")  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="edge_app-soak-") as name, ExitStack() as ends:
        soak = Soak(Path(name), faketime=FAKETIME if args.step_clock else None)
        on_disk = ends.enter_context(small_disk(soak.folder / "state"))
        with people().status(f"soaking {args.pipeline} for {args.minutes:g} min"):
            code, summary = soaked(soak, args, on_disk)
    document = report(soak, code, summary)
    if args.json:
        print_json(document)
    else:
        rows = [(key, value) for key, value in document.items() if key not in ("ok", "failed")]
        print_table(f"Soak of {args.pipeline}", ("", ""), rows)
        people().print("ok" if document["ok"] else f"failed: {'; '.join(document['failed'])}",
                       style="green" if document["ok"] else "red")  # fmt: skip
    return int(ExitCode.OK if document["ok"] else ExitCode.CHECK_FAILED)


def soaked(soak: Soak, args: argparse.Namespace, on_disk: bool) -> tuple[int, Mapping[str, Any]]:
    """From start to clean stop: the line's exit code and summary."""
    pictures = soak.folder / "pictures"
    pictures.mkdir()
    write_picture(pictures)
    soak.show_heat()
    with (soak.folder / "log").open("wb") as log, (soak.folder / "summary").open("w+b") as out:
        soak.process = subprocess.Popen(command(soak, args), stdout=out, stderr=log, env=environment(soak))
        try:
            with Line(soak.publish, soak.commands, start=Start.OLDEST) as client:  # a decision may come but once
                until(lambda: took(soak, client, 1.0) or soak.pid < 0, START_S, "no result came")
                end_s = time.monotonic() + 60 * args.minutes
                for wait_s in chaos(soak, on_disk):
                    follow(soak, client, min(wait_s, end_s - time.monotonic()))
                    if time.monotonic() >= end_s:
                        break
                follow(soak, client, PAUSE_S)
        finally:
            code = stopped(soak.process, END_S)
        out.seek(0)
        text = out.read()
    return code, json.loads(text) if text else {}


def command(soak: Soak, args: argparse.Namespace) -> list[str]:
    """The line, with everything around it replaced."""
    pipeline = load_pipeline(args.pipeline, args.overrides)
    soak.drawn = isinstance(pipeline.camera, MirrorCamera)
    settings = (
        *camera(soak, args), f"results.publish={soak.publish}", f"results.commands={soak.commands}",
        "results.security.key=null", "results.security.clients=null", "results.evidence.path=null",
        f"results.journal.path={soak.folder / 'state' / 'results.db'}", "update.store=null", "monitor.http=null",
        "limits.trigger=camera",
        f"scheduler.sysfs_root={soak.folder / 'sys'}", "runtime.timeout_ms=30000",
        "scheduler.drift.ratio=1000",  # a slow run here is another program's doing
        *deadline(pipeline), *args.overrides,
    )  # fmt: skip
    load_pipeline(args.pipeline, settings)  # what is wrong with it is told here, not by the line's log
    words = [word for setting in settings for word in ("--set", setting)]
    return [sys.executable, "-P", "-m", "edge_app", "--pipeline", str(args.pipeline), "--json", *words]


def camera(soak: Soak, args: argparse.Namespace) -> tuple[str, ...]:
    """Settings for what the line sees. Before a mirror a part would be nobody: one that is drawn draws on."""
    if soak.drawn:
        return (f"camera.visits={VISITS_A_MINUTE * math.ceil(args.minutes + START_S / 60)}",)
    pictures = f"camera.path={soak.folder / 'pictures'}"
    return "camera.type=folder", pictures, "camera.loop=true", f"camera.rate_fps={args.rate}"


def deadline(pipeline: Pipeline) -> tuple[str, ...]:
    """Settings for a pipeline that waits: parts of a soak come whether the line has time or not."""
    if pipeline.limits.deadline_ms is not None:
        return ()
    return "limits.pacing=realtime", f"limits.deadline_ms={DEADLINE_MS:g}"


def environment(soak: Soak) -> dict[str, str]:
    """With a clock that can be stepped, where there is one."""
    if soak.faketime is None:
        return dict(os.environ)
    (soak.folder / "clock").write_text("+0\n")
    clock = {"LD_PRELOAD": str(soak.faketime), "FAKETIME_TIMESTAMP_FILE": str(soak.folder / "clock")}
    return {**os.environ, **clock, "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def chaos(soak: Soak, on_disk: bool) -> Iterator[float]:
    """Rounds of troubles, for ever. Yields how long, seconds, things are to stay as they are now."""
    while True:
        end_s = time.monotonic() + ROUND_S
        for name, trouble in troubles(soak, on_disk):
            soak.troubles[name] = soak.troubles.get(name, 0) + 1
            with trouble:
                yield HEAT_S if name == "heat" else TROUBLE_S
            yield PAUSE_S
        yield max(0.0, end_s - time.monotonic())


def troubles(soak: Soak, on_disk: bool) -> Iterator[tuple[str, AbstractContextManager[object]]]:
    """Those of a round: names, and what makes each begin and end."""
    if not soak.drawn:
        yield "picture cut", cut_picture(soak.folder / "pictures" / "part.png")
    yield "subscriber stalls", Line(soak.publish, soak.commands)  # subscribed, and never read
    if on_disk:
        yield "disk full", full_disk(soak.folder / "state" / "filler")
    os.kill(soak.pid, signal.SIGHUP)
    yield "SIGHUP", nullcontext()
    for step in ("+3600", "-3600", "+0") if soak.faketime is not None else ():
        (soak.folder / "clock").write_text(f"{step}\n")
        yield "clock step", nullcontext()
    yield "heat", hot_board(soak)


@contextmanager
def cut_picture(picture: Path) -> Iterator[None]:
    """Half a file where a picture was."""
    whole = picture.read_bytes()
    picture.write_bytes(whole[: len(whole) // 2])
    try:
        yield
    finally:
        picture.write_bytes(whole)


@contextmanager
def full_disk(filler: Path) -> Iterator[None]:
    """No byte is left."""
    fill(filler)
    try:
        yield
    finally:
        filler.unlink(missing_ok=True)


@contextmanager
def hot_board(soak: Soak) -> Iterator[None]:
    """The NPU's zone above its trip point."""
    soak.hot = True
    try:
        yield
    finally:
        soak.hot = False


def follow(soak: Soak, client: Line, seconds: float) -> None:
    """Counts what comes, and looks at the process now and then."""
    end_s = time.monotonic() + seconds
    while (now_s := time.monotonic()) < end_s:
        if not soak.samples or now_s - soak.samples[-1][0] >= SAMPLE_S:
            soak.show_heat()
            proc = Path(f"/proc/{soak.pid}")
            threads = len(list((proc / "task").iterdir()))
            soak.samples.append((now_s, resident_mb(soak.pid), len(list((proc / "fd").iterdir())), threads))
        took(soak, client, 0.2)


def took(soak: Soak, client: Line, wait_s: float) -> bool:
    """Counts the next result, if one comes in time."""
    result = client.next(wait_s)
    if result is None:
        return False
    soak.got += 1
    soak.lost += result.lost_before
    reason = str(result.data["reason"])
    soak.verdicts[reason] = soak.verdicts.get(reason, 0) + 1
    return True


def fill(file: Path) -> None:
    """Writes until the disk is full."""
    with file.open("wb", buffering=0) as out:
        try:
            while out.write(bytes(1 << 16)):
                pass
        except OSError:
            return


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A folder on a disk of its own that can be filled; False: only root may mount one, it is a plain folder."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, check=False, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


def until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Waits; raises RuntimeFault."""
    end_s = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end_s:
            raise RuntimeFault(what, got=f"nothing in {seconds:g} s")


def slope(points: list[tuple[float, float]]) -> float:
    """Least squares, per minute; 0 of fewer than two points."""
    if len(points) < 2:
        return 0.0
    mean_x, mean_y = (sum(point[axis] for point in points) / len(points) for axis in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return 60 * sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def report(soak: Soak, code: int, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The table and the document of `--json`."""
    half = soak.samples[len(soak.samples) // 2 :]
    memory_slope = slope([(at_s, mb) for at_s, mb, _, _ in half])
    lasted_s = soak.samples[-1][0] - soak.samples[0][0] if soak.samples else 0.0
    leaks = lasted_s >= LONG_S and memory_slope > MOST_SLOPE_MB
    handles, threads = ([sample[column] for sample in half] for column in (2, 3))
    grown = {name: seen[-1] - min(seen) for name, seen in (("handles", handles), ("threads", threads)) if seen}
    lost = summary.get("lost")
    inspected = sum(soak.verdicts.get(reason, 0) for reason in ("OK", "DEFECT", "MARGINAL"))
    if (effort := summary.get("effort")) is not None:  # a decision is made of many frames
        inspected = effort["inferences"]
    failed = [
        *([f"the line's exit code is {code}"] if code != 0 else []),
        *([f"{lost} triggers without a result"] if lost != 0 else []),
        *([f"{soak.lost} results did not reach the client"] if soak.lost else []),
        *([f"no {'part' if effort is None else 'frame'} was inspected"] if inspected == 0 else []),
        *([f"memory grows by {memory_slope:.2f} MB a minute"] if leaks else []),
        *(f"{more} more {name} at the end" for name, more in grown.items() if more > MOST_HANDLES),
    ]
    return {
        "ok": not failed, "failed": failed, "minutes": round(lasted_s / 60, 2),
        "results": soak.got, "inspected": inspected, "by reason": dict(sorted(soak.verdicts.items())),
        "lost on the way": soak.lost, "triggers without a result": lost, "late": soak.verdicts.get("LATE", 0),
        "resident MB": round(soak.samples[-1][1], 1) if soak.samples else None,
        "memory slope, MB a minute": round(memory_slope, 3),
        "handles": handles[-1] if handles else None, "threads": threads[-1] if threads else None,
        "troubles": soak.troubles, "exit code": code,
    }  # fmt: skip
