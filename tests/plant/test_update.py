"""Live update of a whole node with keys, under load: `edge_app model push|activate|rollback`, and what can go wrong.

One node inspects a folder of parts, good and bad in turn, while everything below happens to it.
"""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import onnx
import pytest
from nodes import PatientLine, free_port
from toy_versions import PARTS, digest, make_model, never_ending, picture
from wire_samples import until

from edge_app.cli import main
from edge_app.client import CommandRefused, Keys, Line, Start
from edge_app.config.load import load_manifest
from edge_app.keys import read_public, read_secret
from edge_app.store import digests_of, files_of, version_of, write_sums

WATCHED = 25
BUSY = ("OVERRUN", "OVERLOAD", "LATE")
"""What a busy machine has no time for is told as such; the order of the pictures goes on."""


class Books(threading.Thread):
    """Every result from the first on, through every restart, and the alarms."""

    def __init__(self, line: Line) -> None:
        super().__init__(daemon=True)
        self.line = line
        self.results: list[Any] = []
        self.alarms: list[Any] = []
        self.lost = 0
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.is_set():
            result = self.line.next(0.1)
            self.alarms += [event for event in self.line.events() if event["kind"] == "alarm"]
            if result is not None:
                self.results.append(result)
                self.lost += result.lost_before

    def stop(self) -> None:
        self._end.set()
        self.join()

    def wait_for_more(self, count: int) -> None:
        have = len(self.results)
        until(lambda: len(self.results) >= have + count, 90)


class Plant:
    """The node, an engineer and a viewer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pictures").mkdir()
        for number in range(PARTS):
            cv2.imwrite(str(folder / "pictures" / f"part{number}.png"), picture(number))
        self.own = make_model(folder / "toy", "1")
        clients = ""
        for name, role in (("node", None), ("engineer", "engineer"), ("viewer", "viewer")):
            assert main(["keys", "new", name, "--dir", str(folder)]) == 0
            if role is not None:
                public = read_public(folder / f"{name}.public.toml").public
                clients += f'[[client]]\nname = "{name}"\npublic = "{public}"\nrole = "{role}"\n'
        (folder / "clients.toml").write_text(clients)
        self.publish, self.commands = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        self.watch_frames(WATCHED)
        self.store = folder / "var" / "line.models"
        self._process: subprocess.Popen[bytes] | None = None

    def watch_frames(self, count: int, load_s: float = 600.0) -> None:
        """Takes effect at the next start."""
        (self.folder / "line.yaml").write_text(f"""\
camera: {{type: folder, path: pictures, loop: true, rate_fps: 25}}
model: {{path: toy}}
runtime: {{provider: cpu, threads: 1}}
limits: {{pacing: realtime, deadline_ms: 60000, slots: 16}}
update: {{watch_frames: {count}, most_late: 100000, load_s: {load_s}}}
results:
  publish: "{self.publish}"
  commands: "{self.commands}"
  journal: {{path: var/results.db}}
  security: {{key: node.secret.toml, clients: clients.toml}}
