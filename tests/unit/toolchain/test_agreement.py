from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from edge_app.config.manifest import Agreement, Artifact, Plan
from edge_app.config.tensor import HeadSpec, InputSpec
from edge_app.detections import Classes
from edge_app.model import ModelCard
from edge_app.toolchain import measure
from edge_app.toolchain.agreement import ENOUGH_PARTS, agreements_of, enough, with_agreements
from edge_app.toolchain.measure import Sample
from edge_app.toolchain.verify import Gates, Rung, cosine_problems, loss_problems
from edge_app.verdict import PlanKind

SAMPLES = [Sample(f"part{n}", str(n), np.zeros((1, 1, 3), np.uint8)) for n in range(4)]
GOOD = ("PASS", "FAIL", "PASS", "FAIL")
IMAGE = InputSpec(name="x", width=8, height=8)
CARD = ModelCard("m", "classify", Path("m.onnx"), "0", IMAGE, HeadSpec(kind="classify"), ("shirt", "skirt"), 0.5)


def rung(plan: str | None, soc: str | None, verdicts: tuple[str, ...] = GOOD, problems: tuple[str, ...] = ()) -> Rung:
    name = "float" if plan == "cpu" else "qdq on cpu" if plan is None else f"{plan} {soc}"
    return Rung(name, plan, soc, 4, 1.0, 0.0, "map50_95", 0.6, 0.0, verdicts=verdicts, problems=list(problems))


def plan(kind: PlanKind = PlanKind.HTP, **more: object) -> Plan:
    artifact = Artifact(file="a.onnx", sha256="0" * 64)
    return Plan(plan=kind, soc="qcs8550", artifacts=(artifact,), **more)  # type: ignore[arg-type]


def test_a_plan_is_compared_with_those_of_its_soc_and_with_the_cpu() -> None:
    other = ("PASS", "FAIL", "UNKNOWN", "PASS")
    rungs = [
        rung("cpu", None), rung(None, None, other), rung("htp", "qcs8550"), rung("hybrid", "qcs8550", other),
        rung("hybrid", "qcs6490", other),
    ]  # fmt: skip
    cpu, hybrid = agreements_of(plan(), rungs, SAMPLES, "val")
    assert (cpu.plan, cpu.parts, cpu.disagreed) == (PlanKind.CPU, 4, ())
    assert hybrid.plan is PlanKind.HYBRID
    assert hybrid.disagreed == ("part2: PASS, UNKNOWN by hybrid", "part3: FAIL, PASS by hybrid")
    after = with_agreements(plan(), [cpu, hybrid])
    assert after.agrees_with == (PlanKind.CPU,)


@pytest.mark.parametrize(
    ("folders", "metric", "of_float", "of_plan"),
    [(("shirt", "skirt", "skirt"), "top1", 2 / 3, 1.0), (("shirt", "skirt", "odd"), "top1_agreement", 1.0, 2 / 3)],
    ids=["folders of labels", "another folder"],
)
def test_a_classifiers_loss_is_in_labels_where_there_are_any(
    folders: tuple[str, ...], metric: str, of_float: float, of_plan: float, tmp_path: Path
) -> None:
    files = [tmp_path / folder / f"{n}.png" for n, folder in enumerate(folders)]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        cv2.imwrite(str(file), np.zeros((8, 8, 3), np.uint8))
    samples = measure.in_folders(files, CARD.labels)
    ours, theirs = (
        [Classes(np.array([p, 1 - p], np.float32)) for p in shirt] for shirt in ((0.9, 0.1, 0.52), (0.9, 0.1, 0.48))
    )
    assert measure.metric(CARD, ours, ours, samples) == (metric, of_float)
    assert measure.metric(CARD, theirs, ours, samples) == (metric, of_plan)


