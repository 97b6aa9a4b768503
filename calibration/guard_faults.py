"""How many faults of a station the frame guard catches, and how many good frames it refuses.

    python calibration/guard_faults.py                                    the synthetic line of pipelines/defect.yaml
    python calibration/guard_faults.py --good test.txt --good templates --foreign steel_pictures --parts 1000

Good pictures are also put through every fault. Prints a table, or with --json one JSON document.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from edge_app.camera import open_camera, pcb
from edge_app.commands.arguments import positive
from edge_app.commands.report import add_json_argument, print_json, print_table
from edge_app.config.camera import FolderCamera
from edge_app.frame import Frame, FrameStatus, PixelFormat
from edge_app.frame_guard import make_guard

Image = npt.NDArray[np.uint8]
Change = Callable[[Image], Image]
BESIDE = (640, 640)
"""Foreign pictures are also shown at this size, which the guard knows."""


def moved(dx: int, dy: int, border: int, fill: int = 0) -> Change:
    """The picture moved by whole px; what it uncovers is filled, or repeats the edge."""
    matrix = np.array([[1, 0, dx], [0, 1, dy]], np.float32)

    def change(image: Image) -> Image:
        size = (image.shape[1], image.shape[0])
        result = cv2.warpAffine(image, matrix, size, borderMode=border, borderValue=(fill, fill, fill))
        return np.asarray(result, np.uint8)

    return change


def noise_of_a_covered_lens(image: Image) -> Image:
    """Black level 6 and a sensor's noise."""
    rng = np.random.default_rng(image.size)
    return np.clip(rng.normal(6, 3, image.shape), 0, 255).astype(np.uint8)


ON_PICTURES: dict[str, Change] = {
    "black": np.zeros_like,
    "white": lambda image: np.full_like(image, 255),
    "grey": lambda image: np.full_like(image, 128),
    "lens cap": noise_of_a_covered_lens,
    "lamp off": lambda image: (image * 0.08 + 6).astype(np.uint8),
    "lamp at half": lambda image: (image * 0.5).astype(np.uint8),
    "defocus, sigma 3": lambda image: np.asarray(cv2.GaussianBlur(image, (0, 0), 3), np.uint8),
    "defocus, sigma 6": lambda image: np.asarray(cv2.GaussianBlur(image, (0, 0), 6), np.uint8),
    "rolled 20 px right": lambda image: np.roll(image, 20, 1),
    "rolled 20 px left": lambda image: np.roll(image, -20, 1),
    "rolled 20 px down": lambda image: np.roll(image, 20, 0),
    "rolled 20 px up": lambda image: np.roll(image, -20, 0),
    "moved 20 px right, black": moved(20, 0, cv2.BORDER_CONSTANT),
    "moved 20 px down, white": moved(0, 20, cv2.BORDER_CONSTANT, 255),
    "moved 20 px left, edge": moved(-20, 0, cv2.BORDER_REPLICATE),
    "moved 20 px up and right, edge": moved(20, -20, cv2.BORDER_REPLICATE),
}
ON_THE_LINE: dict[str, Callable[[pcb.Conditions], pcb.Conditions]] = {
    "lens cap": pcb.lens_capped,
    "lamp off": pcb.lamp_off,
    "defocus, sigma 3": lambda seen: pcb.defocused(seen, 3),
    "defocus, sigma 6": lambda seen: pcb.defocused(seen, 6),
    "part 20 px right": lambda seen: pcb.shifted(seen, 20, 0),
    "part 20 px left": lambda seen: pcb.shifted(seen, -20, 0),
    "part 20 px down": lambda seen: pcb.shifted(seen, 0, 20),
    "part 20 px up": lambda seen: pcb.shifted(seen, 0, -20),
    "empty conveyor": pcb.without_part,
}


def frame_of(image: Image) -> Frame:
    """A frame as a camera would give it."""
    image = np.ascontiguousarray(image)
    return Frame(1, 1, 0, 0, FrameStatus.COMPLETE, PixelFormat.BGR8, image.shape[1], image.shape[0], image)


