"""What a soak makes of what it saw; the soak itself is a step of .ci/run."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from edge_app.bench.start import stopped, write_picture
from edge_app.cli import main
from edge_app.commands.soak import LONG_S, Soak, command, fill, report, slope
from edge_app.config.load import load_pipeline
from edge_app.errors import RuntimeFault


def soak(growth_mb_a_minute: float = 0.0, seconds: int = 60, more_handles: int = 0) -> Soak:
    """A run as it was seen, a sample each second."""
    samples = [
        (float(s), 100 + growth_mb_a_minute * s / 60, 20 + (more_handles if s == seconds else 0), 15)
        for s in range(seconds + 1)
    ]
    return Soak(Path("."), "", "", samples=samples, got=10, verdicts={"OK": 9, "LATE": 1})


def test_the_slope_of_a_line_is_its_slope() -> None:
    assert slope([(0.0, 5.0), (30.0, 6.0), (60.0, 7.0)]) == pytest.approx(2.0)
    assert slope([(0.0, 5.0)]) == 0.0


def test_a_run_that_lost_nothing_holds() -> None:
    document = report(soak(), 0, {"lost": 0})
    assert (document["ok"], document["failed"], document["late"], document["minutes"]) == (True, [], 1, 1.0)


@pytest.mark.parametrize(
    ("seen", "code", "summary", "failed"),
    [
        (soak(), 5, {"lost": 0}, "the line's exit code is 5"),
        (soak(), 0, {"lost": 2}, "2 triggers without a result"),
        (soak(), 0, {}, "None triggers without a result"),
        (soak(more_handles=9), 0, {"lost": 0}, "9 more handles at the end"),
        (soak(3.0, int(LONG_S)), 0, {"lost": 0}, "memory grows by 3.00 MB a minute"),
    ],
)
def test_what_does_not_hold_is_named(seen: Soak, code: int, summary: dict[str, int], failed: str) -> None:
    document = report(seen, code, summary)
    assert (document["ok"], document["failed"]) == (False, [failed])


def test_results_that_did_not_reach_the_client_fail() -> None:
    seen = soak()
    seen.lost = 3
    assert report(seen, 0, {"lost": 0})["failed"] == ["3 results did not reach the client"]


def test_memory_of_a_short_run_is_told_and_not_judged() -> None:
    document = report(soak(3.0), 0, {"lost": 0})
    assert (document["ok"], document["memory slope, MB a minute"]) == (True, 3.0)


def test_a_disk_that_takes_no_more_ends_the_filling() -> None:
    fill(Path("/dev/full"))


def test_nothing_of_the_plant_is_touched_and_the_line_triggers_itself(tmp_path: Path) -> None:
    """Its keys would keep the soak's client out, its evidence would be deleted by the soak's quota."""
    file = tmp_path / "line.yaml"
    file.write_text("""\
camera: {type: synthetic}
model: {path: .}
limits: {pacing: realtime, deadline_ms: 50, trigger: software}
results: {evidence: {path: evidence}, journal: {path: results.db}, security: {key: a.toml, clients: b.toml}}
update: {store: models}
""")
    words = command(Soak(tmp_path / "soak"), argparse.Namespace(pipeline=file, rate=2.0, overrides=[]))
    made = load_pipeline(file, [words[n + 1] for n, word in enumerate(words) if word == "--set"])
    assert (made.results.security.key, made.results.evidence.path, made.update.store) == (None, None, None)
    assert made.results.journal.path == tmp_path / "soak" / "state" / "results.db"
    assert (made.limits.trigger, made.limits.deadline_ms) == ("camera", 50)


def test_a_bad_setting_is_told_before_anything_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "line.yaml"
    file.write_text("camera: {type: synthetic}\nmodel: {path: .}\nlimits: {pacing: offline}\n")
    assert main(["soak", "--pipeline", str(file), "--rate", "1e300"]) == 2
    assert "camera.rate_fps" in capsys.readouterr().err


def test_a_clock_that_can_not_be_stepped_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_app.commands.soak.FAKETIME", None)
    assert main(["soak", "--pipeline", "line.yaml", "--step-clock"]) == 2
    assert "wanted: libfaketime" in capsys.readouterr().err


def test_a_line_that_does_not_end_is_killed() -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    line = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
    assert line.stdout is not None
    line.stdout.readline()
    assert stopped(line, 0.01) == -9
    line.stdout.close()


def test_a_picture_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(RuntimeFault, match="can't write the picture") as caught:
        write_picture(tmp_path / "file")
    assert caught.value.got == "File exists"
