"""A board that heats up and cools down again while parts come: htp -> hybrid -> cpu -> htp, as a plant sees it.

The node is a process of its own on the simulated HTP, its temperatures are a recorded sysfs tree, and what is checked
came over the wire: every part once, the verdict of every picture the same on every plan, and the reasons.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import pytest
import toys
from nodes import free_port
from sysfs import SysfsTree
from toy_plans import SOC

from edge_app.client import Delivery, Line, Start

HOT = {"htp": 79.0, "hybrid": 93.5, "cpu": 94.0}
"""NPU temperatures (its trip point is at 95) at which the default ladder is on each plan."""
PATIENCE_S = 180.0
PATIENCE_WITH_A_REAL_MODEL_S = 5400.0


@dataclass
class Watched:
    """What a node said, from its first part on."""

    results: list[Mapping[str, Any]] = field(default_factory=list)
    states: list[Mapping[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def plans(self) -> list[str]:
        return [result["sched"]["plan"] for result in self.results]

    @property
    def verdicts(self) -> list[str]:
        return [result["verdict"] for result in self.results]

    def way(self) -> list[str]:
        """Plans in the order in which they were gone to."""
        return [p for i, p in enumerate(self.plans) if i == 0 or p != self.plans[i - 1]]


def write_pipeline(folder: Path, model: Path, camera: str, ports: tuple[int, int]) -> Path:
    """On the simulator a run takes as long as it takes: a plan is warm after one. Zones left alone are not frozen."""
    file = folder / "heating.yaml"
    file.write_text(f"""\
camera:
{camera}
model:
  path: {model}
runtime:
  provider: qnn
  soc: {SOC}
  threads: 1
  timeout_ms: 600000
  warmup_runs: 1
scheduler:
  sysfs_root: sys
  sample_s: 0.05
  frozen_s: 100000
  lookahead_s: 0
  drift: {{ratio: 100}}
  dwell: {{down_s: 0.1, up_s: 0.2}}
results:
  publish: tcp://127.0.0.1:{ports[0]}
  commands: tcp://127.0.0.1:{ports[1]}
limits:
  pacing: offline
  slots: 2
