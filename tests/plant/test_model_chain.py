"""`edge_app model` by commands only, on networks made here: import, quantize, compile, verify, on the real compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
import toys
from model_command import DETECTS, LABELS, document, draw, in_folder
from onnx import TensorProto

from edge_app.config.pipeline import Model as ModelSection
from edge_app.config.tensor import Preprocess
from edge_app.model import resolve
from edge_app.plans import open_plan
from edge_app.verdict import PlanKind

SHIPPED = "qcs6490,qcs8550,sm8650,sm8750,sm8850"


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pictures, and a toy detector imported, quantised and compiled for all shipped SoCs."""
    folder = tmp_path_factory.mktemp("plant")
    draw(folder / "pictures", 36)
    onnx.save(toys.detector(), folder / "toy.onnx")
    (folder / "labels.txt").write_text("bright\ndark\n")
    model = in_folder(folder)
    done = model("import", "toy.onnx", "--name", "toy", *DETECTS, *LABELS, "--soc", "qcs6490,qcs8550", "--json")
    imported = document(done)
    assert imported["head"] == "yolov8"
    ops = {op["op"]: op["htp"] for op in imported["ops"]}
    assert ops["Conv"] == {"qcs6490": "a8 a16", "qcs8550": "a8 a16 fp16"}
    document(model("quantize", "toy", "--calibration", "pictures", "--json"))
    compiled = document(model("compile", "toy", "--soc", SHIPPED, "--json"))
    (folder / "compiled.json").write_text(json.dumps(compiled))
    return folder


def test_plans_of_all_socs_are_what_they_were_planned_to_be(plant: Path) -> None:
    plans = json.loads((plant / "compiled.json").read_text())["plans"]
    assert [(p["plan"], p["soc"]) for p in plans] == [(k, s) for s in SHIPPED.split(",") for k in ("htp", "hybrid")]
    for plan in plans:
        report = plan["report"]
        assert report["float_ops"] == []
        assert (report["macs_a8"], report["macs_a16"], report["macs_float"]) == (456960, 0, 0)
        if plan["plan"] == "htp":
            assert (report["segments"], report["crossings"], plan["host_ops"]) == (1, 0, [])
            assert report["fused_ops"] == {"SiLU": 4}
        else:
            assert (report["segments"], report["crossings"]) == (5, 8)
            assert {"Sigmoid", "Mul"} <= set(plan["host_ops"])
        assert plan["input"]["dtype"] == "uint8"
    assert len({plan["artifacts"][0]["sha256"] for plan in plans}) == 10


def test_every_rung_of_every_soc_agrees_with_float(plant: Path) -> None:
    model = in_folder(plant)
    report = document(
        model("verify", "toy", "--data", "pictures", "--limit", "8", "--cache", "cache", "--write", "--json")
    )
    assert report["ok"] is True
    assert [rung["rung"] for rung in report["rungs"][:2]] == ["float", "qdq on cpu"]
    assert len(report["rungs"]) == 12
    for rung in report["rungs"]:
        assert rung["images"] == 8
        assert rung["cosine"] > 0.999
        assert rung["verdicts_flipped"] == []
    shown = document(model("show", "toy", "--json"))
    assert all(plan["verified"][0]["ok"] for plan in shown["plans"])
    assert shown["plans"][0]["agrees_with"] == ["cpu", "hybrid"]


def test_qdq_model_and_plans_are_made_again_byte_for_byte(plant: Path) -> None:
    model = in_folder(plant)
    assert document(model("quantize", "toy", "--from-encodings", "--json"))["ok"] is True
    made = document(model("compile", "toy", "--check", "--soc", "qcs6490,sm8850", "--json"))
    assert [plan["same_bytes"] for plan in made["plans"]] == [True] * 4


