"""The operator page of a whole node: what it says is what the wire says; in a real Chromium where there is one."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import toys
from chromium import BINARY, Browser
from nodes import free_port

from edge_app.client import Line

PATIENCE_S = 40.0


class WatchedNode:
    """A folder of pictures, every third one bad, inspected for ever by the toy model, and its page."""

    def __init__(self, folder: Path, model: Path, more: str = "") -> None:
        (folder / "pictures").mkdir()
        for number in range(9):
            cells = [(2, 2)] if number % 3 == 1 else []
            cv2.imwrite(str(folder / "pictures" / f"part{number}.png"), toys.detector_picture(cells, seed=number))
        self.publish, self.commands = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self._file = folder / "line.yaml"
        self._file.write_text(f"""\
camera: {{type: folder, path: pictures, loop: true, rate_fps: 20}}
model: {{path: {model}}}
runtime: {{provider: cpu, threads: 1}}
limits: {{pacing: offline}}
monitor: {{http: "127.0.0.1:{self.port}"}}
results: {{publish: "{self.publish}", commands: "{self.commands}"}}
{more}""")
        self._process: subprocess.Popen[str] | None = None

    def start(self, *overrides: str) -> None:
        sets = [argument for override in overrides for argument in ("--set", override)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "edge_app", "--pipeline", self._file, *sets], text=True, stderr=subprocess.PIPE
        )

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(20), self._process.communicate()[1]

    def state(self) -> dict[str, Any]:
        """The first event of `/events`."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(self.url + "events", timeout=20) as answer:
                    assert answer.headers["Content-Type"] == "text/event-stream"
                    return dict(json.loads(answer.readline().removeprefix(b"data: ")))
            except urllib.error.URLError:
                assert time.monotonic() < end, "the page does not come"
                time.sleep(0.1)

    def picture(self, state: dict[str, Any]) -> Any:
        """The picture of the last result that did not pass."""
        address = f"{self.url}picture/{state['epoch']}/{state['last']['seq']}.jpg"
        with urllib.request.urlopen(address, timeout=20) as answer:
            return cv2.imdecode(np.frombuffer(answer.read(), np.uint8), cv2.IMREAD_COLOR)

    def until(self, holds: Any) -> dict[str, Any]:
        """The first state that `holds`."""
        end = time.monotonic() + PATIENCE_S
        while not holds(state := self.state()):
            assert time.monotonic() < end, state
            time.sleep(0.1)
        return state


@pytest.fixture
def node(tmp_path: Path, toy_model: Path) -> Iterator[WatchedNode]:
    made = WatchedNode(tmp_path, toy_model)
    made.start()
    yield made
    code, log = made.end()
    assert code in (0, -signal.SIGKILL), log


def test_the_page_says_what_the_wire_says(node: WatchedNode) -> None:
    node.until(lambda state: state["counts"]["fail"] >= 3 and state["last"] and state["last"]["picture"])
    with Line(node.publish, node.commands) as line:
        line.command("hold")
        both = {"publish": 1, "commands": 1}
        held = node.until(
            lambda state: state["mode"] == "HOLD" and state["counts"]["in_flight"] == 0 and state["link"] == both
        )
        jpeg = node.picture(held)  # nothing new comes to push it out
        line.command("start")
        status = line.command("status")
        state = node.until(
            lambda state: state["mode"] == "RUNNING" and failed_in(state) >= held["counts"]["fail"]
            and len(state["pareto"]) == 2
        )  # fmt: skip
    counts, wire = state["counts"], status["counters"]
    assert state["node"] == "l1/st1"
    assert state["epoch"] == status["epoch"]
    assert held["counts"]["fail"] <= wire["fail"] <= counts["fail"]
    assert counts["pass"] + counts["fail"] + counts["unknown"] + counts["in_flight"] == counts["triggers"]
    assert counts["unknown"] == sum(counts["unknown_by_reason"].values())
    assert counts["unknown_by_reason"]["NOT_RUNNING"] > 0
    assert counts["lost"] == 0
    assert state["monitor"] == {"missed": 0, "pictures_failed": 0}
    assert sum(map(sum, state["trend"])) <= counts["triggers"]
    causes = {(row["verdict"], row["cause"]): row["count"] for row in state["pareto"]}
    assert set(causes) == {("FAIL", "bright"), ("UNKNOWN", "NOT_RUNNING")}
    assert causes["FAIL", "bright"] == failed_in(state)
    assert 0 < len(state["recent"]) <= 12
    assert all(one["verdict"] != "PASS" for one in state["recent"])
    last = held["last"]
    assert last["picture"] == {"width": 64, "height": 64}
    assert [box["label"] for box in last["boxes"]] == ["bright"]
    assert jpeg.shape == (64, 64, 3)
    assert jpeg[18:30, 18:30].mean() > 200  # the square that the toy model finds
    with pytest.raises(urllib.error.HTTPError, match="404"):
        node.picture({**held, "epoch": "0123456789abcdef"})