""")
    return file


Way = Sequence[tuple[str, int, Callable[[], None]]]
"""Plans (and reasons) in the order in which they are expected, and what happens when so many parts came on each."""


def watch(pipeline: Path, ports: tuple[int, int], way: Way, *more: str, least: int = 0) -> Watched:
    """Runs a node until it has gone the way, with so many parts seen live on each plan and `least` in all.

    What the client missed because it joined late is replayed, so results begin with the first one; only live ones move
    the board on, so that its changes are not missed either.
    """
    watched = Watched()
    command = [sys.executable, "-P", "-m", "edge_app", "--pipeline", str(pipeline), "--json", *more]
    # In its own folder: there it would leave the note that keeps the NPU out.
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=pipeline.parent)
    stages = iter(way)
    (goal, enough, then), on_goal = next(stages), 0
    end = time.monotonic() + (PATIENCE_WITH_A_REAL_MODEL_S if least else PATIENCE_S)
    try:
        with Line(*(f"tcp://127.0.0.1:{port}" for port in ports), start=Start.OLDEST) as line:
            while goal or len(watched.results) < least:
                result = line.next(0.2)
                watched.states += [event for event in line.events() if event["kind"] == "state"]
                assert node.poll() is None, node.communicate()
                assert time.monotonic() < end, (watched.way(), goal, on_goal, line.fault)
                if result is None:
                    continue
                watched.results.append(result.data)
                sched = "{plan} {reason}".format(**result.data["sched"])
                on_goal += result.delivery is Delivery.LIVE and sched.startswith(goal)
                if goal and on_goal >= enough:
                    threading.Thread(target=then).start()
                    (goal, enough, then), on_goal = next(stages, ("", 0, nothing)), 0
        node.terminate()
        out, err = node.communicate(timeout=60)
        assert node.returncode == 0, err
        watched.summary = json.loads(out)
    finally:
        if node.poll() is None:
            node.kill()
            node.communicate()
    # None is missing or double; what came after the client had left is in the summary.
    assert [result["seq"] for result in watched.results] == list(range(1, len(watched.results) + 1))
    assert len({result["trigger_id"] for result in watched.results}) == len(watched.results)
    assert watched.summary["frames"] >= len(watched.results)
    assert watched.summary["lost"] == 0
    assert {r["reason"] for r in watched.results if r["verdict"] == "UNKNOWN"} <= {"MARGINAL"}
    assert set(watched.summary["unknown_by_reason"]) <= {"MARGINAL", "NOT_RUNNING"}  # those in flight at its end
    return watched


def nothing() -> None:
    """The board stays as it is."""


def go_to(tree: SysfsTree, was_c: float, goal_c: float, *kinds: str) -> None:
    """No faster than silicon could, 25 C a second: a jump is not believed, however late a busy machine reads it."""
    steps = math.ceil(abs(goal_c - was_c) / 5)
    for step in range(1, steps + 1):
        for kind in kinds or ("nspss0-thermal",):
            tree.set_c(kind, was_c + (goal_c - was_c) * step / steps)
        time.sleep(0.25)


def heat_and_cool(
    folder: Path, model: Path, camera: str, parts: tuple[int, int, int] = (6, 6, 6), least: int = 0
) -> Watched:
    """A node on a board that heats up and cools down, with so many parts at least on htp, hybrid and cpu."""
    tree = SysfsTree(folder / "sys")
    tree.set_c("nspss0-thermal", HOT["htp"])
    ports = free_port(), free_port()
    pipeline = write_pipeline(folder, model, camera, ports)
    turns = itertools.pairwise(("htp", "hybrid", "cpu", "htp"))
    way = [
        (was, enough, functools.partial(go_to, tree, HOT[was], HOT[goal]))
        for (was, goal), enough in zip(turns, parts, strict=True)
    ]
    return watch(pipeline, ports, [*way, ("htp NORMAL", parts[0], nothing)], least=least)


def assert_the_way_and_its_reasons(watched: Watched) -> None:
    assert watched.way() == ["htp", "hybrid", "cpu", "htp"]
    by_plan = defaultdict(set)
    for result in watched.results:
        by_plan[result["sched"]["plan"]].add(result["sched"]["reason"])
        assert set(result["sched"]["zones_c"]) == {"nspss0", "nspss1", "cpu0", "cpu4", "msm-skin"}
    assert by_plan["hybrid"] <= {"HOT", "RECOVERING"}
    assert "HOT" in by_plan["hybrid"]
    assert "HOT" in by_plan["cpu"]
    assert watched.results[0]["sched"]["reason"] == watched.results[-1]["sched"]["reason"] == "NORMAL"
    assert any("hybrid_fallback" in result["degraded"] for result in watched.results)
    assert any("cpu_fallback" in result["degraded"] for result in watched.results)
    told = [
        state["sched"]["plan"] for state in watched.states if state["mode"] == "RUNNING" and state["was"] == "RUNNING"
    ]
    assert [plan for i, plan in enumerate(told) if i == 0 or plan != told[i - 1]][-3:] == ["hybrid", "cpu", "htp"]


def pictures_in(folder: Path) -> str:
    """A camera that gives good and bad parts in turn, for ever."""
    pictures = folder / "pictures"
    pictures.mkdir()
    for number in range(8):
        cells = [(2, 2)] if number % 2 else []
        cv2.imwrite(str(pictures / f"part{number}.png"), toys.detector_picture(cells, seed=number % 4))
    return "  type: folder\n  path: pictures\n  rate_fps: 20\n  loop: true"


def in_turn(count: int) -> list[str]:
    return list(itertools.islice(itertools.cycle(("PASS", "FAIL")), count))


def test_toy_goes_to_hybrid_and_cpu_and_back_while_parts_come(toy_plans: Path, tmp_path: Path) -> None:
    watched = heat_and_cool(tmp_path, toy_plans, pictures_in(tmp_path))
    assert_the_way_and_its_reasons(watched)
    assert watched.verdicts == in_turn(len(watched.results))


def test_a_frozen_board_starts_on_hybrid_and_the_npu_takes_over_when_it_is_warm(
    toy_plans: Path, tmp_path: Path
) -> None:
    tree = SysfsTree(tmp_path / "sys")
    for kind in tree.folders:
        tree.set_c(kind, -20.0)
    ports = free_port(), free_port()
    pipeline = write_pipeline(tmp_path, toy_plans, pictures_in(tmp_path), ports)
    warm_up = functools.partial(go_to, tree, -20.0, 8.0, *tree.folders)
    watched = watch(pipeline, ports, [("hybrid", 6, warm_up), ("htp NORMAL", 6, nothing)])
    assert watched.way() == ["hybrid", "htp"]
    assert watched.results[0]["sched"]["reason"] == "COLD"
    assert watched.results[0]["sched"]["zones_c"]["nspss0"] == -20.0
    assert watched.results[-1]["sched"]["reason"] == "NORMAL"
    assert watched.verdicts == in_turn(len(watched.results))


@pytest.mark.slow
def test_pcb_defect_goes_to_hybrid_and_cpu_and_back_while_parts_come(tmp_path: Path) -> None:
    """100 parts of the synthetic line at least; none gets the opposite of what it gets on the cpu plan alone."""
    model = Path(__file__).resolve().parents[2] / "models" / "pcb-defect"
    if not (model / "plans" / SOC).is_dir():
        pytest.skip(f"needs {model} with plans for {SOC}: edge_app model compile pcb-defect --soc {SOC}")
    camera = "  type: synthetic\n  seed: 1000"
    # A run on the simulated NPU takes 10 to 60 s, on the cpu plan less than one: there are most of the parts. Of those
    # on the NPU some are under way wherever the plan changes.
    watched = heat_and_cool(tmp_path, model, camera, parts=(1, 1, 96), least=100)
    assert_the_way_and_its_reasons(watched)
    ports = free_port(), free_port()
    pipeline = write_pipeline(tmp_path, model, camera, ports)
    parts = len(watched.results)
    alone = watch(pipeline, ports, [("cpu", 6, nothing)], "--set", "runtime.provider=cpu", least=parts)
    assert set(alone.plans) == {"cpu"}
    pairs = list(zip(watched.verdicts, alone.verdicts, strict=False))
    assert len(pairs) == parts
    assert [pair for pair in pairs if set(pair) == {"PASS", "FAIL"}] == []
    same = sum(one == other for one, other in pairs)
    assert same >= 0.97 * parts, "a score in the grey band may fall to either side of its edge"