""")

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "edge_app", "--pipeline", self.folder / "line.yaml"]
        )

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(60)

    def line(self, name: str, start: Start = Start.NOW) -> Line:
        own, node = read_secret(self.folder / f"{name}.secret.toml"), self.folder / "node.public.toml"
        return PatientLine(self.publish, self.commands, keys=Keys(own, read_public(node).public), start=start)

    def model(self, *words: str) -> int:
        """`edge_app model ...` of the engineer."""
        keys = ["--key", self.folder / "engineer.secret.toml", "--node-key", self.folder / "node.public.toml"]
        return main(["model", *words, "--line", self.commands, *map(str, keys), "--json"])

    def alarms(self) -> list[Any]:
        """Those that stand."""
        with self.line("viewer") as line:
            return list(line.command("status", timeout_s=90.0)["alarms"])

    def told(self) -> dict[str, Any]:
        """What the node says of its models; waits for one that starts."""
        with self.line("viewer") as line:
            return dict(line.command("models", timeout_s=90.0))


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    made = Plant(tmp_path_factory.mktemp("plant"))
    made.start()
    yield made
    assert made.end() == 0


@pytest.fixture(scope="module")
def books(plant: Plant) -> Iterator[Books]:
    kept = Books(plant.line("viewer", Start.OLDEST))
    kept.start()
    kept.wait_for_more(1)
    yield kept
    kept.stop()
    kept.line.close()


def pushed(plant: Plant, capsys: pytest.CaptureFixture[str], folder: Path) -> str:
    capsys.readouterr()
    assert plant.model("push", str(folder)) == 0
    return str(json.loads(capsys.readouterr().out)["version"])


def model_of(result: Any) -> str | None:
    return result.data["model"].get("version")


def assert_each_part_once_and_right(books: Books) -> None:
    """No result lost, doubled, or other than its part; each by one model and the recipe that goes with it."""
    assert books.lost == 0
    by_epoch: dict[str, list[Any]] = {}
    for result in books.results:
        by_epoch.setdefault(result.epoch, []).append(result)
    for results in by_epoch.values():
        assert [one.seq for one in results] == list(range(1, len(results) + 1))
        assert len({one.trigger_id for one in results}) == len(results)
    revs: dict[Any, set[str]] = {}
    faulty: set[str | None] = set()
    for one in books.results:
        revs.setdefault((model_of(one), one.data["model"]["sha256"]), set()).add(one.recipe_rev)
        number = (one.data["frame_id"] - 1) % PARTS
        if one.reason in ("INVALID_OUTPUT", "RUNTIME_FAULT"):  # and those in flight behind it: told as what they are
            faulty.add(model_of(one))
        elif one.reason not in BUSY:
            assert one.reason == ("DEFECT" if number % 2 else "OK"), one.data
    assert all(len(rev) == 1 for rev in revs.values()), revs
    assert None not in faulty
    assert len(faulty) <= 1, "the blind one alone"


def test_push_activate_and_rollback_lose_and_double_nothing(
    plant: Plant, books: Books, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plant.model("push", str(make_model(tmp_path / "v2", "2", seed=1, score=0.6))) == 0
    document = json.loads(capsys.readouterr().out)
    second, (recipe,) = document["version"], document["recipes"]
    third = pushed(plant, capsys, make_model(tmp_path / "v3", "3", seed=2))
    assert plant.told()["stored"] == [third, second]
    assert pushed(plant, capsys, tmp_path / "v2") == second, "the same content is the same version"
    before = books.results[-1]
    for version in (second, third):
        assert plant.model("activate", version) == 0
        told = plant.told()
        assert (told["running"], told["in_force"][0], told["update"]["stage"]) == (version, version, "in_force")
    for version in (second, None):
        assert plant.model("rollback") == 0
        assert plant.told()["running"] == version
    assert plant.model("rollback") == 2, "the pipeline's own is the last"
    assert plant.model("activate", "toy@000000000000") == 2
    assert f"there are: {third}, {second}" in refusal(capsys)
    assert not any(alarm["alarm"] == "UPDATE_FAILED" for alarm in books.alarms), "a slip of the pen is no alarm"
    books.wait_for_more(2 * PARTS)
    order = [model_of(one) for one in books.results]
    assert [one for one, last in zip(order, [object(), *order], strict=False) if one != last] == [
        None, second, third, second, None,
    ]  # fmt: skip
    of_second = next(one for one in books.results if model_of(one) == second)
    assert before.recipe_rev != of_second.recipe_rev, "the operating scores came along"
    assert recipe == f"line {of_second.recipe_rev}", "as it was told before"
    assert_each_part_once_and_right(books)


def refusal(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.replace("\n", " ")


def test_a_model_that_fails_after_some_frames_goes_again_with_an_alarm(
    plant: Plant, books: Books, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    version = pushed(plant, capsys, make_model(tmp_path / "blind", "4", blind=True))
    seen = len(books.results)
    assert plant.model("activate", version) == 1
    told = plant.told()
    assert (told["running"], told["in_force"], told["update"]["stage"]) == (None, [], "rolled_back")
    assert "INVALID_OUTPUT" in told["update"]["text"]
    until(lambda: any(alarm["alarm"] == "UPDATE_FAILED" and alarm["active"] for alarm in books.alarms))
    assert any("INVALID_OUTPUT" in alarm["text"] for alarm in books.alarms)
    books.wait_for_more(2 * PARTS)
    tried = [one.reason for one in books.results[seen:] if model_of(one) == version]
    assert len(tried) - tried.index("INVALID_OUTPUT") < 60, "it went at once, but for what was in flight"
    assert {one.reason for one in books.results[-PARTS:]} <= {"OK", "DEFECT", *BUSY}
    assert_each_part_once_and_right(books)


def test_a_wrong_canary_is_refused_and_nothing_changes(
    plant: Plant, books: Books, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_model(tmp_path / "v5", "5", seed=3)
    cv2.imwrite(str(folder / "canary.png"), picture(0))  # not the picture whose answer was stored
    version = pushed(plant, capsys, folder)
    assert plant.model("activate", version) == 1
    told = plant.told()
    assert (told["running"], told["update"]["stage"]) == (None, "refused")
    assert "canary" in told["update"]["text"]
    assert all(model_of(one) != version for one in books.results)


def test_what_can_not_be_written_down_does_not_stay(
    plant: Plant, books: Books, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    version = pushed(plant, capsys, make_model(tmp_path / "v9", "9", seed=6))
    in_the_way = plant.store / "in_force.json.part"
    in_the_way.mkdir()
    try:
        assert plant.model("activate", version) == 1
    finally:
        in_the_way.rmdir()
    told = plant.told()
    assert (told["running"], told["in_force"], told["update"]["stage"]) == (None, [], "rolled_back")
    assert "what is in force can't be kept" in told["update"]["text"]
    assert_each_part_once_and_right(books)


def test_other_labels_are_refused_when_pushed_and_the_refusal_names_them(
    plant: Plant, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = plant.told()["stored"]
    assert plant.model("push", str(make_model(tmp_path / "v6", "6", other="scratch"))) == 4
    said = refusal(capsys)
    assert "differs from the running one in labels" in said
    assert "bright, scratch" in said
    assert plant.told()["stored"] == stored


def test_a_flipped_byte_is_found_at_both_ends(
    plant: Plant, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = plant.told()["stored"]
    folder = make_model(tmp_path / "v7", "7", seed=4)
    flip(folder / "model.onnx")
    assert plant.model("push", str(folder)) == 4
    assert "not the one that its manifest binds" in refusal(capsys)
    flip(folder / "model.onnx")  # as it was; but on its way to the node it is changed
    with plant.line("engineer") as line:
        version = send(line, folder, lambda data: bytes([data[0] ^ 1]) + data[1:])
        with pytest.raises(CommandRefused, match="CONFLICT"):
            line.command("stage_done", version=version)
    assert plant.told()["stored"] == stored
    assert not (plant.store / "incoming").exists()


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def send(line: Line, folder: Path, change: Any = lambda data: data, most: int = 1000) -> str:
    """All parts of a version (or the first few), by hand; the version."""
    digests = digests_of(folder, files_of(folder, load_manifest(folder)))
    sums, size = write_sums(digests), sum((folder / file).stat().st_size for file in digests)
    line.command("stage_model", name="toy", sums=sums, bytes=size)
    version = version_of("toy", sums)
    for file in digests:
        data = change((folder / file).read_bytes()) if file == "model.onnx" else (folder / file).read_bytes()
        for offset in range(0, len(data), 30_000)[:most]:
            part = base64.b64encode(data[offset : offset + 30_000]).decode()
            line.command("stage_part", version=version, file=file, offset=offset, data=part)
    return version


def test_only_an_engineer_may_and_only_below_the_store(plant: Plant, tmp_path: Path) -> None:
    sums = f"{'0' * 64}  ../evil\n{'0' * 64}  manifest.yaml\n"
    with plant.line("viewer") as viewer, plant.line("engineer") as engineer:
        for command, fields in (
            ("activate_model", {"version": plant.told()["stored"][0]}), ("rollback_model", {}),
            ("stage_model", {"name": "toy", "sums": sums, "bytes": 1}), ("stage_done", {"version": "toy@0"}),
        ):  # fmt: skip
            with pytest.raises(CommandRefused, match="FORBIDDEN"):
                viewer.command(command, **fields)
        with pytest.raises(CommandRefused, match="name that is not taken"):
            engineer.command("stage_model", name="toy", sums=sums, bytes=1)


def test_a_power_cut_leaves_the_old_or_wholly_the_new(
    plant: Plant, books: Books, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_model(tmp_path / "v8", "8", seed=5)
    plant.watch_frames(100_000)
    with plant.line("engineer") as line:
        send(line, folder, most=1)
    assert (plant.store / "incoming").exists()
    stored = plant.told()["stored"]
    plant.end(signal.SIGKILL)  # in the middle of a push
    plant.start()
    assert (plant.told()["running"], plant.told()["stored"]) == (None, stored)
    version = pushed(plant, capsys, folder)
    with plant.line("engineer") as line:
        line.command("activate_model", version=version)
    until(lambda: any(model_of(one) == version for one in books.results), 90)
    assert plant.told()["update"]["stage"] == "watching"
    assert plant.model("rollback") == 0, "while it is watched a person may send it away"
    assert (plant.told()["running"], plant.told()["update"]["text"]) == (None, "rolled back by engineer")
    seen = len(books.results)
    with plant.line("engineer") as line:
        line.command("activate_model", version=version)
    until(lambda: any(model_of(one) == version for one in books.results[seen:][PARTS:]), 90)
    plant.watch_frames(WATCHED)
    plant.end(signal.SIGKILL)  # in the middle of an activation: the new one inspects, and is watched
    plant.start()
    assert (plant.told()["running"], plant.told()["in_force"]) == (None, [])
    (alarm,) = plant.alarms()
    assert alarm["alarm"] == "UPDATE_FAILED"
    assert alarm["text"].startswith(f"{version} was still watched when the node ended")
    assert plant.model("activate", version) == 0
    plant.end(signal.SIGKILL)  # at once after it
    plant.start()
    assert plant.told()["running"] == version
    assert plant.alarms() == []
    books.wait_for_more(PARTS)
    assert model_of(books.results[-1]) == version
    assert_each_part_once_and_right(books)


def test_a_load_that_hangs_is_told_and_the_line_goes_on_with_the_old_model(
    plant: Plant, books: Books, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plant.model("activate", pushed(plant, capsys, make_model(tmp_path / "v11", "11", seed=8))) == 0
    folder = make_model(tmp_path / "hangs", "10", seed=7)
    model, bound = onnx.load(folder / "model.onnx"), digest(folder)
    manifest = (folder / "manifest.yaml").read_text().replace(model.graph.output[0].name, "at_last")
    onnx.save(never_ending(model), folder / "model.onnx")
    (folder / "manifest.yaml").write_text(manifest.replace(bound, digest(folder)))
    plant.watch_frames(WATCHED, load_s=5.0)
    plant.end(signal.SIGKILL)
    plant.start()
    running = plant.told()["running"]
    version = pushed(plant, capsys, folder)
    seen = len(books.results)
    assert plant.model("activate", version) == 1
    told = plant.told()
    assert (told["running"], told["update"]["stage"]) == (running, "refused")
    assert f"loading {version} did not end" in told["update"]["text"]
    until(lambda: any(version in alarm["text"] and alarm["active"] for alarm in books.alarms))
    assert plant.model("rollback") == 2
    assert "restart needed" in refusal(capsys)
    books.wait_for_more(PARTS)
    assert {model_of(one) for one in books.results[seen:]} == {running}
    plant.watch_frames(WATCHED)
    assert plant.end() == 0, "what hangs does not keep the service from its end"
    plant.start()
    assert plant.told()["running"] == running
    assert plant.model("rollback") == 0, "also after a restart"
    assert plant.told()["running"] != running
    assert_each_part_once_and_right(books)
