"""Pictures behind the line's back: which, how found again, and that they are the first thing to go."""

from __future__ import annotations

import hashlib
import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from wire_samples import Line as Sealing
from wire_samples import config, outlet, sealed, until, until_subscribed

from edge_app.client import CommandRefused, Line
from edge_app.config.results import Results
from edge_app.frame import Frame, FrameStatus, PixelFormat
from edge_app.results import Outlet, evidence
from edge_app.verdict import Reason, Sealed


def picture(seed: int, size: int = 64) -> np.ndarray[Any, Any]:
    """Smooth blobs: what JPEG keeps."""
    noise = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return cv2.resize(noise, (size, size), interpolation=cv2.INTER_CUBIC)


def frame_of(sealed: Sealed, pixels: np.ndarray[Any, Any] | None, kind: PixelFormat = PixelFormat.BGR8) -> Frame:
    height, width = (0, 0) if pixels is None else pixels.shape[:2]
    status = FrameStatus.COMPLETE if pixels is not None else FrameStatus.LOST
    return Frame(sealed.frame_id, sealed.trigger_id, 0, 0, status, kind, width, height, pixels)


class Node:
    def __init__(self, results: Results) -> None:
        self.line = Sealing()
        self.outlet: Outlet = outlet(self.line, results=results)
        self.outlet.start()
        self.client = Line(str(self.outlet.publish_endpoint), self.outlet.commands_endpoint)
        until_subscribed(self.outlet, self.client)
        self.given_back: list[int] = []

    def inspect(
        self,
        reason: Reason,
        pixels: np.ndarray[Any, Any] | None = None,
        give_back: Callable[[Frame], None] | None = None,
    ) -> dict[str, Any]:
        """Seals, offers the frame, and returns the result as a client got it."""
        sealed = self.line.seal(reason)
        self.outlet.result(sealed)
        frame = frame_of(sealed, picture(sealed.seq) if pixels is None else pixels)
        if not self.outlet.evidence(frame, give_back or (lambda f: self.given_back.append(f.frame_id))):
            self.given_back.append(frame.frame_id)
        result = self.client.next(40)
        assert result is not None
        return dict(result.data)

    def disk(self) -> dict[str, Any]:
        return dict(self.client.command("status")["disk"])

    def close(self) -> None:
        self.client.close()
        self.outlet.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "evidence"


def settings(folder: Path, **changes: Any) -> Results:
    return config(evidence={"path": folder, "free_mib": 0, "pass_every": 10, **changes})


@pytest.fixture
def node(folder: Path) -> Iterator[Node]:
    opened = Node(settings(folder))
    yield opened
    opened.close()


def test_a_failed_part_has_a_picture_that_is_found_by_result_and_by_content(node: Node) -> None:
    result = node.inspect(Reason.DEFECT)
    assert result["image"] == {"id": f"{result['epoch']}/1", "state": "pending"}
    until(lambda: node.given_back == [5001])
    jpeg = node.client.image(result["image"]["id"])
    shown = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert np.abs(shown.astype(int) - picture(1)).mean() < 6
    told = node.client.command("image", id=result["image"]["id"])
    assert told["id"] == "sha256:" + hashlib.sha256(jpeg).hexdigest()
    assert (told["state"], told["bytes"], told["seq"]) == ("stored", len(jpeg), 1)
    assert node.client.image(told["id"]) == jpeg


def test_pictures_are_of_non_pass_and_a_sample_of_pass(node: Node) -> None:
    kept = {}
    for seq, reason in enumerate([Reason.OK] * 9 + [Reason.OK, Reason.MARGINAL, Reason.LATE, Reason.BAD_IMAGE], 1):
        kept[seq] = node.inspect(reason)["image"] is not None
    assert [seq for seq, has in kept.items() if has] == [10, 11, 12, 13]
    assert node.inspect(Reason.MISSED_TRIGGER)["image"] is None
    until(lambda: len(node.given_back) == 14)


def test_a_result_that_was_sealed_before_its_picture_has_none(folder: Path) -> None:
    kept = evidence.Evidence(settings(folder).evidence, "ab12", lambda *_: None)
    for _ in range(2):  # software triggers that were late, or dropped, before the camera gave a frame for them
        assert kept.wants(sealed(1, Reason.LATE, frame_id=0)) is None
    assert (kept._pending, kept._expected, kept.dropped) == (set(), {}, 0)
    assert kept.wants(sealed(2, Reason.LATE)) == {"id": "ab12/2", "state": "pending"}


def test_equal_pictures_are_one_file(node: Node, folder: Path) -> None:
    ids = [node.inspect(Reason.DEFECT, picture(7))["image"]["id"] for _ in range(5)]
    until(lambda: len(node.given_back) == 5)
    assert len(list(folder.glob("*/*.jpg"))) == 1
    assert len({node.client.image(image) for image in ids}) == 1


