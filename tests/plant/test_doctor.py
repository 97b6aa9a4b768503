"""`edge_app doctor` as it is run: here, on a recorded tree, and for one error."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from importlib import metadata

import pytest
from sysfs import SysfsTree

from edge_app.config.load import load_manifest


def doctor(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-P", "-m", "edge_app", "doctor", *map(str, arguments)],
                          capture_output=True, text=True, timeout=120, check=False)  # fmt: skip


def test_a_recorded_board_is_looked_at(tmp_path) -> None:
    tree = SysfsTree(tmp_path)
    tree.set_c("nspss1-thermal", 93.0)
    SysfsTree.write(tree.folders["cpu4-thermal"] / "temp", "-273000")
    done = doctor("--sysfs-root", tmp_path, "--json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is False
    zones = {zone["name"]: zone for zone in document["zones"]}
    assert (zones["nspss0"]["temp_c"], zones["nspss0"]["trip_c"], zones["nspss0"]["state"]) == (41.2, 95.0, "ok")
    assert zones["cpu4"] | {"trips": []} == {
        "name": "cpu4", "type": "cpu4-thermal", "group": "cpu", "state": "impossible", "temp_c": None,
        "note": "-273 C", "warm_c": 78.0, "hot_c": 87.0, "trip_c": 90.0, "trips": [],
    }  # fmt: skip
    graded = {finding["text"].split()[0]: finding["grade"] for finding in document["findings"]}
    assert (graded["nspss0"], graded["nspss1"], graded["cpu4"]) == ("ok", "warn", "fail")
    SysfsTree.write(tree.folders["cpu4-thermal"] / "temp", "45000")
    assert doctor("--sysfs-root", tmp_path).returncode == 0


def test_a_zone_without_a_readable_type_is_told(tmp_path) -> None:
    tree = SysfsTree(tmp_path)
    (tree.folders["nspss0-thermal"] / "type").unlink()
    (tree.folders["nspss0-thermal"] / "type").mkdir()
    done = doctor("--sysfs-root", tmp_path)
    assert "thermal_zone0/type can't be read: Is a directory" in done.stdout
    (tmp_path / "class").rename(tmp_path / "klass")
    done = doctor("--sysfs-root", tmp_path)
    assert done.returncode == 1
    assert "class/thermal can't be read: No such file or directory" in done.stdout


@pytest.mark.parametrize("root", ["none", "file"])
def test_a_root_that_is_no_folder_is_refused(tmp_path, root) -> None:
    (tmp_path / "file").write_text("x")
    done = doctor("--sysfs-root", tmp_path / root, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        f"--sysfs-root: no such folder\n  wanted: /sys, or a folder with class/thermal below it\n  got: {tmp_path}"
        in (done.stderr)
    )


def test_bytes_that_are_no_text_do_not_reach_the_terminal(tmp_path) -> None:
    tree = SysfsTree(tmp_path)
    (tree.folders["nspss0-thermal"] / "type").write_bytes(b"nsp\0\x1b[31m[/x]\xff\n")
    (tree.folders["cpu0-thermal"] / "temp").write_bytes(b"\x00\xff[bold]")
    done = doctor("--sysfs-root", tmp_path)
    assert done.returncode == 1
    assert "nsp??[31m[/x]?".replace("?", "\N{REPLACEMENT CHARACTER}") in done.stdout
    assert "cpu0 (cpu) is unreadable: not a whole number" in done.stdout
    assert not [c for c in done.stdout if not c.isprintable() and c != "\n"]


def test_the_tree_of_a_pipeline_is_looked_at(tmp_path, toy_model) -> None:
    SysfsTree(tmp_path / "sys")
    pipeline = tmp_path / "p.yaml"
    text = f"camera: {{type: synthetic}}\nmodel: {{path: {toy_model}}}\nlimits: {{pacing: offline}}\n"
    pipeline.write_text(text + "scheduler: {sysfs_root: sys}\n")
    done = doctor("--pipeline", pipeline, "--json")
    assert json.loads(done.stdout)["zones"][0]["name"] == "nspss0"
    pipeline.write_text(text + "scheduler: {sysfs_root: syss}\n")
    done = doctor("--pipeline", pipeline, "--json")
    assert (done.returncode, "sysfs_root: no such folder" in done.stderr) == (2, True)


def test_a_board_without_its_required_zones_fails_with_what_to_do(tmp_path) -> None:
    SysfsTree(tmp_path, {"cpu0-thermal": (40_000, (("passive", 90_000),))})
    done = doctor("--sysfs-root", tmp_path)
    assert done.returncode == 1
    assert "no thermal zone of group nsp" in done.stdout
    assert "scheduler.zones.nsp.types" in done.stdout


def test_limits_of_a_pipeline_are_taken(tmp_path, toy_model) -> None:
    SysfsTree(tmp_path)
    pipeline = tmp_path / "p.yaml"
    pipeline.write_text(
        f"camera: {{type: synthetic}}\nmodel: {{path: {toy_model}}}\nlimits: {{pacing: offline}}\n"
        "scheduler: {zones: {nsp: {types: ['nspss1*'], required: true, warm_c: 50, hot_c: 60, trip_c: 70}}}\n"
    )
    done = doctor("--sysfs-root", tmp_path, "--pipeline", pipeline, "--json")
    zones = {zone["name"]: zone for zone in json.loads(done.stdout)["zones"]}
    assert zones["nspss1"]["warm_c"] == 50
    assert "nspss0" not in zones


def test_one_error_is_explained() -> None:
    known = doctor("--explain", "0x36B1")
    assert (known.returncode, "INVALID_CONFIG" in known.stdout, "/dev/fastrpc" in known.stdout) == (0, True, True)
    as_json = json.loads(doctor("--explain", "Error code: 5005", "--json").stdout)
    assert (as_json["code"], as_json["name"]) == (5005, "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY")
    assert doctor("--explain", "12345").returncode == 1


def test_what_was_seen_is_noted_in_the_models_table(tmp_path, toy_model) -> None:
    model = tmp_path / "toy"
    shutil.copytree(toy_model, model)
    pipeline = tmp_path / "p.yaml"
    pipeline.write_text(
        "camera: {type: synthetic}\nmodel: {path: toy}\nruntime: {provider: cpu}\nlimits: {pacing: offline}\n"
    )
    done = doctor("--pipeline", pipeline, "--record", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = [f for f in json.loads(done.stdout)["findings"] if f["check"] == "record"]
    assert found["grade"] == "ok"
    (record,) = load_manifest(model).boards
    assert (record.plan, record.soc, record.loads) == ("cpu", "none", True)
    assert platform.machine() in record.board
    assert record.latency_ms is not None
    assert record.latency_ms > 0
    assert f"onnxruntime {metadata.version('onnxruntime')}" in record.versions


def test_a_record_of_no_model_is_refused() -> None:
    done = doctor("--record")
    assert done.returncode == 2
    assert "--pipeline FILE too" in done.stderr
