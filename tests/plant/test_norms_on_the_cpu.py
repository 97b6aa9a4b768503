"""A model with LayerNormalization: its hybrid plan really runs the norms on the CPU and the rest on the HTP.

Read back from the placement of the loaded session, not from what was asked for.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
import toys

from edge_app.config.load import load_manifest
from edge_app.config.manifest import Manifest, Plan
from edge_app.config.pipeline import Model
from edge_app.config.tensor import Preprocess
from edge_app.engine import tensor_of
from edge_app.errors import RuntimeFault
from edge_app.frame import PixelFormat
from edge_app.model import plan_input, resolve
from edge_app.preprocess import Fit, Source
from edge_app.preprocess import Plan as Preprocessing
from edge_app.runtime.ort import OrtSession
from edge_app.runtime.qnn import HtpTarget, open_qnn
from edge_app.verdict import PlanKind, PowerMode

SOC = "qcs8550"
NORMS = ("LayerNormalization", "Gelu", "Softmax")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A conv stem and a transformer block, compiled with its norms, its Gelu and its Softmax on the CPU."""
    folder = tmp_path_factory.mktemp("norms")
    (folder / "pictures").mkdir()
    for number in range(34):
        cells = [tuple(np.random.default_rng(number).integers(0, 7, 2).tolist()) for _ in range(number % 4)]
        cv2.imwrite(str(folder / "pictures" / f"{number:03}.png"), toys.detector_picture(cells, seed=number))
    onnx.save(toys.transformer(), folder / "t.onnx")
    (folder / "labels.txt").write_text("\n".join(f"class{n}" for n in range(10)))
    for command in (
        "import t.onnx --name t --task classify --labels labels.txt --color RGB --fit stretch --no-ops"
        f" --scale {1 / 255}",
        "quantize t --calibration pictures --activations a16",
        f"compile t --soc {SOC} --host-ops {','.join(NORMS)}",
    ):
        done = subprocess.run([sys.executable, "-m", "edge_app", "model", *command.split()],
                              capture_output=True, text=True, cwd=folder, timeout=300, check=False)  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return folder / "models" / "t"


def plan_of(manifest: Manifest, kind: PlanKind) -> Plan:
    plan = manifest.plan(kind, SOC)
    assert plan is not None
    return plan


def open_plan(model: Path, kind: PlanKind, host_ops: tuple[str, ...] | None = None) -> OrtSession:
    plan = plan_of(load_manifest(model), kind)
    assert plan.soc_model is not None
    assert plan.htp_arch is not None
    target = HtpTarget(SOC, plan.soc_model, plan.htp_arch)
    planned = frozenset(plan.host_ops if host_ops is None else host_ops)
    file = model / plan.artifacts[0].file
    return open_qnn(file, kind, target, host_ops=planned, host_nodes=frozenset(plan.host_nodes), threads=1)


def ops_on_the_cpu(session: OrtSession) -> Counter[str]:
    """Op kinds of the nodes that onnxruntime says it placed on its CPU provider."""
    return Counter(node.rpartition("(")[2].rstrip(")") for node in session.host_nodes)


def test_norms_are_on_the_cpu_and_everything_else_on_the_htp(model: Path) -> None:
    whole = Counter(node.op_type for node in toys.transformer().graph.node)
    hybrid, htp = (ops_on_the_cpu(open_plan(model, kind)) for kind in (PlanKind.HYBRID, PlanKind.HTP))
    assert whole["LayerNormalization"] == 2
    assert {op: hybrid[op] for op in NORMS} == {op: whole[op] for op in NORMS}
    # Besides them only the conversions at the crossings; no Conv, no MatMul, no Reshape.
    assert set(hybrid) - set(NORMS) <= {"QuantizeLinear", "DequantizeLinear"}
    assert set(htp) <= {"QuantizeLinear", "DequantizeLinear"}
    report = plan_of(load_manifest(model), PlanKind.HYBRID).report
    file = onnx.load(model / plan_of(load_manifest(model), PlanKind.HYBRID).artifacts[0].file)
    segments = sum(node.op_type == "EPContext" for node in file.graph.node)
    assert segments == report.segments > 1


def test_norms_that_were_not_planned_on_the_cpu_refuse_the_plan_and_are_named(model: Path) -> None:
    with pytest.raises(RuntimeFault, match="fell to the CPU that were not planned there") as error:
        open_plan(model, PlanKind.HYBRID, host_ops=("Gelu", "Softmax", "QuantizeLinear", "DequantizeLinear"))
    assert error.value.got is not None
    assert error.value.got.count("LayerNormalization") == 2


@pytest.mark.parametrize("kind", [PlanKind.HTP, PlanKind.HYBRID])
def test_both_plans_answer_as_the_float_model(model: Path, kind: PlanKind) -> None:
    card = resolve(Model(path=model), Preprocess())
    plan = plan_of(load_manifest(model), kind)
    session = open_plan(model, kind)
    binding = session.bind()
    image = plan_input(card, plan)
    picture = toys.detector_picture([(1, 5)], seed=99)
    source, fit = Source(64, 64, PixelFormat.BGR8), Fit(mode=image.fit, method=image.method, pad_value=image.pad_value)
    prepared = Preprocessing(source, tensor_of(image), fit)
    prepared.prepare(binding.input)
    prepared.run(picture, binding.input)
    session.run(binding, PowerMode.BURST)
    spec = (plan.outputs or card.outputs)[0]
    got = binding.outputs[0].astype(np.float64).ravel()
    if spec.quant_scale is not None:
        got = (got - (spec.quant_zero_point or 0)) * spec.quant_scale
    float_model = onnxruntime.InferenceSession(toys.transformer().SerializeToString())
    tensor = picture[:, :, ::-1].transpose(2, 0, 1)[None].astype(np.float32) / 255
    wanted = float_model.run(None, {"images": tensor})[0].ravel()
    cosine = float(got @ wanted / np.linalg.norm(got) / np.linalg.norm(wanted))
    assert cosine > 0.995