def test_verify_makes_a_plan_that_was_not_shipped(plant: Path) -> None:
    (plant / "models/toy/plans/sm8650/htp.onnx").unlink()
    report = document(
        in_folder(plant)(
            "verify", "toy", "--data", "pictures", "--limit", "4", "--soc", "sm8650", "--json", "--cache", "cache2"
        )
    )
    assert report["ok"] is True
    assert (plant / "models/toy/plans/sm8650/htp.onnx").is_file()


def test_a_flipped_byte_is_not_verified(plant: Path) -> None:
    file = plant / "models/toy/plans/sm8750/htp.onnx"
    whole = file.read_bytes()
    file.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    try:
        done = in_folder(plant)("verify", "toy", "--data", "pictures", "--limit", "4", "--soc", "sm8750", "--json")
    finally:
        file.write_bytes(whole)
    report = document(done, code=1)
    assert report["ok"] is False
    bad = next(rung for rung in report["rungs"] if rung["rung"] == "htp sm8750")
    assert (bad["ok"], bad["images"]) == (False, 0)
    assert "not the one that its manifest binds" in bad["problems"][0]


def test_wrong_colour_order_is_seen_as_drift_and_located(plant: Path, tmp_path: Path) -> None:
    model = in_folder(plant)
    manifest = plant / "models/toy/manifest.yaml"
    before = manifest.read_text()
    quantized = before.index("quantized:")
    manifest.write_text(
        before[:quantized]
        + before[quantized:]
        .replace("scale: 0.003921568859368563", "scale: 0.0019", 1)
        .replace("zero_point: 0", "zero_point: 60", 1)
    )
    try:
        done = model(
            "verify",
            "toy",
            "--data",
            "pictures",
            "--limit",
            "4",
            "--soc",
            "qcs8550",
            "--plans",
            "htp",
            "--json",
            "--cache",
            tmp_path / "cache",
        )
    finally:
        manifest.write_text(before)
    rung = next(r for r in document(done, code=1)["rungs"] if r["rung"] == "qdq on cpu")
    assert rung["ok"] is False
    assert rung["drift_starts_at"].startswith("stem0")


def test_record_and_list(plant: Path) -> None:
    model = in_folder(plant)
    document(
        model(
            "record",
            "toy",
            "--board",
            "RB3 Gen 2",
            "--soc",
            "qcs6490",
            "--plan",
            "htp",
            "--loads",
            "yes",
            "--latency-ms",
            "3.6",
            "--date",
            "2026-01-31",
            "--json",
        )
    )
    boards = document(model("show", "toy", "--json"))["boards"]
    assert [(b["board"], b["loads"], b["latency_ms"]) for b in boards] == [("RB3 Gen 2", True, 3.6)]
    models = document(model("list", "--json"))["models"]
    assert [(m["name"], m["quantized"], m["socs"]) for m in models] == [("toy", True, SHIPPED.split(","))]


def test_hybrid_of_a_mixed_model_widens_on_the_host(plant: Path, tmp_path: Path) -> None:
    shutil.copytree(plant / "models", tmp_path / "models", ignore=shutil.ignore_patterns("plans"))
    model = in_folder(tmp_path)
    document(
        model(
            "quantize", "toy", "--calibration", plant / "pictures", "--activations", "mixed", "--raise", "cls8,box8",
            "--json",
        )
    )  # fmt: skip
    hybrid = document(model("compile", "toy", "--soc", "qcs8550", "--plans", "hybrid", "--json"))["plans"][0]
    assert hybrid["source"]["file"] == "quantized_hybrid.onnx"
    assert (hybrid["report"]["macs_a16"], hybrid["report"]["segments"]) == (8 * 66 * 64, 5)
    report = document(
        model("verify", "toy", "--data", plant / "pictures", "--limit", "4", "--soc", "qcs8550", "--plans", "hybrid",
              "--json", "--cache", "cache")
    )  # fmt: skip
    assert report["ok"] is True
    assert document(model("compile", "toy", "--check", "--soc", "qcs8550", "--plans", "hybrid", "--json"))["ok"] is True


