"""Rows, goals, the document, and the ledger of benchmarks: what is told, not how fast anything is."""

import json
import time
from pathlib import Path

import pytest

from edge_app.bench import ledger
from edge_app.bench.figures import Figures, Options, document
from edge_app.bench.goals import GOALS
from edge_app.bench.timing import Case, compared, run
from edge_app.errors import ConfigError

FAST = {"ours": [0.001] * 8, "floor": [0.0008] * 8, "peer": [0.004] * 8}


def test_a_peers_ratio_is_its_time_over_ours_and_the_floors_ours_over_it():
    values = compared("w1", "", ("ours", "floor", "peer", "absent"), FAST).values
    assert values["ours_ms"] == 1.0
    assert values["ratio_peer"] == values["best_ratio_peer"] == 4.0
    assert values["ratio_floor"] == 1.25
    assert values["ratio_absent"] is None
    assert values["absent_ms"] is None


def test_best_is_the_eighth_of_the_fastest_runs():
    times = {"ours": [0.001] * 2 + [0.005] * 14, "peer": [0.002] * 16}
    values = compared("w1", "", times, times).values
    assert values["ours_best_ms"] == 5.0  # the third of sixteen
    times["ours"] = [0.001] * 3 + [0.005] * 13
    assert compared("w1", "", times, times).values["best_ratio_peer"] == 2.0


def test_cpu_time_is_told_beside():
    cpu = {"ours": [0.001] * 8, "floor": [0.002] * 8, "peer": [0.003] * 8}
    figures = compared("w1", "", ("ours", "floor", "peer", "absent"), FAST, cpu)
    assert figures.values["cpu_ratio_peer"] == 3.0
    assert figures.values["cpu_ratio_floor"] == 0.5
    assert figures.values["cpu_ratio_absent"] is None
    assert list(figures.rows())[2][1] == "4 ms = 4x (best eighth 4x, CPU 3x)"


def test_an_absent_peer_is_a_row_of_its_own():
    rows = list(compared("w1", "title", ("ours", "peer", "absent"), FAST).rows())
    assert rows[0][:2] == ("w1: title", "1 ms (best eighth 1)")
    assert rows[1][:2] == ("  peer", "4 ms = 4x (best eighth 4x)")
    assert rows[2][:2] == ("  absent", "not installed")


@pytest.mark.parametrize(
    ("ratio", "told"), [(3.9, ">= 4 missed"), (4.0, ">= 4 reached"), (None, ">= 4 ?"), (4.1, ">= 4 reached")]
)
def test_goals_stand_beside_the_figures(ratio, told):
    values = {"ours_ms": 1.0, "ours_best_ms": 1.0, "tuned_cv2_ms": 1.0, "ratio_tuned_cv2": ratio,
              "best_ratio_tuned_cv2": ratio}  # fmt: skip
    row = list(Figures("w1_1080p_f32", "", values).rows())[1]
    assert " ".join(row[2:]) == told


@pytest.mark.parametrize(
    ("ours_ms", "floor_ms", "told"),
    [(1.0, 0.5, "missed"), (1.0, 0.9, "beyond the floor, 3.33x"), (0.8, 0.9, "beyond the floor, 3.75x"),
     (0.7, 0.9, "reached")],
)  # fmt: skip
def test_a_goal_that_memory_forbids_is_told_from_one_that_was_missed(ours_ms, floor_ms, told):
    times = {"ours": [ours_ms / 1e3], "floor": [floor_ms / 1e3], "tuned_cv2": [0.003]}
    row = list(compared("w1_1080p_f32", "", times, times).rows())[2]
    assert row[2:] == (">= 4", told)


def test_upper_bounds_are_goals_too():
    rows = list(Figures("memory_cpu_plan", "", {"resident_mb": 181.0, "growth_mb": 0.0}).rows())
    assert rows[1] == ("  resident_mb", "181", "<= 180", "missed")
    assert rows[2] == ("  growth_mb", "0", "", "")


def test_all_functions_take_turns_on_inputs_that_change():
    seen = []
    case = Case("k", "t", ["a", "b", "c"], {
        "ours": lambda x: seen.append(("ours", x)), "peer": lambda x: seen.append(("peer", x)), "absent": None,
    })  # fmt: skip
    values = run(case, 3).values
    assert seen[2:] == [("ours", "b"), ("peer", "c"), ("ours", "a"), ("peer", "b"), ("ours", "c"), ("peer", "a")]
    assert values["ratio_absent"] is None
    assert values["ratio_peer"] > 0


def test_the_document_names_machine_versions_and_every_figure():
    found = json.loads(json.dumps(document([Figures("w1_1080p_f32", "t", {"ratio_tuned_cv2": 4.2, "peer_ms": None})])))
    assert found["w1_1080p_f32"] == {"ratio_tuned_cv2": 4.2, "peer_ms": None}
    assert found["peers"]["numpy"][0].isdigit()
    assert set(found) == {"version", "commit", "date", "machine", "load", "peers", "w1_1080p_f32"}
    assert found["date"] <= time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def test_goals_have_paths_of_key_and_name():
    assert all(path.count(".") == 1 for path in GOALS)
    assert {"w1_1080p_f32.ratio_tuned_cv2", "w2_1080p_u8.ratio_floor"} <= set(GOALS)


def test_a_ledger_keeps_its_documents_in_order(tmp_path: Path):
    file = tmp_path / "ledger.jsonl"
    for ratio in (4.0, 6.0):
        ledger.append(file, {"version": "1", "commit": "abc", "w1_1080p_f32": {"ratio_tuned_cv2": ratio}})
    documents = ledger.read(file)
    assert [one["w1_1080p_f32"]["ratio_tuned_cv2"] for one in documents] == [4.0, 6.0]


def test_series_are_figures_over_goals_whichever_way_the_bound_goes():
    documents = [
        {"w1_1080p_f32": {"ratio_tuned_cv2": 6.0}, "memory_cpu_plan": {"resident_mb": 90.0}},
        {"w1_1080p_f32": {"ratio_tuned_cv2": None}, "memory_cpu_plan": {"resident_mb": 360.0}},
    ]
    assert ledger.series(documents) == {
        "w1_1080p_f32.ratio_tuned_cv2": [(0, 1.5)],
        "memory_cpu_plan.resident_mb": [(0, 2.0), (1, 0.5)],
    }


def test_a_plot_is_drawn(tmp_path: Path):
    pytest.importorskip("matplotlib")
    documents = [{"version": "1", "commit": None, "w1_1080p_f32": {"ratio_tuned_cv2": 4.0 + n}} for n in range(2)]
    ledger.plot(documents).savefig(tmp_path / "ledger.svg")
    drawn = (tmp_path / "ledger.svg").read_text()
    assert drawn.startswith("<?xml")
    assert "</svg>" in drawn


@pytest.mark.parametrize("text", ["", "no json\n", "[1]\n"])
def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path, text: str):
    file = tmp_path / "ledger.jsonl"
    file.write_text(text)
    with pytest.raises(ConfigError, match="ledger"):
        ledger.read(file)
    with pytest.raises(ConfigError, match=r"absent\.jsonl"):
        ledger.read(tmp_path / "absent.jsonl")


def test_options_have_a_default_for_all_but_the_pipeline():
    assert Options(Path("x")).rounds == 200
