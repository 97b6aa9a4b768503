"""What a decision costs per frame.

    python tests/bench/scheduler.py

`frame` is what the line pays for every trigger (admit and decide, with the last run's observation) on a board with 18
zones that are read once a second while 20 parts a second come; `no news` is a frame between two readings, `new zones`
one with a reading that is new, on a cool board and on one where every rung has to be weighed. Microseconds of CPU time.

Seen on two cores with a load of 25 (nothing else on them: less than half): 10 us a frame; 6.5 (median) between two
readings, 62 with a new one on a cool board, 100 with all rungs weighed: once a second, that is.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from boards import ALL, ALL_AGREE, START_US, all_well

from edge_app.config.scheduler import Scheduler
from edge_app.scheduler import Inputs, Observation, Policy, State, admit, build_policy, decide, initial_state
from edge_app.verdict import PowerMode
from edge_app.zones import Trip, Zone, ZoneGroup, ZoneReading, ZoneSnapshot, ZoneState

ZONES = [
    *(Zone(f"nspss{n}", "nsp", ZoneGroup.NSP, (Trip("hot", 95.0),)) for n in range(3)),
    *(Zone(f"cpu{n}", "cpu", ZoneGroup.CPU, (Trip("passive", 95.0),)) for n in range(14)),
    Zone("skin", "skin", ZoneGroup.SKIN, (Trip("passive", 75.0),)),
]
PERIOD_US = 50_000
FRAMES = 20_000


def snapshot(t_us: int, temp_c: float) -> ZoneSnapshot:
    return ZoneSnapshot(t_us, tuple(ZoneReading(zone.name, ZoneState.OK, temp_c, 0.05) for zone in ZONES))


def started(policy: Policy, temp_c: float) -> tuple[State, int]:
    state, now = initial_state(policy), START_US
    state, decision = decide(policy, state, Inputs(now, snapshot(now, temp_c)))
    for _ in range(3):
        now += 1_000_000
        events = tuple(all_well(action) for action in decision.actions)
        state, decision = decide(policy, state, Inputs(now, snapshot(now, temp_c), events))
    return state, now


def run(temp_c: float, new_zones: Callable[[int], bool]) -> dict[str, float]:
    """Times `FRAMES` frames; `new_zones` tells for which of them there is a new snapshot."""
    policy = build_policy(Scheduler(), ALL, ALL_AGREE, ZONES)
    state, now = started(policy, temp_c)
    zones = snapshot(now, temp_c)
    took = []
    for frame in range(FRAMES):
        now += PERIOD_US
        if new_zones(frame):
            zones = snapshot(now, temp_c)
        observations = (Observation(ALL[0], PowerMode.BURST, 20_000 + frame % 13, 3_000),)
        start = time.thread_time_ns()
        state, _ = admit(state, now)
        state, _ = decide(policy, state, Inputs(now, zones, (), observations, 240_000))
        took.append((time.thread_time_ns() - start) / 1000)
    ordered = sorted(took)
    return {
        "mean_us": round(statistics.fmean(took), 1),
        "p50_us": round(ordered[FRAMES // 2], 1),
        "p99_us": round(ordered[FRAMES * 99 // 100], 1),
    }


def main() -> None:
    """Prints one JSON document."""
    per_second = 1_000_000 // PERIOD_US
    print(
        json.dumps(
            {
                "frame": run(60.0, lambda frame: frame % per_second == 0),
                "no news": run(60.0, lambda frame: frame % per_second == 0 and frame == 0),
                "new zones, cool": run(60.0, lambda _frame: True),
                "new zones, all rungs weighed": run(97.0, lambda _frame: True),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