def test_where_a_host_op_takes_8_bits_and_gives_16_integers_cross(plant: Path, tmp_path: Path) -> None:
    """The SiLU before the raised convs is read by them alone: its Q to 16 bits used to run, in float, on the HTP."""
    shutil.copytree(plant / "models", tmp_path / "models", ignore=shutil.ignore_patterns("plans"))
    model = in_folder(tmp_path)
    raised = ("--activations", "mixed", "--raise", "box16,cls16")
    document(model("quantize", "toy", "--calibration", plant / "pictures", *raised, "--json"))
    hybrid = document(model("compile", "toy", "--soc", "qcs8550", "--plans", "hybrid", "--json"))["plans"][0]
    report = hybrid["report"]
    assert (hybrid["edges_pinned"], report["float_ops"], report["macs_float"]) == (True, [], 0)
    assert crossing_types(tmp_path / "models/toy/plans/qcs8550/hybrid.onnx") == {TensorProto.UINT8, TensorProto.UINT16}
    # uint8 before and behind the SiLUs of 32, 16 and 8 px, uint16 behind the one of 4 px (8 channels each).
    assert report["crossing_bytes"] == 8 * (2 * 32**2 + 2 * 16**2 + 2 * 8**2 + 3 * 4**2)
    verified = document(
        model("verify", "toy", "--data", plant / "pictures", "--limit", "4", "--soc", "qcs8550", "--plans", "hybrid",
              "--json", "--cache", "cache")
    )  # fmt: skip
    assert verified["ok"] is True
    assert document(model("compile", "toy", "--check", "--soc", "qcs8550", "--plans", "hybrid", "--json"))["ok"] is True


def crossing_types(plan: Path) -> set[int]:
    """Types of the tensors between NPU segments and host nodes."""
    model = onnx.load(plan)
    types = {info.name: info.type.tensor_type.elem_type for info in model.graph.value_info}
    npu = {name for node in model.graph.node if node.op_type == "EPContext" for name in (*node.input, *node.output)}
    host = {name for node in model.graph.node if node.op_type != "EPContext" for name in (*node.input, *node.output)}
    return {types[name] for name in npu & host}


