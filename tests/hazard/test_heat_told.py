"""A line on a recorded board that gets hot: what is told of it, and when."""

from __future__ import annotations

from pathlib import Path

import cv2
import toys
from sysfs import SysfsTree
from wire_samples import until

from edge_app.app import App, build
from edge_app.config.load import load_pipeline
from edge_app.governor import Governor


def told(app: App, name: str) -> str | None:
    """What an alarm says now; None: it does not stand."""
    return next((alarm.text for alarm in app.outlet._alarms.active() if alarm.name == name), None)


def line(tmp_path: Path, toy_model: Path) -> App:
    """On the board below `tmp_path`/sys."""
    (tmp_path / "pictures").mkdir()
    cv2.imwrite(str(tmp_path / "pictures" / "part.png"), toys.detector_picture([]))
    (tmp_path / "line.yaml").write_text(f"""\
camera: {{type: folder, path: pictures, loop: true, rate_fps: 20}}
model: {{path: {toy_model}}}
runtime: {{provider: cpu, threads: 1}}
limits: {{pacing: offline}}
scheduler: {{thermal: always, sysfs_root: sys, sample_s: 0.05, lookahead_s: 0, dwell: {{down_s: 0.1, up_s: 0.1}}}}
results: {{publish: null, commands: null}}
""")
    return build(load_pipeline(tmp_path / "line.yaml"), "line")


def test_an_alarm_says_what_is_so_now_not_what_was_so_when_it_was_raised(tmp_path: Path, toy_model: Path) -> None:
    board = SysfsTree(tmp_path / "sys")
    app = line(tmp_path, toy_model)
    app.start()
    try:
        for temp_c in (65.0, 84.0):  # in steps that silicon makes
            board.set_c("cpu4-thermal", temp_c)
            until(lambda wanted=temp_c: app.line.placement.zones_c["cpu4"] == wanted)
        until(lambda: told(app, "RATE_REDUCED") == "only 55% of triggers are inspected")
        board.set_c("cpu4-thermal", 89.9)
        until(lambda: told(app, "RATE_REDUCED") == "only 10% of triggers are inspected")
        board.set_c("cpu4-thermal", 66.0)
        until(lambda: told(app, "RATE_REDUCED") is None)
    finally:
        app.stop()
        assert app.wait(60)
        app.close()


def test_zones_of_drivers_that_load_after_the_line_are_watched_when_they_come(tmp_path: Path, toy_model: Path) -> None:
    """As at boot: until somebody restarted the service, the line went on as if the board was hot."""
    (tmp_path / "sys" / "class" / "thermal").mkdir(parents=True)
    app = line(tmp_path, toy_model)
    app.start()
    try:
        until(lambda: "there is no cpu zone" in (told(app, "SENSOR_LOST") or ""))
        until(lambda: app.line.placement.rate < 1.0)
        board = SysfsTree(tmp_path / "late")
        (tmp_path / "late" / "class" / "thermal").rename(tmp_path / "sys" / "class" / "thermal")  # each zone whole
        board.folders = {
            kind: tmp_path / "sys" / folder.relative_to(board.root) for kind, folder in board.folders.items()
        }
        until(lambda: told(app, "SENSOR_LOST") is None and app.line.placement.rate == 1.0)
        assert app.line.placement.zones_c["cpu4"] == 44.0
        board.set_c("cpu4-thermal", 65.0)
        until(lambda: app.line.placement.zones_c["cpu4"] == 65.0)
        board.set_c("cpu4-thermal", 84.0)
        until(lambda: told(app, "RATE_REDUCED") == "only 55% of triggers are inspected")  # its own trip points hold
        placer = app.placed.placer
        assert isinstance(placer, Governor)
        assert "cpu4" in placer.limits
    finally:
        app.stop()
        assert app.wait(60)
        app.close()