def test_the_quota_deletes_the_oldest(folder: Path) -> None:
    node = Node(settings(folder, keep_mib=1, quality=100))
    random = np.random.default_rng(1)
    ids = []
    for _ in range(20):
        noise = random.integers(0, 256, (300, 300, 3), dtype=np.uint8)
        ids.append(node.inspect(Reason.DEFECT, noise)["image"]["id"])
    until(lambda: len(node.given_back) == 20)
    files = list(folder.glob("*/*.jpg"))
    assert sum(file.stat().st_size for file in files) <= 1024 * 1024
    assert node.disk()["evidence_bytes"] == sum(file.stat().st_size for file in files)
    assert node.client.image(ids[-1])
    with pytest.raises(CommandRefused, match="no such picture") as caught:
        node.client.image(ids[0])
    assert caught.value.code == "NOT_FOUND"
    node.close()


def test_a_disk_without_room_drops_pictures_not_results(folder: Path) -> None:
    node = Node(settings(folder, free_mib=10**9))
    results = [node.inspect(Reason.DEFECT) for _ in range(3)]
    assert [r["seq"] for r in results] == [1, 2, 3]
    until(lambda: node.disk()["evidence_dropped"] == 3)
    assert [a["alarm"] for a in node.client.command("status")["alarms"]] == ["EVIDENCE_FAILED"]
    assert sorted(node.given_back) == [5001, 5002, 5003]
    with pytest.raises(CommandRefused):
        node.client.image(results[0]["image"]["id"])
    node.close()


