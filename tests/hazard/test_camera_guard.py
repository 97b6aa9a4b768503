"""The shipped guard of pipelines/defect.yaml: what it must accept, and every fault of the station that it must not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from edge_app.camera import open_camera
from edge_app.config.camera import Camera as CameraSection
from edge_app.config.camera import FolderCamera, SyntheticCamera
from edge_app.config.load import load_pipeline
from edge_app.frame import Frame
from edge_app.frame_guard import make_guard
from edge_app.verdict import Judgement, Reason

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "calibration"))
from guard_faults import ON_PICTURES, frame_of  # noqa: E402

Guard = Callable[[Frame], Judgement | None]


@pytest.fixture(scope="module")
def guard() -> Guard:
    return make_guard(load_pipeline(ROOT / "pipelines" / "defect.yaml").judge.guard)


def frames(section: CameraSection) -> list[Frame]:
    camera = open_camera(section)
    try:
        return list(iter(camera.read, None))
    finally:
        camera.close()


def test_the_shipped_line_is_accepted(guard: Guard) -> None:
    camera = load_pipeline(ROOT / "pipelines" / "defect.yaml", ["camera.frames=25", "camera.seed=7000"]).camera
    parts = frames(camera)
    assert any(part.truth for part in parts)
    assert [guard(part) for part in parts] == [None] * 25


@pytest.mark.parametrize(
    ("condition", "reasons"),
    [
        ("lens_cap", {Reason.BAD_IMAGE}),
        ("lamp_off", {Reason.BAD_IMAGE}),
        ("defocus", {Reason.BAD_IMAGE}),
        ("shifted", {Reason.BAD_IMAGE}),
        ("empty", {Reason.NO_PART, Reason.BAD_IMAGE}),
        ("other_product", {Reason.NO_PART}),
    ],
)
@pytest.mark.parametrize("pixel_format", ["BGR8", "NV12", "BayerRG8"])
def test_a_fault_of_the_station_is_never_accepted(
    condition: str, reasons: set[Reason], pixel_format: str, guard: Guard
) -> None:
    keys = {"type": "synthetic", "seed": 8000, "frames": 4, "condition": condition, "pixel_format": pixel_format}
    said = [guard(frame) for frame in frames(SyntheticCamera.model_validate(keys, strict=False))]
    assert all(judgement is not None and judgement.reason in reasons and judgement.detail for judgement in said)
    assert len(said) == 4


@pytest.mark.parametrize("pixel_format", ["RGB8", "GRAY8", "NV12", "YUYV", "BayerGB8"])
def test_good_parts_are_accepted_in_every_pixel_format(pixel_format: str, guard: Guard) -> None:
    keys = {"type": "synthetic", "seed": 9000, "frames": 3, "pixel_format": pixel_format, "row_align_bytes": 256}
    parts = frames(SyntheticCamera.model_validate(keys, strict=False))
    assert [guard(part) for part in parts] == [None] * 3


@pytest.fixture(scope="module")
def boards(data_folder: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Test pictures of DeepPCB and the defect-free template of each."""
    root = data_folder / "deeppcb"
    stems = [Path(line).stem for line in (root / "test.txt").read_text().split()]
    return [
        (cv2.imread(str(root / "images" / f"{stem}.jpg")), cv2.imread(str(root / "templates" / f"{stem}.png")))
        for stem in stems
    ]


def test_real_boards_and_their_templates_are_accepted(
    boards: list[tuple[np.ndarray, np.ndarray]], guard: Guard
) -> None:
    assert len(boards) == 139
    refused = [(index, said) for index, pair in enumerate(boards) for p in pair if (said := guard(frame_of(p)))]
    assert refused == []


@pytest.mark.parametrize("fault", ON_PICTURES)
def test_faults_on_real_boards(fault: str, boards: list[tuple[np.ndarray, np.ndarray]], guard: Guard) -> None:
    """A shift along stripes, or onto the place of another crop of the same board, can't be seen: up to 1 in 20."""
    pictures = [picture for picture, _ in boards[::4]]
    accepted = sum(guard(frame_of(ON_PICTURES[fault](picture))) is None for picture in pictures)
    moves = "rolled" in fault or "moved" in fault
    assert accepted <= (len(pictures) // 20 + 1 if moves else 0)


def test_steel_is_no_board(data_folder: Path, guard: Guard) -> None:
    for frame in frames(FolderCamera(type="folder", path=data_folder / "neu-det" / "images"))[::20]:
        assert frame.pixels is not None
        enlarged = cv2.resize(frame.pixels, (640, 640), interpolation=cv2.INTER_CUBIC)
        for picture in (frame.pixels, np.asarray(enlarged, np.uint8)):
            assert guard(frame_of(picture)) is not None
