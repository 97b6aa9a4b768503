"""The drawn mirror: what it says it shows is what it shows."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import colours
import cv2
import numpy as np
import pytest

from edge_app.camera import make_camera
from edge_app.camera.mirror import MirrorSource
from edge_app.camera.mirror_scenes import Scenes, drawn_visits, listed_pictures
from edge_app.config.camera import MirrorCamera
from edge_app.errors import CameraError

WIDTH, HEIGHT, RATE = 90, 120, 10.0


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return colours.write_pictures(tmp_path / "pictures", 3)


def scenes(pictures: Path, seed: int = 1, count: int | None = 6) -> Scenes:
    return Scenes(drawn_visits(listed_pictures(pictures), seed, count), seed, WIDTH, HEIGHT, RATE)


def test_a_list_and_a_folder_give_the_same_pictures(pictures: Path) -> None:
    assert sorted(listed_pictures(pictures)) == listed_pictures(pictures.parent)
    assert [label for _, label in listed_pictures(pictures)] == [label for label in colours.LABELS for _ in range(3)]


def test_every_picture_comes_once_and_labels_take_turns(pictures: Path) -> None:
    visits = drawn_visits(listed_pictures(pictures), 3, None)
    assert len({visit.file for visit in visits}) == len(visits) == 9
    for turn in range(3):
        assert {visit.label for visit in visits[3 * turn : 3 * turn + 3]} == set(colours.LABELS)


def test_what_a_moment_says_is_in_the_picture(pictures: Path) -> None:
    drawn = scenes(pictures)
    room = drawn.draw(0).astype(int)
    seen = set()
    for frame in range(0, drawn.frames, 3):
        moment = drawn.moment(frame)
        image = drawn.draw(frame).astype(int)
        changed = np.abs(image - room).max(axis=2) > 25
        if moment.empty:
            assert changed.mean() < 0.01
        elif moment.label is not None:
            seen.add(moment.label)
            assert changed.mean() > 0.3
            middle = image[HEIGHT // 3 : -HEIGHT // 3, WIDTH // 3 : -WIDTH // 3].mean(axis=(0, 1))
            assert int(middle.argmax()) == 2 - colours.LABELS.index(moment.label)
    assert seen == set(colours.LABELS)


def test_a_script_has_stretches_of_nobody_of_movement_and_of_stillness(pictures: Path) -> None:
    drawn = scenes(pictures, count=9)
    moments = [drawn.moment(k) for k in range(drawn.frames)]
    assert moments[0].empty
    assert 0.1 < np.mean([m.empty for m in moments]) < 0.5
    still = [
        np.abs(drawn.draw(k).astype(int) - drawn.draw(k - 7)).max() < 20
        for k in range(7, drawn.frames, 5)
        if moments[k].label is not None and moments[k - 7].visit == moments[k].visit
    ]
    assert 0.1 < np.mean(still) < 0.9


def test_the_seed_decides(pictures: Path) -> None:
    one, same, other = (scenes(pictures, seed=seed) for seed in (1, 1, 2))
    assert (one.draw(40) == same.draw(40)).all()
    assert one.visits == same.visits
    assert one.visits != other.visits


def test_the_camera_gives_the_script_with_the_times_it_would_have(pictures: Path) -> None:
    section = MirrorCamera(type="mirror", path=pictures, visits=1, width=WIDTH, height=HEIGHT, rate_fps=RATE)
    source = MirrorSource(section, paced=False)
    source.open()
    frames = list(iter(source.read, None))
    assert len(frames) == source.scenes.frames
    times = [frame.t_capture_mono_us for frame in frames]
    assert {b - a for a, b in pairwise(times)} == {100_000}
    assert (frames[30].pixels == source.scenes.draw(30)).all()
    assert isinstance(make_camera(section), MirrorSource)


def test_no_pictures_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CameraError, match="no pictures"):
        listed_pictures(tmp_path)
    with pytest.raises(CameraError, match="can't read the list of pictures"):
        listed_pictures(tmp_path / "absent.txt")
    (tmp_path / "list.txt").write_text("red/absent.png\n")
    drawn = scenes(tmp_path / "list.txt")
    with pytest.raises(CameraError, match="can't show a picture"):
        drawn.draw(drawn.frames // 2)


def test_a_picture_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    """OpenCV gives it with its lower part grey, and the mirror would be measured on that."""
    file = tmp_path / "red" / "a.jpg"
    file.parent.mkdir()
    assert cv2.imwrite(str(file), np.random.default_rng(1).integers(0, 255, (60, 40, 3), dtype=np.uint8))
    file.write_bytes(file.read_bytes()[:-200])
    drawn = scenes(tmp_path)
    with pytest.raises(CameraError, match="can't show a picture") as caught:
        drawn.draw(drawn.frames // 2)
    assert "no end marker" in str(caught.value.got)