def test_a_near_tie_that_no_line_would_tell_keeps_no_plan_from_another() -> None:
    ours, theirs = (
        tuple(measure.verdicts(CARD, [Classes(np.array([p, 1 - p], np.float32)) for p in shirt]))
        for shirt in ((0.52, 0.95, 0.7, 0.7, 0.55), (0.48, 0.9, 0.45, 0.3, 0.3))
    )
    assert ours == ("shirt (unsure)", "shirt", "shirt", "shirt", "shirt (unsure)")
    samples = [*SAMPLES, Sample("part4", "4", np.zeros((1, 1, 3), np.uint8))]
    rungs = [rung("cpu", None, ours), rung("htp", "qcs8550", theirs)]
    (cpu,) = agreements_of(plan(), rungs, samples, "val")
    assert cpu.disagreed == (
        "part2: skirt (unsure), shirt by cpu", "part3: skirt, shirt by cpu", "part4: skirt, shirt (unsure) by cpu",
    )  # fmt: skip


@pytest.mark.parametrize("broken", ["htp", "hybrid"])
def test_a_plan_that_broke_a_gate_agrees_with_nobody(broken: str) -> None:
    rungs = [
        rung("cpu", None),
        rung("htp", "qcs8550", problems=("x",) if broken == "htp" else ()),
        rung("hybrid", "qcs8550", problems=("x",) if broken == "hybrid" else ()),
    ]
    agreements = list(agreements_of(plan(), rungs, SAMPLES, "val"))
    agreeing = with_agreements(plan(), agreements).agrees_with
    assert agreeing == (() if broken == "htp" else (PlanKind.CPU,))
    assert f"{broken} qcs8550: a gate was not held" in agreements[-1].disagreed


def test_what_this_run_did_not_measure_is_kept_and_a_difference_anywhere_counts() -> None:
    before = plan(
        agreements=(
            Agreement(plan=PlanKind.HYBRID, on="val", parts=10),
            Agreement(plan=PlanKind.CPU, on="test", parts=139, disagreed=("part7: PASS, FAIL by cpu",)),
        )
    )
    after = with_agreements(before, [Agreement(plan=PlanKind.CPU, on="val", parts=10)])
    assert after.agrees_with == (PlanKind.HYBRID,)
    kept = [(one.plan.value, one.on) for one in after.agreements]
    assert kept == [("hybrid", "val"), ("cpu", "test"), ("cpu", "val")]
    again = with_agreements(after, [Agreement(plan=PlanKind.CPU, on="test", parts=139)])
    assert again.agrees_with == (PlanKind.CPU, PlanKind.HYBRID)


def test_few_parts_are_marked() -> None:
    assert not enough(Agreement(plan=PlanKind.CPU, on="val", parts=ENOUGH_PARTS - 1))
    assert enough(Agreement(plan=PlanKind.CPU, on="val", parts=ENOUGH_PARTS))


def test_the_loss_is_held_to_its_gate_as_measured_even_where_it_may_be_chance() -> None:
    lossy = rung("htp", "qcs8550")
    lossy.loss, lossy.loss_low, lossy.loss_high = 0.021, -0.004, 0.05
    (said,) = loss_problems(lossy, Gates())
    assert said == "map50_95 lost 2.10 points, more than 1.50 (95 % interval -0.40 .. +5.00, 4 pictures)"
    lossy.loss = 0.0149
    assert loss_problems(lossy, Gates()) == []
    lossy.loss, lossy.loss_low, lossy.loss_high = 0.02, None, None
    assert loss_problems(lossy, Gates()) == ["map50_95 lost 2.00 points, more than 1.50"]


@pytest.mark.parametrize(("cosine", "said"), [
    (0.991, []), (0.98, ["cosine 0.9800 is below 0.99"]), (float("nan"), ["outputs that are no numbers"]),
])  # fmt: skip
def test_outputs_that_are_no_numbers_hold_no_gate(cosine: float, said: list[str]) -> None:
    assert cosine_problems(Rung("htp", "htp", "qcs8550", 8, cosine=cosine), Gates()) == said