def test_a_full_queue_says_dropped_in_the_result(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    real = evidence.to_jpeg
    monkeypatch.setattr(evidence, "to_jpeg", lambda frame, quality: (go_on.wait(60), real(frame, quality))[1])
    node = Node(settings(folder, queue_mib=1))
    large = np.zeros((600, 600, 3), np.uint8)  # more than 1 MiB
    states = [node.inspect(Reason.DEFECT, large)["image"]["state"] for _ in range(4)]
    assert states == ["pending", "dropped", "dropped", "dropped"]
    go_on.set()
    until(lambda: len(node.given_back) == 4)
    assert node.disk()["evidence_dropped"] == states.count("dropped")
    node.close()


def test_a_camera_that_can_not_take_its_frame_back_ends_no_pictures(node: Node) -> None:
    def raising(_frame: Frame) -> None:
        raise KeyError("a bug")

    first = node.inspect(Reason.DEFECT, give_back=raising)
    until(lambda: "EVIDENCE_FAILED" in [a["alarm"] for a in node.client.command("status")["alarms"]])
    assert node.client.image(first["image"]["id"])

    def is_kept() -> bool:
        image = node.inspect(Reason.DEFECT)["image"]["id"]
        until(lambda: 5000 + int(image.rpartition("/")[2]) in node.given_back)
        try:
            return len(node.client.image(image)) > 0
        except CommandRefused:
            return False  # pictures are dropped for a moment after a failure

    until(is_kept)
    assert node.client.command("status")["alarms"] == []


def test_without_its_thread_no_picture_is_promised(node: Node) -> None:
    """Results said that one was pending, for ever, and frames were not given back."""

    class NoMemory(queue.SimpleQueue):  # type: ignore[type-arg]
        def get(self, block: bool = True, timeout: float | None = None) -> object:
            raise MemoryError

    evidence_of_node = node.outlet._evidence
    assert evidence_of_node is not None
    evidence_of_node._queue = NoMemory()  # from its next turn on
    until(lambda: [a["alarm"] for a in node.client.command("status")["alarms"]] == ["EVIDENCE_FAILED"])
    assert node.inspect(Reason.DEFECT)["image"] == {"id": None, "state": "dropped"}
    assert len(node.given_back) == 1


def test_a_damaged_file_is_not_handed_out(node: Node, folder: Path) -> None:
    image = node.inspect(Reason.DEFECT)["image"]["id"]
    until(lambda: node.given_back == [5001])
    (file,) = folder.glob("*/*.jpg")
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(CommandRefused, match="damaged"):
        node.client.image(image)


@pytest.mark.parametrize("bad", ["../../etc/passwd", "sha256:../../etc/passwd", "sha256:" + "g" * 64, "x/1", "ab/0"])
def test_an_id_that_is_none_reads_no_file(node: Node, bad: str) -> None:
    with pytest.raises(CommandRefused, match="id: wanted") as caught:
        node.client.image(bad)
    assert caught.value.code == "BAD_REQUEST"


def test_pictures_outlive_a_restart(node: Node, folder: Path) -> None:
    image = node.inspect(Reason.DEFECT)["image"]["id"]
    until(lambda: node.given_back == [5001])
    jpeg = node.client.image(image)
    node.outlet.close()
    (folder / "ab").mkdir(exist_ok=True)
    (folder / "ab" / "torn.part").write_bytes(b"half a picture")
    second = Node(settings(folder))
    assert second.client.image(image) == jpeg
    second.inspect(Reason.DEFECT)
    until(lambda: second.given_back == [5001])
    assert list(folder.glob("*/*.part")) == []
    second.close()


def found(node: Node, image: str) -> bytes | None:
    try:
        return node.client.image(image)
    except CommandRefused:
        return None


@pytest.mark.parametrize("how", ["index deleted", "index moved", "index damaged", "folder deleted"])
def test_an_index_that_is_lost_is_begun_again_with_the_pictures_that_are_there(folder: Path, how: str) -> None:
    """SQLite would go on writing to the old one: pictures that nobody finds, and that no quota counts."""
    node = Node(settings(folder))
    image = node.inspect(Reason.DEFECT)["image"]["id"]
    until(lambda: node.given_back == [5001])
    first = node.client.image(image)
    content = f"sha256:{hashlib.sha256(first).hexdigest()}"
    if how == "index damaged":
        node.close()
        (folder / "index.db").write_bytes(b"no database" * 1000)
        node = Node(settings(folder))
    elif how == "folder deleted":
        shutil.rmtree(folder)
    elif how == "index moved":
        (folder / "index.db").rename(folder / "moved.db")
    else:
        for file in folder.glob("index.db*"):
            file.unlink()
    until(lambda: found(node, node.inspect(Reason.DEFECT)["image"]["id"]) is not None)
    assert found(node, content) == (None if how == "folder deleted" else first)
    until(lambda: node.disk()["evidence_bytes"] == sum(file.stat().st_size for file in folder.glob("*/*.jpg")))
    node.close()


def test_pictures_that_no_index_knows_go_by_their_age(folder: Path) -> None:
    """They came into the index as the folder gave them, in any order: the newest might go first."""
    for number in range(30):
        planted = number.to_bytes() * 50_000
        name = hashlib.sha256(planted).hexdigest()
        (folder / name[:2]).mkdir(parents=True, exist_ok=True)
        (folder / name[:2] / f"{name}.jpg").write_bytes(planted)
        os.utime(folder / name[:2] / f"{name}.jpg", (number, number))
    node = Node(settings(folder, keep_mib=1))
    node.inspect(Reason.DEFECT)
    until(lambda: node.given_back == [5001])
    node.close()
    left = sorted(int(file.stat().st_mtime) for file in folder.glob("*/*.jpg"))[:-1]
    assert 0 < len(left) < 30
    assert left == list(range(30 - len(left), 30))


COLOUR = (30, 200, 90)  # B, G, R


def in_format(kind: PixelFormat, bgr: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A picture of one colour, as a camera of this format would give it."""
    if kind in (PixelFormat.BGR8, PixelFormat.RGB8):
        return bgr if kind is PixelFormat.BGR8 else bgr[..., ::-1].copy()
    if kind is PixelFormat.GRAY8:
        return bgr[..., 1].copy()
    height, width = bgr.shape[:2]
    if kind in (PixelFormat.NV12, PixelFormat.YUYV):
        planar = cv2.cvtColor(bgr, cv2.COLOR_BGR2YUV_I420)
        u, v = (planar[height:].reshape(2, height // 2, width // 2)[i] for i in (0, 1))
        if kind is PixelFormat.NV12:
            return np.vstack([planar[:height], np.stack([u, v], axis=-1).reshape(height // 2, width)])
        packed = np.empty((height, width * 2), np.uint8)
        packed[:, 0::2] = planar[:height]
        packed[:, 1::4], packed[:, 3::4] = u.repeat(2, axis=0), v.repeat(2, axis=0)
        return packed
    order = {"RG": "RGGB", "GB": "GBRG", "GR": "GRBG", "BG": "BGGR"}[kind.value[5:7]]
    bayer = np.empty((height, width), np.uint8)
    for place, colour in enumerate(order):
        bayer[place // 2 :: 2, place % 2 :: 2] = bgr[0, 0, "BGR".index(colour)]
    return bayer


@pytest.mark.parametrize("kind", list(PixelFormat))
def test_every_pixel_format_keeps_its_colours(kind: PixelFormat) -> None:
    bgr = np.full((32, 48, 3), COLOUR, np.uint8)
    pixels = in_format(kind, bgr)
    frame = Frame(1, 1, 0, 0, FrameStatus.COMPLETE, kind, 48, 32, pixels)
    shown = cv2.imdecode(np.frombuffer(evidence.to_jpeg(frame, 95), np.uint8), cv2.IMREAD_COLOR)
    assert shown.shape == (32, 48, 3)
    wanted = (200, 200, 200) if kind is PixelFormat.GRAY8 else COLOUR
    assert np.abs(shown[8:-8, 8:-8].astype(int) - wanted).max() <= 6
