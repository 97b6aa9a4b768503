"""The controller that ships, against a node process: every part gets its one decision, whatever either side does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nodes import NodeProcess

from edge_app.cli import main


def simulate(node: NodeProcess, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["controller-sim", node.publish, "--commands", node.commands, "--json", *arguments]) == 0
    summary: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert summary["parts"] == summary["accepted"] + summary["rejected"]
    assert summary["undecided"] == 0
    return summary


def test_parts_are_triggered_and_decided_by_the_rule(capsys: pytest.CaptureFixture[str]) -> None:
    with NodeProcess() as node:
        summary = simulate(node, capsys, "--rate", "50", "--seconds", "2", "--allow-simulated", "--wait-ms", "60000",
                           "--budget-ms", "60000")  # fmt: skip
        parts, by_cause = summary["parts"], summary["rejected_by_cause"]
        assert 10 < parts <= 101
        # Of five parts three pass, one fails, one is unknown; what a busy machine brings late is rejected as such.
        assert set(by_cause) <= {"FAIL", "UNKNOWN", "NOT_LIVE", "LATE"}
        assert 1 <= summary["accepted"] <= parts * 3 / 5 + 2
        assert all(by_cause.get(cause, 0) <= parts / 5 + 1 for cause in ("FAIL", "UNKNOWN"))
        with node.line() as line:
            assert line.command("status")["counters"]["triggers"] == parts


def test_a_simulated_pass_moves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with NodeProcess() as node:
        summary = simulate(node, capsys, "--rate", "20", "--seconds", "1")
        assert summary["accepted"] == 0
        assert summary["rejected_by_cause"]["SIMULATED"] >= 1


def test_another_recipe_moves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with NodeProcess(arguments=["--not-simulated"]) as node:
        summary = simulate(node, capsys, "--rate", "20", "--seconds", "1", "--recipe", "sha256:other")
        assert summary["accepted"] == 0
        assert summary["rejected_by_cause"]["WRONG_RECIPE"] >= 1


def test_misbehaviour_harms_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with NodeProcess({"journal": {"path": tmp_path / "results.db"}}) as node:
        summary = simulate(node, capsys, "--rate", "20", "--seconds", "4", "--allow-simulated", "--stall-s", "1.2",
                           "--misbehave", "stall,reconnect,wrong-key,duplicate,garbage", "--wait-ms", "60000",
                           "--every-s", "2")  # fmt: skip
        counts = summary["counts"]
        assert counts["duplicates_equal"] == summary["parts"] - 1  # the first tells whether triggers are taken
        assert "duplicates_unequal" not in counts
        assert counts["stalls"] >= 1
        assert counts["strangers_refused"] >= 1
        assert "strangers_let_in" not in counts
        assert counts["garbage_refused"] >= 20
        assert counts.get("lost", 0) == 0
        with node.line() as line:
            status = line.command("status")
        assert status["counters"]["triggers"] == summary["parts"]
        assert status["mode"] == "RUNNING"
        assert status["wire"]["commands_refused"] >= 20
        assert node.stop() == 0


@pytest.mark.parametrize("misbehave", ["", "duplicate"])
def test_a_node_without_triggers_is_followed(misbehave: str, capsys: pytest.CaptureFixture[str]) -> None:
    with NodeProcess(rate=50, arguments=["--no-trigger"]) as node:
        more = ["--misbehave", misbehave] if misbehave else []
        summary = simulate(
            node, capsys, "--seconds", "2", "--rate", "10", "--allow-simulated", "--wait-ms", "60000", *more
        )
        assert summary["parts"] >= 10
        assert summary["accepted"] >= 1
