"""`edge_app profile` on a real line: every frame passes every stage, and the trace says so too."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import cv2
import pytest
import toys

from edge_app.cli import main
from edge_app.profiling import Recorder, Span, stage_times

FRAMES = 20
INNER = ("guard", "preprocess", "infer", "decode", "judge")


@pytest.fixture
def pipeline(tmp_path: Path, toy_model: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    for number in range(5):
        cv2.imwrite(str(tmp_path / "pictures" / f"{number}.png"), toys.detector_picture([(2, 2)], seed=number))
    file = tmp_path / "line.yaml"
    file.write_text(f"""\
camera: {{type: folder, path: pictures, loop: true}}
model: {{path: {toy_model}}}
runtime: {{provider: cpu, threads: 1}}
limits: {{pacing: offline, slots: 2}}
results: {{publish: "tcp://127.0.0.1:1", journal: {{path: results.db}}, evidence: {{path: pictures.kept}}}}
""")
    return file


def test_every_stage_of_every_frame(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = pipeline.parent / "trace.json"
    assert main(["profile", str(pipeline), "--frames", str(FRAMES), "--trace", str(trace), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    stages = {one["stage"]: one for one in document["stages"]}
    assert document["summary"]["frames"] == FRAMES
    assert set(stages) >= set(INNER)
    for stage in stages.values():
        assert 0 < stage["p50_ms"] <= stage["p99_ms"] <= stage["worst_ms"]
        assert stage["calls"] <= FRAMES + 1
        assert 0 < stage["busy"] <= 1.01

    events = json.loads(trace.read_text())["traceEvents"]
    calls = Counter(event["name"] for event in events if event["ph"] == "X")
    assert {stage: calls[stage] for stage in INNER} == dict.fromkeys(INNER, FRAMES)
    threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    where = {event["name"]: threads[event["tid"]] for event in events if event["ph"] == "X"}
    assert (where["camera"], where["preprocess"], where["infer"], where["judge"]) == (
        "camera", "preprocess", "inference", "judge",
    )  # fmt: skip
    passages = {ph: [event["id"] for event in events if event["ph"] == ph] for ph in "be"}
    assert sorted(passages["b"]) == sorted(passages["e"]) == list(range(1, FRAMES + 1))
    for frame in range(1, FRAMES + 1):
        spans = [event for event in events if event["ph"] == "X" and event["args"].get("frame") == frame]
        at = {event["name"]: (event["ts"], event["ts"] + event["dur"]) for event in spans}
        order = ["camera", "guard", "preprocess", "infer", "decode", "publish"]
        assert all(at[before][1] <= at[after][0] for before, after in pairwise(order))
    assert not (pipeline.parent / "results.db").exists()  # a plant's books are not for trials
    assert not (pipeline.parent / "pictures.kept").exists()


def test_for_people(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(pipeline), "--frames", "5"]) == 0
    out, err = capsys.readouterr()
    assert "time in each stage, ms" in out
    assert "is the busiest stage" in err


def test_a_trace_that_can_not_be_written_is_told(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(pipeline), "--frames", "2", "--trace", str(pipeline / "x.json")]) == 2
    out, err = capsys.readouterr()
    assert "can't write the trace" in err
    assert "time in each stage, ms" in out, "what the run came to is not thrown away"


def test_times_are_those_of_the_calls() -> None:
    recorder = Recorder()
    ms = 1_000_000
    recorder.spans = [Span("infer", 1, "inference", 0, 90 * ms), Span("publish", 1, "judge", 95 * ms, 5 * ms)]
    recorder.spans += [Span("infer", n, "inference", (80 + 10 * n) * ms, 5 * ms) for n in range(2, 12)]
    (infer,) = stage_times(recorder)  # the first frame is left out, with its publishing
    assert (infer.calls, infer.mean_ms, infer.p50_ms, infer.worst_ms) == (10, 5, 5, 5)
    assert infer.busy == pytest.approx(50 / 95)
    assert stage_times(Recorder()) == []
