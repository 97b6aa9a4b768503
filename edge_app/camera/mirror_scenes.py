"""What a mirror's camera would see, drawn: pictures of garments that come, move, stand still and go, over a still room.

Everything follows from the list of pictures and a seed, so what is shown at any moment is known (`Scenes.moment`).
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from edge_app.camera.picture import ENDINGS, BrokenPicture, load_upright
from edge_app.errors import CameraError
from edge_app.listing import read_paths

Image = npt.NDArray[np.uint8]

COME_S, GO_S = 0.6, 0.6
NOISE_SIGMA, NOISE_FIELDS = 2.0, 7
WHOLE = 0.9
"""Share of a picture that must be in the frame before its label counts as shown."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One picture's stay, in seconds: it comes, moves about, stands still, goes; then nobody is there."""

    file: Path
    label: str
    move_s: float
    still_s: float
    empty_s: float
    size: float
    """Height as a share of the frame's."""
    swing: float
    """How far it moves and zooms."""
    from_left: bool

    @property
    def present_s(self) -> float:
        """While any of it is in the frame."""
        return COME_S + self.move_s + self.still_s + GO_S


@dataclass(frozen=True, slots=True)
class Moment:
    """What a frame shows. `label`: of the garment that is whole in the frame; `empty`: no part of any is in it."""

    visit: int
    label: str | None
    empty: bool


def listed_pictures(path: Path) -> list[tuple[Path, str]]:
    """Pictures and their labels: of a .txt list of paths LABEL/FILE (relative to it), or of a folder of such folders.

    Raises:
        CameraError: there are none, or the list can't be read.
    """
    if path.suffix == ".txt":
        files = read_paths(path, path.parent, CameraError)
    else:
        files = sorted(file for file in path.glob("*/*") if file.suffix.lower() in ENDINGS)
    if not files:
        raise CameraError("there are no pictures", where=str(path), wanted="a .txt list, or a folder LABEL/PICTURE")
    return [(file, file.parent.name) for file in files]


def drawn_visits(pictures: Sequence[tuple[Path, str]], seed: int, count: int | None) -> list[Visit]:
    """A script: each picture at most once, in an order drawn by the seed, labels taken in turn so that none is rare."""
    rng = np.random.default_rng(seed)
    by_label: dict[str, list[Path]] = {}
    for index in rng.permutation(len(pictures)):
        file, label = pictures[int(index)]
        by_label.setdefault(label, []).append(file)
    turns = max(len(files) for files in by_label.values())
    order = [(files[turn], label) for turn in range(turns) for label, files in by_label.items() if turn < len(files)]
    return [
        Visit(
            file, label, rng.uniform(1.5, 3.0), rng.uniform(1.5, 3.0),
            rng.uniform(1.5, 3.5) if rng.random() < 0.75 else 0.0,
            rng.uniform(0.75, 0.95), rng.uniform(0.02, 0.08), bool(rng.random() < 0.5),
        )
        for file, label in order[:count]
    ]  # fmt: skip