def pictures(path: Path) -> Iterator[tuple[str, Image]]:
    """Names and pictures of a folder or a list."""
    camera = open_camera(FolderCamera(type="folder", path=path.resolve()))
    while (frame := camera.read()) is not None:
        if frame.pixels is None:
            raise SystemExit(frame.note)
        yield frame.name, frame.pixels


class Table:
    """Counts of what the guard said, by kind of frame."""

    def __init__(self, guard_file: Path) -> None:
        self._guard = make_guard(guard_file)
        self.rows: list[dict[str, object]] = []

    def add(self, what: str, frames: str, images: Iterable[tuple[str, Image]]) -> None:
        """A row: `what` is wrong with these frames ("" for good ones)."""
        said: Counter[str] = Counter()
        passed = []
        for name, image in images:
            judgement = self._guard(frame_of(image))
            said[judgement.reason if judgement is not None else "accepted"] += 1
            if judgement is None:
                passed.append(name)
        self.rows.append({
            "frames": frames, "fault": what, "count": said.total(), "accepted": said["accepted"],
            "BAD_IMAGE": said["BAD_IMAGE"], "NO_PART": said["NO_PART"], "accepted_names": passed if what else [],
        })  # fmt: skip


def line_rows(table: Table, product: int, parts: int, faults: int) -> None:
    """The synthetic line: good and defective parts, and every fault of the station."""
    table.add("", "synthetic line", (
        (str(part), pcb.draw(product, pcb.examining_seed(part)).image) for part in range(parts)
    ))  # fmt: skip
    seeds = [pcb.examining_seed(part) for part in range(parts, parts + faults)]
    for what, change in ON_THE_LINE.items():
        table.add(what, "synthetic line", (
            (str(seed), pcb.draw(product, seed, conditions=change(pcb.natural_conditions(product, seed))).image)
            for seed in seeds
        ))  # fmt: skip
    others = [product + 2 * step for step in range(1, faults + 1)]
    table.add("another product", "synthetic line", (
        (str(other), pcb.draw(other, pcb.examining_seed(other)).image) for other in others
    ))  # fmt: skip
    for what, on_picture in ON_PICTURES.items():
        table.add(what, "synthetic line, changed", (
            (str(seed), on_picture(pcb.draw(product, seed).image)) for seed in seeds
        ))  # fmt: skip


def main() -> None:
    """See the head of this file."""
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guard", type=Path, default=here.parent / "pipelines" / "defect.guard.json")
    parser.add_argument("--product", type=int, default=pcb.DEFAULT_PRODUCT, help="of the synthetic line")
    parser.add_argument("--parts", type=positive, default=200, help="of the synthetic line that must be accepted")
    parser.add_argument("--faults", type=positive, default=40, help="frames of the synthetic line for each fault")
    parser.add_argument("--good", type=Path, action="append", default=[], help="folder or list; may be repeated")
    parser.add_argument("--foreign", type=Path, action="append", default=[], help="folder or list of other things")
    add_json_argument(parser)
    args = parser.parse_args()
    table = Table(args.guard)
    line_rows(table, args.product, args.parts, args.faults)
    for path in args.good:
        table.add("", path.name, pictures(path))
        for what, change in ON_PICTURES.items():
            table.add(what, path.name, ((name, change(image)) for name, image in pictures(path)))
    for path in args.foreign:
        table.add("foreign", path.name, pictures(path))
        table.add("foreign, enlarged", path.name, (
            (name, np.asarray(cv2.resize(image, BESIDE, interpolation=cv2.INTER_CUBIC), np.uint8))
            for name, image in pictures(path)
        ))  # fmt: skip
    if args.json:
        print_json({"guard": str(args.guard), "rows": table.rows})
        return
    columns = ("frames", "fault", "count", "accepted", "BAD_IMAGE", "NO_PART")
    print_table("What the guard says", columns, [[row[column] for column in columns] for row in table.rows])


if __name__ == "__main__":
    main()
