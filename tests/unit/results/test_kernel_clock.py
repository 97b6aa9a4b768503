"""What results say of the clock."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from wire_samples import Node

from edge_app.results.identity import ClockInfo
from edge_app.results.kernel_clock import TIME_ERROR, Timex, clock_now, told_by

PLACES = """
#include <stddef.h>
#include <stdio.h>
#include <sys/timex.h>
int main(void) {
    printf("%zu %zu %zu %d", offsetof(struct timex, maxerror), offsetof(struct timex, status), sizeof(struct timex),
           TIME_ERROR);
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_the_structure_is_the_systems(tmp_path: Path) -> None:
    (tmp_path / "places.c").write_text(PLACES)
    subprocess.run(["gcc", "-o", tmp_path / "places", tmp_path / "places.c"], check=True)
    told = subprocess.run([tmp_path / "places"], check=True, capture_output=True).stdout
    maxerror, status, size, error = map(int, told.split())
    assert (Timex.maxerror.offset, Timex.status.offset, TIME_ERROR) == (maxerror, status, error)
    assert Timex.rest.offset + Timex.rest.size >= size, "the kernel writes all of it"


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (0, ClockInfo("ntp", 400)),
        (4, ClockInfo("ntp", 400)),  # after a leap second
        (TIME_ERROR, ClockInfo("unsynchronised", None)),
        (-1, ClockInfo("unsynchronised", None)),  # it may not be asked
    ],
)
def test_only_a_clock_that_is_kept_right_is_vouched_for(state: int, told: ClockInfo) -> None:
    assert told_by(state, 400) == told


def test_results_and_heartbeats_follow_the_kernel(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    assert node.outlet.identity.clock.source == clock_now().source
    monkeypatch.setattr("edge_app.results.outlet.clock_now", lambda: ClockInfo("ntp", 7))
    beats = node.client.next("heartbeat"), node.client.next("heartbeat")
    assert beats[1]["epoch"] == node.outlet.identity.epoch
    node.outlet.result(node.line.seal())
    assert node.client.next("result")["clock"] == {"source": "ntp", "err_us": 7}