def failed_in(state: dict[str, Any]) -> int:
    """FAIL in the last hour."""
    return sum(minute[1] for minute in state["trend"])


def test_without_pictures_none_is_shown(tmp_path: Path, toy_model: Path) -> None:
    node = WatchedNode(tmp_path, toy_model)
    node.start("monitor.pictures=false")
    state = node.until(lambda state: state["counts"]["fail"] >= 2 and state["recent"])
    assert [one["picture"] for one in (state["last"], *state["recent"])] == [None] * (1 + len(state["recent"]))
    assert node.end()[0] == 0


def test_a_taken_port_is_an_alarm_and_the_line_goes_on(tmp_path: Path, toy_model: Path) -> None:
    node = WatchedNode(tmp_path, toy_model)
    with socket.create_server(("127.0.0.1", node.port)):
        node.start()
        with Line(node.publish, node.commands) as line:
            end = time.monotonic() + PATIENCE_S
            while line.next(0.2) is None:
                assert time.monotonic() < end, "no result"
            (alarm,) = (one for one in line.command("status")["alarms"] if one["alarm"] == "MONITOR_FAILED")
        code, log = node.end()
    assert f"127.0.0.1:{node.port}" in alarm["text"]
    assert "another port" in alarm["remedy"]
    assert code == 0
    assert "the page can't be served there" in log


def test_other_machines_without_a_token_are_refused_at_start(tmp_path: Path, toy_model: Path) -> None:
    node = WatchedNode(tmp_path, toy_model)
    node.start("monitor.http=0.0.0.0:0")
    assert node._process is not None
    log = node._process.communicate(timeout=PATIENCE_S)[1]
    assert node._process.returncode == 2
    assert "without a token only this machine may look" in log
    assert "monitor.token_file" in log


needs_chromium = pytest.mark.skipif(BINARY is None, reason="needs Chromium: apt-get install chromium")
STATE = "typeof lastState !== 'undefined' && lastState !== null"
FITS = "[document.documentElement.scrollWidth <= innerWidth, document.documentElement.scrollHeight <= innerHeight]"
CUT = """[...document.querySelectorAll('dd, #last-word, .count b, #pareto b, .zone b')]
    .filter(e => e.offsetParent && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline')
    .map(e => e.id + e.textContent)"""

DRAWN_WHERE_TOLD = """(() => {
    const box = document.querySelector('#last-boxes rect').getBoundingClientRect();
    const image = document.getElementById('last-image').getBoundingClientRect();
    const scale = Math.min(image.width, image.height) / 64, [x0, y0, x1, y1] = lastState.last.boxes[0].box_px;
    const wanted = [x0, y0, x1, y1].map((edge, axis) => edge * scale + (axis % 2
        ? image.y + (image.height - 64 * scale) / 2 : image.x + (image.width - 64 * scale) / 2));
    return [box.left, box.top, box.right, box.bottom].every((edge, axis) => Math.abs(edge - wanted[axis]) < 4);
})()"""

