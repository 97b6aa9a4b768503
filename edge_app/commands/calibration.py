"""The frame guard and calibration sets, from one's own camera or pictures.

examples:
  edge_app calibration guard --from good_pictures --out pipelines/mine.guard.json
  edge_app calibration guard --pipeline pipelines/mine.yaml --frames 200 --out pipelines/mine.guard.json
  edge_app calibration collect --pipeline pipelines/mine.yaml --keep 200 --frames 5000 --out calibration/mine
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2

from edge_app.camera import open_camera
from edge_app.commands.arguments import add_overrides, positive
from edge_app.commands.report import add_json_argument, people, print_json, print_table
from edge_app.config.camera import Camera as CameraSection
from edge_app.config.camera import FolderCamera
from edge_app.config.load import load_pipeline
from edge_app.durable import write_whole
from edge_app.errors import ConfigError, ExitCode
from edge_app.frame import Frame, FrameStatus
from edge_app.frame_guard import make_guard, measure_frame, read_guard_products, section_of, write_guard_file
from edge_app.guard_learning import LEAST_FRAMES, Learnt, learn
from edge_app.preprocess import FrameMeasures
from edge_app.results.jpeg import bgr_of
from edge_app.variety import Varied, describe

LOOKED_AT = 20
"""Frames of a camera that are looked at for each one wanted, at most."""
SHOWN = 5
"""Pictures that are named when they could not be used; the others are counted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words after `edge_app calibration`."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    guard = verbs.add_parser(
        "guard",
        help="learn what good frames of one product look like",
        description="Learn what good frames of one product look like, for judge.guard, of 200 frames, 20 at least."
        " Defective parts may be among them; it is the pictures that must be good. Then try it: cover the lens, switch"
        " the lamp off, push a part aside.",
    )
    source = guard.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--from", dest="folders", metavar="PATH", type=Path, action="append",
        help="folder with well-taken pictures, or a .txt list of them; may be repeated",
    )  # fmt: skip
    source.add_argument("--pipeline", metavar="FILE", type=Path, help="take the frames from this pipeline's camera")
    add_overrides(guard)
    guard.add_argument("--frames", metavar="N", type=positive, help="with --pipeline: so many (200)")
    guard.add_argument("--product", metavar="NAME", help="its name in the file; default: the folder's or pipeline's")
    guard.add_argument(
        "--out", metavar="FILE", type=Path, required=True,
        help="guard file; the product is added to those in it, in place of one of the same name",
    )  # fmt: skip
    add_json_argument(guard)
    collect = verbs.add_parser(
        "collect",
        help="keep varied frames of a running camera, for calibration sets",
        description="Keep the frames of a running camera that differ most, for `edge_app model quantize --calibration`."
        " What the guard refuses is left out. Ctrl-C ends it early, and keeps what there is.",
    )
    collect.add_argument("--pipeline", metavar="FILE", type=Path, required=True, help="whose camera runs")
    add_overrides(collect)
    collect.add_argument("--frames", metavar="N", type=positive, default=2000, help="frames to look at (2000)")
    collect.add_argument("--keep", metavar="N", type=positive, default=200, help="frames to keep at most (200)")
    collect.add_argument("--out", metavar="DIR", type=Path, required=True, help="new folder for the pictures")
    add_json_argument(collect)


def run(args: argparse.Namespace) -> int:
    """Runs one verb."""
    return run_guard(args) if args.verb == "guard" else run_collect(args)


def run_guard(args: argparse.Namespace) -> int:
    """Learns one product and writes it into the guard file."""
    sections, limit, name = _sources(args)
    others = [product for product in read_guard_products(args.out) if product.name != name]
    measured, size, unusable = _measure_all(sections, limit)
    learnt = learn(name, size, [measures for _, measures in measured])
    names = [frame_name for frame_name, _ in measured]
    unusable += [(names[index], finding.detail) for index, finding in learnt.left_out]
    used = len(measured) - len(learnt.left_out)
    sources = ", ".join(path.name for path in args.folders or [args.pipeline])
    write_guard_file(args.out, [*others, section_of(learnt.product, f"{used} frames of {sources}")])
    _report_guard(args, learnt, used, unusable)
    return int(ExitCode.OK)


def _sources(args: argparse.Namespace) -> tuple[list[CameraSection], int | None, str]:
    """Cameras to take frames from, how many frames, and the product's name."""
    if args.pipeline is not None:
        camera = load_pipeline(args.pipeline, args.overrides).camera
        return [camera], args.frames or 200, args.product or args.pipeline.stem
    given = ("--set",) * bool(args.overrides) + ("--frames",) * (args.frames is not None)
    if given:
        raise ConfigError(f"{given[0]} belongs to --pipeline", got="--from", remedy=f"leave {given[0]} away")
    folders = [Path(os.path.realpath(folder)) for folder in args.folders]  # Path.resolve fails on links in a circle
    sections: list[CameraSection] = [FolderCamera(type="folder", path=folder) for folder in folders]
    return sections, None, args.product or folders[0].stem


