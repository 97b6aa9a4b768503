"""A line on a recorded board that gets hot: what is told of it, and when."""

from __future__ import annotations

from pathlib import Path

import cv2
import toys
from sysfs import SysfsTree
from wire_samples import until

from edge_app.app import App, build
from edge_app.config.load import load_pipeline


def told(app: App, name: str) -> str | None:
    """What an alarm says now; None: it does not stand."""
    return next((alarm.text for alarm in app.outlet._alarms.active() if alarm.name == name), None)


def test_an_alarm_says_what_is_so_now_not_what_was_so_when_it_was_raised(tmp_path: Path, toy_model: Path) -> None:
    board = SysfsTree(tmp_path / "sys")
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
    app = build(load_pipeline(tmp_path / "line.yaml"), "line")
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