WORST_DAY = """(() => { lastAt = Infinity; const s = structuredClone(lastState);
    s.mode = 'FAULT'; s.node = 'hall-7-press-line-12/station-end-of-line-3';
    s.recipe.name = 'a-recipe-with-quite-a-long-name';
    s.link = {publish: 3, commands: 2}; s.t_us -= 86400e6;
    Object.assign(s.counts, {pass: 123456789, fail: 98765432, unknown: 12345678, lost: 3});
    const long = 'more words than anybody should write in such a place '.repeat(4);
    const alarm = {alarm: 'CONNECTIONS_REFUSED', since_us: s.t_us - 4e9, text: long, remedy: long, acked: true};
    s.alarms = [alarm, alarm, alarm];
    s.pareto = Array(9).fill({verdict: 'UNKNOWN', cause: 'INCOMPLETE_FRAME', count: 123456});
    s.trend = s.trend.map((_, minute) => [1500, 20 * minute, 900]);
    s.latency = {deadline_us: 50000, p50_us: 21234, p99_us: 58765, worst_us: 2345678, over: 4096};
    s.sched = {plan: 'hybrid', power_mode: 'sustained_high_performance', rate: 0.7, reason: 'HOT', detail: long};
    s.zones = ['cpu', 'nsp', 'skin'].flatMap(group => [...Array(12).keys()].map(n => ({name: `${group}-1-${n}`, group,
        temp_c: n ? 60 + n : null, state: 'unreadable', warm_c: 83, hot_c: 92, trip_c: 95})));
    s.degraded = ['cpu_fallback', 'journal_off', 'rate_reduced', 'throttled']; s.camera_trouble = long;
    s.recent.forEach(r => { r.part_id = 'PART-2026-11-30-000001'; r.reason = 'INCOMPLETE_FRAME'; });
    draw(s); watch(); })()"""
OVERFLOWS = """[...document.querySelectorAll('section, header, footer')]
    .filter(e => e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1)
    .map(e => e.id || e.tagName)"""
BELOW_RIGHT = "document.getElementById('right').getBoundingClientRect().bottom"
ABOVE_RECENT = "document.getElementById('recent-box').getBoundingClientRect().top"


@needs_chromium
def test_the_page_in_a_browser(node: WatchedNode, tmp_path: Path) -> None:
    node.until(lambda state: state["counts"]["fail"] >= 13 and state["last"]["picture"])
    asyncio.run(look_at(node, tmp_path))


async def look_at(node: WatchedNode, tmp_path: Path) -> None:
    async with Browser(tmp_path / "profile") as page:
        await page.open(node.url)
        await page.until(STATE)
        await page.until("document.getElementById('last-image').naturalWidth === 64")
        assert await page.ask(FITS) == [True, True]  # one screen
        assert await page.ask(CUT) == []
        assert await page.ask("document.getElementById('mode-word').textContent") == "RUNNING"
        assert await page.ask("document.getElementById('last-word').textContent") == "FAIL DEFECT"
        assert await page.ask("document.querySelectorAll('#last-boxes rect').length") >= 2
        assert await page.ask("document.querySelectorAll('#recent li').length") == 12
        assert await page.ask("document.getElementById('nodata').hidden")
        await page.until(DRAWN_WHERE_TOLD)
        first = await page.ask("lastState.counts.triggers")
        await page.until(f"lastState.counts.triggers > {first}")

        await page.key("Tab", 9)
        assert await page.ask("document.activeElement.closest('#recent') !== null")
        first = await page.ask("lastState.recent.at(-1).seq")
        await page.until(f"lastState.recent.every(one => one.seq > {first})")  # new ones have come
        assert await page.ask("document.activeElement.closest('#recent') !== null"), "the keyboard was not thrown out"

        await page.screen(640, 400, 2)  # 200 % of 1280x800
        assert (await page.ask(FITS))[0]
        assert await page.ask(CUT) == []

        node.end(signal.SIGKILL)
        await page.until("!document.getElementById('nodata').hidden")
        assert (await page.ask("document.getElementById('nodata').textContent")).startswith("NO DATAsince 20")
        assert await page.ask("document.body.classList.contains('gone')")
        assert "NO DATA" in await page.ask("document.title")

        await page.screen(1280, 800)
        await page.ask(WORST_DAY)
        assert await page.ask(FITS) == [True, True]
        assert await page.ask(OVERFLOWS) == []
        assert await page.ask(BELOW_RIGHT) <= await page.ask(ABOVE_RECENT)
        assert "3 triggers have no result" in await page.ask("document.getElementById('agree').textContent")
        await page.ask("lastState.last.detail = '1 ' + 'Kurzschluss'.repeat(30); draw(lastState)")
        await page.screen(360, 640)  # a telephone: it scrolls down, never across
        assert (await page.ask(FITS))[0]
        await page.screen(1080, 1920)  # upright: the picture has the width
        assert await page.ask(FITS) == [True, True]
        assert await page.ask("document.getElementById('last-picture').clientWidth > 0.9 * innerWidth")
        await page.screen(1280, 800)
        await page.ask("lastAt = -1e9; watch()")
        assert not await page.ask("document.getElementById('nodata').hidden")

        node.start()
        await page.until("document.getElementById('nodata').hidden")  # and comes back by itself
