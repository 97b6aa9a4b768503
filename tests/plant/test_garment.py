"""The shipped garment classifier on the CPU: drawn garments, the shipped pipeline, and a part of the test list."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edge_app.canary import load_canary
from edge_app.cli import main
from edge_app.commands.eval_classes import no_thresholds
from edge_app.config.pipeline import Model
from edge_app.config.tensor import Preprocess
from edge_app.errors import ExitCode
from edge_app.model import resolve
from edge_app.plans import open_plan
from edge_app.verdict import PlanKind

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "models/garment/pictures"


def evaluated(capsys: pytest.CaptureFixture[str], model: str, *more: object) -> dict[str, object]:
    capsys.readouterr()
    command = ["eval-classes", "--model", str(ROOT / "models" / model), "--json", *map(str, more)]
    assert main(command) == ExitCode.OK
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


def test_a_canary_holds_and_a_classifier_that_always_names_one_label_fails_it() -> None:
    card = resolve(Model(path=ROOT / "models/garment"), Preprocess())
    canary = load_canary(card)
    assert canary is not None
    engine = open_plan(card, PlanKind.CPU, None, no_thresholds(card))
    assert canary.prove(engine) is None
    decode, stuck = engine.decode, np.full((1, len(card.labels)), -20, np.float32)
    for label in set(range(len(card.labels))) - {card.labels.index("pants")}:
        outputs = stuck.copy()
        outputs[0, label] = 20
        engine.decode = lambda _outputs, geometry, outputs=outputs: decode((outputs,), geometry)  # type: ignore[misc]
        assert f"and {card.labels[label]} with 1.00" in str(canary.prove(engine))


def test_drawn_garments_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    told = evaluated(capsys, "garment", "--pictures", PICTURES, "--runtime", "quantized")
    assert told["pictures"] == 20
    assert told["top1"] == 1.0


def test_the_test_list(capsys: pytest.CaptureFixture[str], data_folder: Path) -> None:
    test_list = data_folder / "clothing-small/test.txt"
    told = evaluated(capsys, "garment", "--pictures", test_list, "--limit", 100)
    assert float(str(told["top1"])) >= 0.85


def test_the_shipped_mirror_names_who_comes(capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    command = ["eval-mirror", str(ROOT / "pipelines/garment.yaml"), "--pictures", str(PICTURES), "--visits", "4"]
    assert main([*command, "--rate-fps", "8", "--set", "runtime.provider=cpu", "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert told["visits"] == 4
    assert told["accuracy_by_decision"] >= 0.75
    assert told["not_seen"] == {}
    assert told["inferences_saved"] > 0.3
    assert told["power_w_estimate"] == pytest.approx(0.5 + 5.6 * min(told["duty_cycle"], 1.0), abs=2e-3)