class Scenes:
    """Frames of a script, BGR uint8 [height, width, 3], drawn one by one."""

    def __init__(self, visits: Sequence[Visit], seed: int, width: int, height: int, rate_fps: float) -> None:
        """It begins with two seconds of nobody."""
        self.visits, self._width, self._height, self._rate = visits, width, height, rate_fps
        self._starts = list(accumulate((v.present_s + v.empty_s for v in visits), initial=2.0))
        self._room = draw_room(width, height, np.random.default_rng([seed, 1]))
        rng = np.random.default_rng([seed, 2])
        self._noise = [rng.normal(0, NOISE_SIGMA, (height, width, 3)).astype(np.int8) for _ in range(NOISE_FIELDS)]
        self._picture: tuple[int, Image] | None = None

    @property
    def frames(self) -> int:
        """Of the whole script."""
        return int(self._starts[-1] * self._rate)

    def moment(self, frame: int) -> Moment:
        """The truth of a frame, counted from 0."""
        visit, since_s = self._visit_at(frame)
        box = None if visit < 0 else self._box(visit, since_s)
        if box is None:
            return Moment(visit, None, empty=True)
        shown = self._shown_share(box)
        return Moment(visit, self.visits[visit].label if shown >= WHOLE else None, empty=shown == 0)

    def draw(self, frame: int) -> Image:
        """A frame, counted from 0. Raises CameraError if its picture can't be read."""
        image = self._room.copy()
        visit, since_s = self._visit_at(frame)
        box = None if visit < 0 else self._box(visit, since_s)
        if box is not None:
            _paste(image, self._picture_of(visit), box)
        noisy = image.astype(np.int16) + self._noise[frame % NOISE_FIELDS]
        drawn: Image = np.clip(noisy, 0, 255).astype(np.uint8)
        return drawn

    def _visit_at(self, frame: int) -> tuple[int, float]:
        second = frame / self._rate
        visit = bisect.bisect_right(self._starts, second) - 1
        if visit < 0 or visit >= len(self.visits):
            return -1, second
        return visit, second - self._starts[visit]

    def _box(self, index: int, since_s: float) -> tuple[float, float, float, float] | None:
        """Centre x, y, width, height of the picture in px; None while nobody is there."""
        visit = self.visits[index]
        if since_s >= visit.present_s:
            return None
        moved_s = min(max(since_s - COME_S, 0.0), visit.move_s)  # it stands still where its movement ends
        phase = 2 * np.pi * moved_s / visit.move_s
        height = self._height * visit.size * (1 + visit.swing * np.sin(phase))
        rows, columns = self._picture_of(index).shape[:2]
        width = height * columns / rows
        x = self._width * (0.5 + visit.swing * np.sin(1.5 * phase))
        outside = (self._width + width) / 2
        coming = max(1 - since_s / COME_S, 0.0)
        going = max(1 - (visit.present_s - since_s) / GO_S, 0.0)
        x += (going - coming) * outside * (1 if visit.from_left else -1)
        return x, self._height * (0.5 + visit.swing * np.sin(phase) / 2), width, height

    def _shown_share(self, box: tuple[float, float, float, float]) -> float:
        x, y, width, height = box
        across = min(x + width / 2, self._width) - max(x - width / 2, 0)
        down = min(y + height / 2, self._height) - max(y - height / 2, 0)
        return float(max(across, 0.0) * max(down, 0.0) / (min(width, self._width) * min(height, self._height)))

    def _picture_of(self, visit: int) -> Image:
        if self._picture is None or self._picture[0] != visit:
            file = self.visits[visit].file
            try:
                self._picture = visit, load_upright(file)
            except BrokenPicture as broken:
                raise CameraError(
                    "can't show a picture", where=str(file), wanted="a whole, upright JPEG or PNG", got=str(broken)
                ) from broken
        return self._picture[1]


def _paste(image: Image, picture: Image, box: tuple[float, float, float, float]) -> None:
    """Puts a picture into the frame, to a fraction of a pixel, edges smooth."""
    x, y, width, height = box
    scale_x, scale_y = width / picture.shape[1], height / picture.shape[0]
    place = np.array([[scale_x, 0, x - width / 2], [0, scale_y, y - height / 2]])
    size = image.shape[1], image.shape[0]
    cv2.warpAffine(picture, place, size, dst=image, flags=cv2.INTER_AREA, borderMode=cv2.BORDER_TRANSPARENT)


def draw_room(width: int, height: int, rng: np.random.Generator) -> Image:
    """A wall with a lamp's light on it, a floor, a door and a shelf."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    light = 1.1 - 0.35 * np.hypot(x - rng.uniform(0.3, 0.7), y - 0.2)
    wall = rng.uniform(150, 200, 3)
    room = np.where(y[..., None] < 0.82, wall, wall * 0.55) * light[..., None]
    image: Image = np.clip(room, 0, 255).astype(np.uint8)
    for left, top, right, bottom in ((0.05, 0.3, 0.25, 0.82), (0.7, 0.45, 0.95, 0.5), (0.72, 0.34, 0.8, 0.45)):
        colour = tuple(int(value) for value in rng.uniform(50, 160, 3))
        corners = (int(left * width), int(top * height)), (int(right * width), int(bottom * height))
        cv2.rectangle(image, *corners, colour, -1)
    return np.asarray(cv2.GaussianBlur(image, (0, 0), 1.2), np.uint8)