def test_where_not_all_host_nodes_fit_the_most_sensitive_ones_go_to_the_cpu(plant: Path, tmp_path: Path) -> None:
    shutil.copytree(plant / "models", tmp_path / "models", ignore=shutil.ignore_patterns("plans"))
    shutil.copytree(plant / "calibration", tmp_path / "calibration")
    model = in_folder(tmp_path)
    fewer = ("compile", "toy", "--soc", "qcs8550", "--plans", "hybrid", "--most-crossings", "4")
    refused = model(*fewer)
    assert (refused.returncode, "--pictures" in refused.stderr) == (2, True)
    plan = document(model(*fewer, "--pictures", plant / "pictures", "--json"))["plans"][0]
    assert len(plan["host_nodes"]) == 4
    assert {name.rsplit("/", 1)[0] for name in plan["host_nodes"][0::2]} == {
        name.rsplit("/", 1)[0] for name in plan["host_nodes"][1::2]
    }
    report = plan["report"]
    assert (report["segments"], report["crossings"], report["float_ops"]) == (3, 4, [])
    assert report["fused_ops"] == {"SiLU": 2}
    levels = {int(name.removeprefix("stem")[0]) for name in plan["host_nodes"]}
    assert report["crossing_bytes"] == sum(2 * 8 * (32 >> level) ** 2 for level in levels)
    assert crossing_types(tmp_path / "models/toy/plans/qcs8550/hybrid.onnx") == {TensorProto.UINT8}
    verified = document(
        model("verify", "toy", "--data", plant / "pictures", "--limit", "8", "--soc", "qcs8550", "--plans", "hybrid",
              "--json", "--cache", "cache", "--write")
    )  # fmt: skip
    assert verified["ok"] is True
    assert document(model("compile", "toy", "--check", "--soc", "qcs8550", "--plans", "hybrid", "--json"))["ok"] is True
    card = resolve(ModelSection(path=tmp_path / "models/toy"), Preprocess())
    engine = open_plan(card, PlanKind.HYBRID, "qcs8550", np.array([0.3, 0.3], np.float32))
    assert set(plan["host_nodes"]) <= {name.split(" ")[0] for name in engine.session.host_nodes}
    unknown = model("compile", "toy", "--soc", "qcs8550", "--plans", "hybrid", "--host-nodes", "stem9/act/Mul")
    assert (unknown.returncode, "stem9/act/Mul" in unknown.stderr) == (2, True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own with hardly any room. Mounting one needs root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no disk can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("left_kib", [0, 16])
def test_a_full_disk_while_compiling_leaves_nothing_that_looks_like_a_plan(
    plant: Path, small_disk: Path, left_kib: int
) -> None:
    shutil.copytree(plant / "models", small_disk / "models", ignore=shutil.ignore_patterns("plans"))
    shutil.copytree(plant / "calibration", small_disk / "calibration")
    folder = small_disk / "models/toy"
    before = (folder / "manifest.yaml").read_bytes()
    filler = small_disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - left_kib * 1024))
    done = in_folder(small_disk)("compile", "toy", "--soc", "qcs8550", "--plans", "htp")
    assert done.returncode in (4, 5), done.stderr
    assert "Traceback" not in done.stderr
    assert "space" in done.stderr
    assert (folder / "manifest.yaml").read_bytes() == before
    assert [file.name for file in folder.rglob("*") if file.is_file() and "plans" in file.parts] == []
    filler.unlink()
    document(in_folder(small_disk)("compile", "toy", "--soc", "qcs8550", "--plans", "htp", "--json"))
    assert (folder / "plans/qcs8550/htp.onnx").is_file()


def test_dlc_for_the_qnn_tools(plant: Path, tmp_path: Path) -> None:
    done = in_folder(plant)("compile", "toy", "--soc", "qcs8550", "--plans", "htp", "--dlc", tmp_path, "--json")
    document(done)
    assert [file.suffix for file in (tmp_path / "qcs8550").iterdir()] == [".dlc"]


def test_bad_calibration_folders_and_socs(plant: Path, tmp_path: Path) -> None:
    model = in_folder(plant)
    (tmp_path / "empty").mkdir()
    (tmp_path / "grey").mkdir()
    cv2.imwrite(str(tmp_path / "grey/a.png"), np.full((64, 64, 3), 128, np.uint8))
    (tmp_path / "list.txt").write_text("000.png\nnobody.png\n")
    before = (plant / "models/toy/manifest.yaml").read_bytes()
    for arguments, code, said in (
        (("quantize", "toy", "--calibration", tmp_path / "empty"), 2, "no picture"),
        (("quantize", "toy", "--calibration", tmp_path / "grey"), 2, "one grey level"),
        (("quantize", "toy", "--calibration", tmp_path / "nowhere"), 2, "no such folder"),
        (("quantize", "toy", "--calibration", "pictures", "--list", tmp_path / "no.txt"), 2, "can't read the list"),
        (("quantize", "toy", "--calibration", "pictures", "--list", tmp_path / "list.txt"), 2, "1 of 2 pictures"),
        (("compile", "toy", "--soc", "qcs8551"), 2, "did you mean qcs8550"),
        (("verify", "toy", "--soc", "sa8295", "--data", "pictures"), 4, "no plan"),
        (("verify", "toy"), 2, "--data"),
        (("show", "nobody"), 4, "there is no model"),
    ):
        done = model(*arguments)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
        assert "Traceback" not in done.stderr
    assert (plant / "models/toy/manifest.yaml").read_bytes() == before
