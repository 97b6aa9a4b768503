"""The store of versions: what is there after a power cut at any moment, what is kept, and who has the last word."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_app.config.pipeline import Pipeline
from edge_app.errors import ModelError
from edge_app.model_at_start import model_at_start
from edge_app.staging import LEAVE_FREE, Staging
from edge_app.store import ModelStore, read_sums, store_of, version_of, write_sums

OWN = Path("/models/own")


def killed_at_random(work: Callable[[int], None], times: int, seed: int) -> None:
    """Runs `work(0)`, `work(1)`, ... in a process that is killed after a while; again and again."""
    chance = random.Random(seed)
    for _ in range(times):
        child = os.fork()
        if child == 0:
            number = 0
            while True:
                work(number)
                number += 1
        time.sleep(chance.uniform(0.002, 0.04))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_what_is_in_force_is_always_one_of_what_was_written(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "line.models", OWN)
    choices = [("toy@000000000001",), ("toy@000000000002", "toy@000000000001"), ()]
    store.put_in_force(choices[0])
    for seed in range(3):
        killed_at_random(lambda number: store.put_in_force(choices[number % 3]), 8, seed)
        assert store.in_force() in choices
        assert (store.folder / "in_force.json").is_file()


def files_to_push(folder: Path, model: Path) -> dict[str, bytes]:
    files = {name: (model / name).read_bytes() for name in ("manifest.yaml", "model.onnx")}
    return {**files, "more.bin": os.urandom(200_000)}


def push(store: ModelStore, files: dict[str, bytes]) -> str:
    import hashlib

    staging = Staging(store, lambda _folder: None)
    sums = write_sums({name: hashlib.sha256(data).hexdigest() for name, data in files.items()})
    version, stored = staging.begin("toy", sums, sum(map(len, files.values())))
    if not stored:
        for name, data in files.items():
            staging.write(version, name, 0, data)
        staging.finish(version)
    return version


def test_a_version_is_whole_or_not_there(tmp_path: Path, toy_model: Path) -> None:
    store = ModelStore(tmp_path / "line.models", OWN)
    killed_at_random(lambda _number: str(push(store, files_to_push(tmp_path, toy_model))), 12, seed=1)
    for version in store.versions():
        assert (store.checked(version) / "more.bin").stat().st_size == 200_000
    whole = push(store, files_to_push(tmp_path, toy_model))
    assert whole in store.versions(), "what a killed push left does not stand in the way"


def test_an_announced_size_bounds_what_is_taken(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "line.models", OWN)
    sums = write_sums({"manifest.yaml": "0" * 64, "model.onnx": "1" * 64})
    staging = Staging(store, lambda _folder: None)
    version, _ = staging.begin("toy", sums, 100)
    staging.write(version, "model.onnx", 0, b"x" * 60)
    staging.write(version, "model.onnx", 0, b"x" * 60)  # a retry takes no further room
    for file, offset, size in (("model.onnx", 61, 1), ("model.onnx", 60, 41), ("other", 0, 1)):
        with pytest.raises(ModelError):
            staging.write(version, file, offset, b"x" * size)
    with pytest.raises(ModelError, match="no room"):
        staging.begin("toy", sums, 2**60 + LEAVE_FREE)


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/../b", ".hidden", "a b", "a//b", "SHA256SUMS", "a/", ""])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(ModelError):
        read_sums(write_sums({"manifest.yaml": "0" * 64, name: "0" * 64}))


def test_the_one_in_force_two_before_and_two_others_are_kept(tmp_path: Path, toy_model: Path) -> None:
    store = ModelStore(tmp_path / "line.models", OWN)
    versions = []
    for number in range(8):
        versions.append(push(store, files_to_push(tmp_path, toy_model)))
        os.utime(store.folder / versions[-1], (number, number))
    store.put_in_force((versions[2], versions[0], versions[1], versions[3]))
    assert store.in_force() == (versions[2], versions[0], versions[1])
    assert set(store.forget_old({versions[3]})) == {versions[4], versions[5]}
    assert set(store.versions()) == {*versions[:4], versions[6], versions[7]}


def pipeline(folder: Path, model: Path) -> Pipeline:
    sections = {
        "camera": {"type": "synthetic"}, "model": {"path": str(model)}, "limits": {"pacing": "offline"},
        "results": {"journal": {"path": str(folder / "results.db")}},
    }  # fmt: skip
    return Pipeline.model_validate(sections, strict=False)


def test_a_damaged_version_gives_way_to_the_one_before_and_is_told(tmp_path: Path, toy_model: Path) -> None:
    made = pipeline(tmp_path, toy_model)
    store = store_of(made, "line")
    old, new = (push(store, files_to_push(tmp_path, toy_model)) for _ in range(2))
    store.put_in_force((new, old))
    assert model_at_start(made, "line")[1:] == (new, ())
    (store.folder / new / "more.bin").write_bytes(b"other")
    card, version, alarms = model_at_start(made, "line")
    assert (version, card.folder) == (old, store.folder / old)
    assert [alarm.name for alarm in alarms] == ["UPDATE_FAILED"]
    (store.folder / old / "SHA256SUMS").unlink()
    card, version, alarms = model_at_start(made, "line")
    assert (version, card.folder, len(alarms)) == (None, toy_model, 1)


def test_a_damaged_version_is_whole_again_after_another_push(tmp_path: Path, toy_model: Path) -> None:
    """The alarm says "push and activate it again"."""
    store, files = ModelStore(tmp_path / "line.models", OWN), files_to_push(tmp_path, toy_model)
    version = push(store, files)
    for damage in ("more.bin", "SHA256SUMS"):
        (store.folder / version / damage).write_bytes(b"other")
        assert push(store, files) == version
        assert (store.checked(version) / "more.bin").read_bytes() == files["more.bin"]
    assert sorted(path.name for path in store.folder.iterdir()) == [version]


def make_version(store: ModelStore, number: int) -> None:
    """A whole version of many files, as a push leaves it."""
    import hashlib

    files = {"manifest.yaml": str(number).encode(), **{f"{n}.bin": b"" for n in range(500)}}
    sums = write_sums({name: hashlib.sha256(data).hexdigest() for name, data in files.items()})
    folder = store.folder / version_of("toy", sums)
    folder.mkdir(parents=True)
    for name, data in {**files, "SHA256SUMS": sums.encode()}.items():
        (folder / name).write_bytes(data)


def test_a_version_that_is_removed_is_whole_as_long_as_it_is_there(tmp_path: Path) -> None:
    """Half of one would keep its name, be the one that was changed last, and so never go."""
    store = ModelStore(tmp_path / "line.models", OWN)
    for turn in range(6):
        for number in range(4):
            make_version(store, 10 * turn + number)
        killed_at_random(lambda _number: str(store.forget_old(())), 1, seed=turn)
        for version in store.versions():
            store.checked(version)


def test_a_start_gives_back_the_space_of_a_push_that_was_cut_off(tmp_path: Path, toy_model: Path) -> None:
    made = pipeline(tmp_path, toy_model)
    store = store_of(made, "line")
    sums = write_sums({"manifest.yaml": "0" * 64, "model.onnx": "1" * 64})
    version, _ = Staging(store, lambda _folder: None).begin("toy", sums, 100)
    assert (store.folder / "incoming").is_dir(), version
    (store.folder / "removed").mkdir()
    assert model_at_start(made, "line")[1:] == (None, ())
    assert list(store.folder.iterdir()) == []


def test_a_version_that_was_cut_off_on_trial_is_told_by_the_next_start(tmp_path: Path, toy_model: Path) -> None:
    """Else a model that takes the whole process along would be gone again without a word."""
    made = pipeline(tmp_path, toy_model)
    store = store_of(made, "line")
    old, new = (push(store, files_to_push(tmp_path, toy_model)) for _ in range(2))
    store.put_in_force((old,))
    store.put_on_trial(new)
    for _ in range(2):
        _, version, (alarm,) = model_at_start(made, "line")
        assert (version, alarm.name) == (old, "UPDATE_FAILED")
        assert alarm.text.startswith(f"{new} was still watched when the node ended")
    store.put_in_force((new, old))  # cut off right after it held
    assert model_at_start(made, "line")[1:] == (new, ())
    assert store.on_trial() is None
    (store.folder / "on_trial.json").write_bytes(b"")
    assert "can't be read" in model_at_start(made, "line")[2][0].text
    store.end_trial()
    assert model_at_start(made, "line")[2] == ()


def test_a_version_that_can_not_be_read_gives_way_too(tmp_path: Path, toy_model: Path) -> None:
    """As of a bad block: /proc/self/mem is a file that is there, and gives an error where it is read."""
    made = pipeline(tmp_path, toy_model)
    store = store_of(made, "line")
    old, new = (push(store, files_to_push(tmp_path, toy_model)) for _ in range(2))
    store.put_in_force((new, old))
    (store.folder / new / "more.bin").unlink()
    (store.folder / new / "more.bin").symlink_to("/proc/self/mem")
    _, version, alarms = model_at_start(made, "line")
    assert (version, [alarm.name for alarm in alarms]) == (old, ["UPDATE_FAILED"])


@pytest.mark.parametrize("how", ["damaged", "nested", "unreadable"])
def test_a_store_that_can_not_say_what_is_in_force_is_told_and_removes_nothing(
    tmp_path: Path, toy_model: Path, how: str
) -> None:
    made = pipeline(tmp_path, toy_model)
    store = store_of(made, "line")
    versions = [push(store, files_to_push(tmp_path, toy_model)) for _ in range(5)]
    store.put_in_force(tuple(versions[:3]))
    note = store.folder / "in_force.json"
    note.unlink()
    if how != "unreadable":
        note.write_text("{" if how == "damaged" else "[" * 100_000)
    else:
        note.symlink_to("/proc/self/mem")
    card, version, alarms = model_at_start(made, "line")
    assert (version, card.folder, [alarm.name for alarm in alarms]) == (None, toy_model, ["UPDATE_FAILED"])
    assert "in_force.json" in alarms[0].text
    assert "the pipeline's own model is in force" in alarms[0].text
    assert store.forget_old(()) == []
    assert set(store.versions()) == set(versions)


def test_a_store_that_can_not_be_read_costs_an_update_nothing(tmp_path: Path) -> None:
    """Removing old versions is its last step: an error there must not bring the model before back."""
    loop = tmp_path / "line.models"
    loop.symlink_to(loop)
    assert ModelStore(loop, OWN).forget_old(()) == []
    with pytest.raises(ModelError, match="can't be read"):
        ModelStore(loop, OWN).checked("toy@000000000001")


def test_a_version_that_stays_is_not_told_as_removed(tmp_path: Path, toy_model: Path) -> None:
    store = ModelStore(tmp_path / "line.models", OWN)
    versions = [push(store, files_to_push(tmp_path, toy_model)) for _ in range(4)]
    (store.folder / "removed").write_text("a file, where a version would be moved to")
    assert store.forget_old(()) == []
    assert set(store.versions()) == set(versions)


def test_another_model_in_the_yaml_has_the_last_word(tmp_path: Path, toy_model: Path) -> None:
    made = pipeline(tmp_path, toy_model)
    store = store_of(made, "line")
    store.put_in_force((push(store, files_to_push(tmp_path, toy_model)),))
    assert store.in_force() != ()
    assert ModelStore(store.folder, tmp_path / "another").in_force() == ()


def test_a_version_is_named_by_all_of_its_content() -> None:
    sums = write_sums({"manifest.yaml": "0" * 64, "a": "1" * 64})
    assert version_of("toy", sums) != version_of("toy", sums.replace("1", "2"))
    assert version_of("toy", sums).startswith("toy@")
    assert read_sums(sums) == {"manifest.yaml": "0" * 64, "a": "1" * 64}
