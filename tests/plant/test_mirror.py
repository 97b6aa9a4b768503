"""The mirror whole: a drawn room, a toy classifier, the line, the decision, the wire's message, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import colours
import cv2
import pytest
from line_bench import PATIENCE_S
from ruamel.yaml import YAML

from edge_app.app import build, status_of
from edge_app.cli import main
from edge_app.commands.run_pipeline import status_line
from edge_app.errors import ExitCode
from edge_app.idling import IDLE_MODE, IdlingPlacer
from edge_app.motion import Look
from edge_app.results import wire
from edge_app.summary import Summary
from edge_app.verdict import Placement, PlanKind, PowerMode, Reason, SchedReason, Sealed, Verdict


@pytest.fixture
def yaml(tmp_path: Path) -> Path:
    """The toy pipeline as a file."""
    pipeline = colours.pipeline(tmp_path, decision={"energy": {"idle_w": 0.5, "active_w": 1.5}})
    file = tmp_path / "colours.yaml"
    YAML(typ="safe").dump(json.loads(pipeline.model_dump_json(exclude_defaults=True)), file)
    return file


def test_one_command_prints_every_figure(tmp_path: Path, yaml: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures = colours.write_pictures(tmp_path / "pictures", 2)
    command = ["eval-mirror", str(yaml), "--pictures", str(pictures), "--rate-fps", "10"]
    assert main([*command, "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert told["visits"] == 6
    assert told["accuracy_by_frame"] == 1.0
    assert told["accuracy_by_decision"] == 1.0
    assert told["right_share_of_named"] > 0.8
    assert told["label_flips_per_minute"] <= told["flips_per_minute_without_decision"] == 0.0
    assert 0.4 <= told["seconds_to_label_p50"] <= told["seconds_to_label_p90"] <= 2.0
    assert told["empty_told_empty"] == 1.0
    assert told["decisions"] >= 6
    assert sum(told["gate"].values()) == told["frames"]
    assert told["not_seen"] == {}
    assert told["inferences"] == told["gate"]["moving"] + told["gate"].get("keep_alive", 0)
    assert told["inferences_saved"] == pytest.approx(1 - told["inferences"] / told["frames"], abs=1e-4)
    assert told["inferences_saved"] > 0.3
    assert 0.5 <= told["power_w_estimate"] < 1.5  # a quick machine computes next to nothing
    assert main([*command, "--visits", "1", "--set", "gate.somebody=null"]) == ExitCode.OK
    assert "accuracy_by_decision" in capsys.readouterr().out


def test_labels_that_the_model_has_not_are_refused(tmp_path: Path, yaml: Path) -> None:
    pictures = colours.write_pictures(tmp_path / "pictures", 1)
    (pictures.parent / "red").rename(pictures.parent / "purple")
    assert main(["eval-mirror", str(yaml), "--pictures", str(pictures.parent)]) == ExitCode.USAGE


def test_a_running_node_sends_decisions(tmp_path: Path) -> None:
    """The app itself, paced by the drawn camera; its results as the wire writes them, and nothing for any frame."""
    pictures = colours.write_pictures(tmp_path / "pictures", 1)
    pipeline = colours.pipeline(
        tmp_path,
        camera={"type": "mirror", "path": str(pictures), "visits": 1, "rate_fps": 20.0, "seed": 3},
        decision={"dwell_s": 0.3, "smooth_s": 0.1, "energy": {"idle_w": 0.5, "active_w": 1.5}},
    )
    app = build(pipeline, "colours")
    sent: list[Sealed] = []
    keep = app.outlet.result
    app.outlet.result = lambda sealed: (sent.append(sealed), keep(sealed))[1]  # type: ignore[method-assign]
    app.start()
    assert app.wait(PATIENCE_S)
    app.close()
    summary = app.summary()
    shown = next(visit.label for visit in app.camera.scenes.visits)  # type: ignore[attr-defined]
    assert Reason.OK in [one.reason for one in sent]
    assert {one.label for one in sent} == {shown, None}
    assert summary.frames == len(sent) == summary.passed + summary.unknown
    assert (summary.lost, summary.fail) == (0, 0)
    assert summary.effort is not None
    assert summary.effort["frames"] == app.camera.scenes.frames > summary.effort["inferences"] > 0  # type: ignore[attr-defined]
    assert summary.effort["gate"]["empty"] > 0
    assert summary.effort["power_w_estimate"] < 1.5
    counters = wire.counters(status_of(app.line))
    assert counters["triggers"] == len(sent)
    assert counters["frames"]["came"] == summary.effort["frames"]
    assert counters["frames"]["inferred"] == summary.effort["inferences"]
    named = next(one for one in sent if one.reason is Reason.OK)
    message = json.loads(wire.encode(wire.result(named, app.outlet._identity, None, (), None)))
    assert (message["verdict"], message["reason"], message["label"]) == ("PASS", "OK", shown)
    assert [one["label"] for one in message["classes"]] == list(colours.LABELS)
    assert sum(one["score"] for one in message["classes"]) == pytest.approx(1.0, abs=0.01)
    assert message["stable_since_us"] < message["t_done_us"]
    assert "detections" not in message
    assert message["simulated"] is True


def test_the_summary_of_a_run_tells_frames_beside_decisions(
    tmp_path: Path, yaml: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "still").mkdir()
    for number in range(30):
        cv2.imwrite(str(tmp_path / "still" / f"{number}.png"), colours.picture("blue", 120, 90))
    command = ["--pipeline", str(yaml), "--set", f"camera.path={tmp_path / 'still'}", "--log-level", "error"]
    assert main([*command, "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert told["effort"]["frames"] == 30
    assert told["effort"]["gate"] == {"empty": 30}, "what stands there from the first frame on is the room"
    assert (told["effort"]["inferences"], told["frames"], told["lost"]) == (0, told["unknown"], 0)
    assert main(command) == ExitCode.OK
    assert "gate empty 30" in " ".join(capsys.readouterr().out.split())


def test_the_status_line_of_a_mirror() -> None:
    effort = {"frames": 900, "inferences": 120, "gate": {}, "duty_cycle": 0.031, "power_w_estimate": None}
    summary = Summary(
        frames=4, passed=3, fail=0, unknown=1, unknown_by_reason={"NO_PART": 1}, lost=0, p50_ms=1.0, p99_ms=2.0,
        fps=0.1, plan="htp", seconds=30.0, simulated=False, degraded=[], escapes=None, false_rejects=None,
        effort=effort,
    )  # fmt: skip
    assert status_line(summary) == (
        "900 frames  120 inferences  duty cycle 3.1%  decisions: PASS 3  UNKNOWN 1  plan htp"
    )
    effort["power_w_estimate"] = 0.674
    assert "duty cycle 3.1%  about 0.7 W (an estimate)  decisions" in status_line(summary)


class Fixed:
    """A placer that always says the same; keeps what it is told."""

    def __init__(self, mode: PowerMode) -> None:
        self.last = Placement(PlanKind.HTP, mode, 1.0, SchedReason.NORMAL)
        self.observed: list[PowerMode] = []

    def place(self) -> Placement | None:
        return self.last

    def observe(self, placement: Placement, _infer_us: int, _before_us: int = 0) -> None:
        self.observed.append(placement.power_mode)


def test_the_npu_idles_low_and_the_scheduler_does_not_hear_of_it() -> None:
    looks = iter([Look.MOVING, Look.STILL, Look.KEEP_ALIVE, Look.EMPTY, Look.MOVING])
    inner = Fixed(PowerMode.BURST)
    placer = IdlingPlacer(inner, lambda: next(looks) is not Look.MOVING)  # type: ignore[arg-type]
    modes = []
    for _ in range(5):
        placement = placer.place()
        assert placement is placer.last
        placer.observe(placement, 1000)  # type: ignore[arg-type]
        modes.append(placement.power_mode)  # type: ignore[union-attr]
    assert modes == [PowerMode.BURST, IDLE_MODE, IDLE_MODE, IDLE_MODE, PowerMode.BURST]
    assert inner.observed == [PowerMode.BURST] * 2
    inner = Fixed(IDLE_MODE)
    chosen = IdlingPlacer(inner, lambda: True)  # type: ignore[arg-type]
    placement = chosen.place()
    assert placement is not None
    chosen.observe(placement, 1000)
    assert inner.observed == [IDLE_MODE], "the scheduler's own step is watched as any other"
    on_cpu = IdlingPlacer(Fixed(PowerMode.NONE), lambda: True)  # type: ignore[arg-type]
    assert on_cpu.place().power_mode is PowerMode.NONE  # type: ignore[union-attr]


def test_decisions_only_ever_pass_or_are_unknown() -> None:
    assert {reason.verdict for reason in (Reason.OK, Reason.MARGINAL, Reason.NO_PART)} == {
        Verdict.PASS, Verdict.UNKNOWN
    }  # fmt: skip
