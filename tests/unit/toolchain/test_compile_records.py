"""What a new compilation leaves of what was verified, and what is compiled by default."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest
from onnx import helper

from edge_app.config.load import load_manifest
from edge_app.config.manifest import Manifest, Plan
from edge_app.errors import ModelError
from edge_app.toolchain.compile import record_compiled, wanted_plans
from edge_app.toolchain.socs import soc_named
from edge_app.verdict import PlanKind

PCB = Path(__file__).parents[3] / "models" / "pcb-defect"
BOTH = (PlanKind.HTP, PlanKind.HYBRID)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("manifest.yaml", "model.onnx", "quantized.onnx", "canary.npz", "canary.png"):
        if (PCB / name).exists():
            shutil.copy(PCB / name, tmp_path / name)
    return tmp_path


def of_soc(manifest: Manifest, kind: PlanKind) -> Plan:
    return next(plan for plan in manifest.plans if (plan.plan, plan.soc) == (kind, "qcs8550"))


def compiled_again(plan: Plan, sha256: str | None = None) -> Plan:
    """As the compiler hands it over: nothing is verified yet."""
    artifacts = plan.artifacts if sha256 is None else (plan.artifacts[0].model_copy(update={"sha256": sha256}),)
    return plan.model_copy(update={"artifacts": artifacts, "verified": (), "agreements": (), "agrees_with": ()})


def test_the_same_bytes_stay_verified(folder: Path) -> None:
    before = load_manifest(folder)
    assert of_soc(before, PlanKind.HTP).agrees_with
    record_compiled(folder, before.plans, [compiled_again(of_soc(before, PlanKind.HTP))])
    assert load_manifest(folder).plans == before.plans


def test_other_bytes_are_unverified_and_no_plan_agrees_with_them_any_more(folder: Path) -> None:
    before = load_manifest(folder)
    assert PlanKind.HTP in of_soc(before, PlanKind.HYBRID).agrees_with
    record_compiled(folder, before.plans, [compiled_again(of_soc(before, PlanKind.HTP), "0" * 64)])
    after = load_manifest(folder)
    htp, hybrid = of_soc(after, PlanKind.HTP), of_soc(after, PlanKind.HYBRID)
    assert (htp.verified, htp.agrees_with, htp.agreements) == ((), (), ())
    assert PlanKind.HTP not in hybrid.agrees_with
    assert all(one.plan is not PlanKind.HTP for one in hybrid.agreements)
    assert hybrid.verified == of_soc(before, PlanKind.HYBRID).verified
    others = [plan for plan in before.plans if plan.soc != "qcs8550"]
    assert [plan for plan in after.plans if plan.soc != "qcs8550"] == others


def one_op(kind: str) -> onnx.ModelProto:
    value = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4]) for name in "xy"]
    return helper.make_model(helper.make_graph([helper.make_node(kind, ["x"], ["y"])], "one", value[:1], value[1:]))


def test_a_model_without_activations_of_its_own_gets_no_hybrid_plan_unless_it_is_asked_for(folder: Path) -> None:
    manifest, socs = load_manifest(folder), [soc_named("qcs8550")]
    by_default = wanted_plans(manifest, one_op("Relu"), socs, BOTH, None)
    assert [one.kind for one in by_default] == [PlanKind.HTP]
    assert [one.kind for one in wanted_plans(manifest, one_op("Tanh"), socs, BOTH, None)] == list(BOTH)
    for kinds, host_ops in ((BOTH, ["Gemm"]), ((PlanKind.HYBRID,), None)):
        with pytest.raises(ModelError, match="no hybrid plan can be made"):
            wanted_plans(manifest, one_op("Relu"), socs, kinds, host_ops)