def _measure_all(
    sections: list[CameraSection], limit: int | None
) -> tuple[list[tuple[str, FrameMeasures]], tuple[int, int], list[tuple[str, str]]]:
    """Names and measures of well-taken frames, their size, and what could not be used, with the reason.

    Parts that a synthetic line knows to be defective are passed over.
    """
    measured: list[tuple[str, FrameMeasures]] = []
    unusable: list[tuple[str, str]] = []
    size: tuple[int, int] | None = None
    for section in sections:
        for frame in _frames(section, None if limit is None else LOOKED_AT * limit):
            if frame.status is not FrameStatus.COMPLETE:
                unusable.append((frame.name, frame.note))
            elif not frame.truth:
                size = size or (frame.width, frame.height)
                _check_size(frame, size)
                measured.append((frame.name, measure_frame(frame)))
            if limit is not None and len(measured) >= limit:
                break
    return measured, size or (0, 0), unusable


def _check_size(frame: Frame, size: tuple[int, int]) -> None:
    if (frame.width, frame.height) != size:
        raise ConfigError(
            "pictures of one product must have one size",
            where=frame.name,
            wanted=f"{size[0]}x{size[1]} px, as the first",
            got=f"{frame.width}x{frame.height}",
            remedy="learn each size as a product of its own",
        )


@contextmanager
def _opened(section: CameraSection) -> Iterator[Iterator[Frame]]:
    """A camera's frames; the camera is closed again."""
    camera = open_camera(section)

    def frames() -> Iterator[Frame]:
        while (frame := camera.read()) is not None:
            yield frame
            camera.recycle(frame)

    try:
        yield frames()
    finally:
        camera.stop()
        camera.close()


def _frames(section: CameraSection, limit: int | None) -> Iterator[Frame]:
    """At most `limit` frames of a camera."""
    with _opened(section) as frames:
        for count, frame in enumerate(frames, 1):
            yield frame
            if count == limit:
                return


def _report_guard(args: argparse.Namespace, learnt: Learnt, used: int, unusable: list[tuple[str, str]]) -> None:
    product, notes = learnt.product, people()
    for name, why in unusable[:SHOWN]:
        notes.print(f"not used: {name}: {why}")
    if len(unusable) > SHOWN:
        notes.print(f"not used: {len(unusable) - SHOWN} more")
    if used < LEAST_FRAMES:
        notes.print(f"only {used} frames: {LEAST_FRAMES} at least show how much good frames vary", style="yellow")
    flat = [int((~structured).sum()) for structured in product.structured]
    for count, axis in zip(flat, ("across", "up or down"), strict=True):
        if count:
            notes.print(f"{count} of {len(product.detail)} references look the same when moved {axis}: no shift shows")
    section = section_of(product, "")
    if args.json:
        print_json({
            "file": str(args.out), "product": product.name, "frames": used, "unusable": len(unusable),
            "references": len(product.detail), "limits": section.limits.model_dump(),
        })  # fmt: skip
        return
    print_table(
        f"{args.out}: {product.name}, {len(product.detail)} references from {used} frames",
        ("limit", "value", "what it is"),
        [
            (key, getattr(section.limits, key), f"{info.title}: {info.description}")
            for key, info in type(section.limits).model_fields.items()
        ],
    )


def run_collect(args: argparse.Namespace) -> int:
    """Keeps varied frames of a camera as PNG files, and says in collection.json which and by what rule."""
    pipeline = load_pipeline(args.pipeline, args.overrides)
    guard = make_guard(pipeline.judge.guard)
    _make_new_folder(args.out)
    varied, refused, seen = Varied(args.keep), 0, 0
    kept: dict[int, str] = {}
    try:
        for frame in _frames(pipeline.camera, args.frames):
            seen += 1
            if frame.status is not FrameStatus.COMPLETE or guard(frame) is not None:
                refused += 1
                continue
            number = varied.offer(describe(measure_frame(frame)))
            if number is not None:
                if number in kept:
                    (args.out / kept[number]).unlink()
                kept[number] = _save(frame, args.out)
    except KeyboardInterrupt:
        people().print("stopped: what was kept so far stays")
    _report_collection(args, sorted(kept.values()), seen, refused, varied.least_distance)
    return int(ExitCode.OK)


def _make_new_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = next(folder.iterdir(), None)
    except OSError as error:
        raise ConfigError("can't make the folder", where=str(folder), got=error.strerror or str(error)) from error
    if taken is not None:
        raise ConfigError(
            "the folder holds something already", where=str(folder), wanted="a new or empty folder", got=taken.name
        )


def _save(frame: Frame, folder: Path) -> str:
    """Writes a frame as PNG, without loss but for the conversion to BGR; its file's name."""
    name = f"frame_{frame.frame_id:07d}.png"
    if not cv2.imwrite(str(folder / name), bgr_of(frame)):
        raise ConfigError("can't write the picture", where=str(folder / name), remedy="free some space")
    return name


def _report_collection(
    args: argparse.Namespace, files: list[str], seen: int, refused: int, least_distance: float
) -> None:
    pictures = [{"file": name, "sha256": hashlib.sha256((args.out / name).read_bytes()).hexdigest()} for name in files]
    summary = {
        "pipeline": args.pipeline.name, "overrides": args.overrides, "seen": seen, "refused": refused,
        "kept": len(files), "least_distance": round(least_distance, 3) if len(files) > 1 else None,
        "rule": "edge_app.variety: frames far apart in light, contrast, noise, edges and coarse content",
    }  # fmt: skip
    document = {**summary, "pictures": pictures}
    text = json.dumps(document, indent=1) + "\n"
    write_whole(args.out / "collection.json", text, "what was collected", ConfigError)
    if args.json:
        print_json(document)
    else:
        print_table(f"{args.out}", ("", ""), [(key, value) for key, value in summary.items() if key != "rule"])
