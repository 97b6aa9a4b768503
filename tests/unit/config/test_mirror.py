"""Pipelines that decide over many frames: what goes together, and that no gate ever stands before a judge of parts."""

from __future__ import annotations

from pathlib import Path

import colours
import onnx
import pytest
import toys

from edge_app.config.judge import ClassRule
from edge_app.errors import ConfigError
from edge_app.model import resolve
from edge_app.placed import refuse_other_task


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"decision": None}, "each frame is a part"),
        ({"judge": {"classes": {"red": {"score": 0.5}}}}, "rules for defects"),
        ({"judge": {"default": {"max_count": 3}}}, "rules for defects"),
        ({"recipes": {"other": "other.yaml"}}, "no other recipes"),
        ({"limits": {"pacing": "offline", "trigger": "software"}}, "the trigger"),
        ({"gate": {"keep_alive_s": 3.0}, "decision": {"hold_s": 3.0}}, "would go while somebody stands still"),
        ({"gate": {"moving": 0.001}}, "would flap"),
        ({"decision": {"energy": {"idle_w": 2.0, "active_w": 1.0}}}, "below idle_w"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, sections: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        colours.pipeline(tmp_path, **sections)
    assert words in str(caught.value)


def test_what_goes_together(tmp_path: Path) -> None:
    both = colours.pipeline(tmp_path)
    assert both.gate is not None
    assert both.gate.keep_alive_s < both.decision.hold_s
    assert both.judge.default == ClassRule()
    assert colours.pipeline(tmp_path, gate=None).gate is None


def test_a_decision_wants_a_classifier_and_a_judge_a_detector(tmp_path: Path) -> None:
    mirror = colours.pipeline(tmp_path)
    file = tmp_path / "detector.onnx"
    onnx.save(toys.detector(), file)
    detector = mirror.model.model_copy(
        update={"path": file, "task": "detect", "labels": toys.DETECTOR_LABELS, "head": "yolov8"}
    )
    with pytest.raises(ConfigError, match="no labels to decide on"):
        refuse_other_task(mirror, resolve(detector, mirror.preprocess))
    parts = colours.pipeline(tmp_path, decision=None, gate=None)
    with pytest.raises(ConfigError, match="a classifier can't judge defects"):
        refuse_other_task(parts, resolve(parts.model, parts.preprocess))
    refuse_other_task(mirror, resolve(mirror.model, mirror.preprocess))
