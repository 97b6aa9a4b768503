"""Plans that were not shipped, where nothing may be written: told, left out, and never the end of the start."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from edge_app.app import make_missing_plans
from edge_app.config.manifest import Artifact, Plan
from edge_app.errors import RuntimeFault
from edge_app.toolchain.htp import compile_plan
from edge_app.toolchain.remake import make_missing, remake
from edge_app.toolchain.socs import soc_named
from edge_app.verdict import PlanKind

SOURCE = b"a QDQ model"


def plan(file: str, kind: PlanKind = PlanKind.HTP) -> Plan:
    source = Artifact(file="source.onnx", sha256=hashlib.sha256(SOURCE).hexdigest())
    return Plan(plan=kind, soc="qcs8550", artifacts=(Artifact(file=file, sha256="0" * 64),), source=source)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's folder in which `plans` is no folder, so that not even root can write below it."""
    (tmp_path / "source.onnx").write_bytes(SOURCE)
    (tmp_path / "plans").write_text("")
    return tmp_path


def test_it_is_told_what_where_and_what_to_do(model: Path) -> None:
    with pytest.raises(RuntimeFault, match=r"(?s)toy\.onnx.*the plan can't be written.*do: .*model compile") as raised:
        remake(model, SimpleNamespace(name="toy"), plan("plans/toy.onnx"))  # type: ignore[arg-type]
    assert raised.value.exit_code == 5
    with pytest.raises(RuntimeFault, match="the plan can't be written"):
        compile_plan(model / "source.onnx", soc_named("qcs8550"), model / "plans" / "toy.onnx")


def test_each_plan_that_can_not_be_made_gives_way_to_the_next(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    plans = (plan("plans/htp.onnx"), plan("plans/hybrid.onnx", PlanKind.HYBRID))
    pipeline = SimpleNamespace(runtime=SimpleNamespace(provider="qnn", soc="qcs8550"))
    card = SimpleNamespace(folder=model, manifest=SimpleNamespace(name="toy", plans=plans))
    make_missing_plans(pipeline, card)  # type: ignore[arg-type]
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert [text.split(":")[0] for text in told] == ["plan htp", "plan hybrid"]
    assert all("can't be written" in text for text in told)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A model's folder on a file system that was made read-only, as ProtectSystem=strict does it."""
    folder = tmp_path / "read_only"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        (folder / "source.onnx").write_bytes(SOURCE)
        (folder / "plans").mkdir()
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("file", ["plans/toy.onnx", "none/toy.onnx"])
def test_a_read_only_file_system(read_only: Path, file: str) -> None:
    with pytest.raises(RuntimeFault, match=r"(?s)the plan can't be written.*Read-only file system"):
        make_missing(read_only, SimpleNamespace(name="toy"), plan(file))  # type: ignore[arg-type]
