from __future__ import annotations

from pathlib import Path

import pytest

from edge_app.commands.plan_tables import show_plans, show_verified
from edge_app.config.manifest import Agreement, Artifact, Plan, PlanReport, Verified
from edge_app.verdict import PlanKind

MULS = tuple(f"/model.22/cv{n}.0/cv{n}.0.1/act/Mul (Mul)" for n in range(9))


def plan(kind: PlanKind, float_ops: tuple[str, ...]) -> Plan:
    report = PlanReport(
        segments=49, crossings=133, crossing_bytes=22_497_280, simulated_cycles=1_330_000_000, macs_a8=2_535_000_000,
        macs_a16=134_590_000, float_ops=float_ops, fused_ops={"SiLU": 57},
    )  # fmt: skip
    runs = (("deeppcb test", "map50_95", True), ("bottles", "top1_agreement", False))
    verified = [
        Verified(on=on, images=139, simulated=simulated, cosine_min=0.99926, metrics={metric: 0.6386},
                 float_metrics={metric: 0.6388},
                 loss_95=(-0.0021, 0.0134) if simulated else None, verdicts_flipped=("a: PASS -> FAIL",),
                 ok=not simulated)
        for on, metric, simulated in runs
    ]  # fmt: skip
    agreements = (Agreement(plan=PlanKind.CPU, on="deeppcb test", parts=139, disagreed=("part7: PASS, FAIL by cpu",)),)
    artifact = Artifact(file=f"{kind}.onnx", sha256="0" * 64)
    return Plan(plan=kind, soc="qcs8550", artifacts=(artifact,), report=report, verified=tuple(verified),
                agreements=agreements)  # fmt: skip


def test_everything_of_a_plan_fits_100_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "htp.onnx").write_bytes(bytes(3_310_000))
    plans = [plan(PlanKind.HTP, ()), plan(PlanKind.HYBRID, MULS)]
    show_plans("Plans", tmp_path, plans)
    show_verified(plans)
    said = capsys.readouterr().out
    assert max(len(line) for line in said.splitlines()) <= 100
    rows = {tuple(cell.strip() for cell in line.split("│")[1:-1]) for line in said.splitlines() if "│" in line}
    made = ("49", "133", "22497", "1330")
    assert ("htp qcs8550", "3.3", *made, "none", "57 SiLU", "2535 / 134.6") in rows
    assert ("hybrid qcs8550", "not made", *made, "9", "57 SiLU", "2535 / 134.6") in rows
    assert ("hybrid qcs8550", "deeppcb test", "139", "0.9993", "0.6386 / 0.6388", "-0.2..+1.3", "1", "NO") in rows
    assert ("hybrid qcs8550", "bottles, board", "139", "0.9993", "0.6386 / 0.6388", "-", "1", "yes") in rows
    assert ("htp qcs8550", "cpu", "deeppcb test", "139", "1") in rows
    assert "hybrid qcs8550, in float on the NPU: /model.22/cv0.0/cv0.0.1/act/Mul (Mul)," in said
    assert "and 3 more" in said
    assert ["Verified: map50_95" in said, "Verified: top1_agreement" in said] == [True, True]
