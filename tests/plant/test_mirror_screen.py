"""The mirror's screen of a whole node: events, the live picture, and in a real Chromium where there is one."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import colours
import cv2
import numpy as np
import pytest
from chromium import BINARY, Browser
from nodes import free_port

from edge_app.app import App, build
from edge_app.errors import ConfigError

PATIENCE_S = 60.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[App]:
    """A drawn mirror before which one garment after the other comes."""
    pictures = colours.write_pictures(tmp_path / "pictures", 4)
    camera = {"type": "mirror", "path": str(pictures), "rate_fps": 20.0, "seed": 3}
    decision = {"dwell_s": 0.2, "smooth_s": 0.1}
    app = build(colours.pipeline(tmp_path, camera=camera, decision=decision, monitor=monitor(live=True)), "colours")
    app.start()
    yield app
    app.stop()
    app.wait(PATIENCE_S)
    app.close()


def monitor(**more: object) -> dict[str, object]:
    return {"http": f"127.0.0.1:{free_port()}", **more}


def url(app: App) -> str:
    assert app.monitor is not None
    return app.monitor.server.url


def test_events_and_live_pictures(node: App) -> None:
    with urllib.request.urlopen(url(node) + "mirror/events", timeout=PATIENCE_S) as events:
        while True:
            line = events.readline()
            if line.startswith(b"data: ") and (state := json.loads(line[6:]))["label"] is not None:
                break
    assert state["label"] in colours.LABELS
    assert state["simulated"] is True
    with urllib.request.urlopen(url(node) + "mirror.mjpg", timeout=PATIENCE_S) as video:
        assert video.headers["Content-Type"] == "multipart/x-mixed-replace; boundary=frame"
        seen = []
        while len(seen) < 2:
            if video.readline().lower().startswith(b"content-length:"):
                pass
            else:
                continue
            video.readline()
            seen.append(read_jpeg(video))
    assert all(picture.shape == (480, 360, 3) for picture in seen)


def read_jpeg(video: object) -> np.ndarray:
    """The next picture of a stream that stands at its first byte."""
    data = b""
    while not data.endswith(b"\xff\xd9"):
        data += video.read(1)  # type: ignore[attr-defined]
    return np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR))


def test_without_live_there_is_no_such_page(tmp_path: Path) -> None:
    pictures = colours.write_pictures(tmp_path / "pictures", 1)
    camera = {"type": "mirror", "path": str(pictures), "rate_fps": 20.0}
    app = build(colours.pipeline(tmp_path, camera=camera, monitor=monitor()), "colours")
    app.start()
    try:
        for path in ("mirror", "mirror.mjpg", "mirror/events"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(url(app) + path, timeout=PATIENCE_S)
            assert caught.value.code == 404
    finally:
        app.stop()
        app.wait(PATIENCE_S)
        app.close()


def test_a_pipeline_that_judges_parts_has_no_mirror(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"monitor\.live"):
        colours.pipeline(tmp_path, decision=None, gate=None, monitor=monitor(live=True))


@pytest.mark.skipif(BINARY is None, reason="no chromium here")
def test_another_page_of_this_machine_may_embed_the_picture(node: App, tmp_path: Path) -> None:
    class Shop(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f'<img id=mirror src="{url(node)}mirror.mjpg">'.encode())

    async def look(port: int) -> None:
        async with Browser(tmp_path / "profile") as browser:
            await browser.open(f"http://127.0.0.1:{port}/")
            await browser.until("document.querySelector('#mirror')?.naturalWidth === 360")
            await browser.open(f"http://localhost:{port}/")  # another site
            await browser.until("document.querySelector('#mirror')?.complete && location.hostname === 'localhost'")
            assert await browser.ask("document.querySelector('#mirror').naturalWidth") == 0

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop) as shop:
        threading.Thread(target=shop.serve_forever, daemon=True).start()
        try:
            asyncio.run(look(shop.server_port))
        finally:
            shop.shutdown()


@pytest.mark.skipif(BINARY is None, reason="no chromium here")
@pytest.mark.parametrize("size", [(360, 640), (1080, 1920)])
def test_on_a_screen(node: App, tmp_path: Path, size: tuple[int, int]) -> None:
    async def look() -> None:
        async with Browser(tmp_path / "profile", *size) as browser:
            await browser.open(url(node) + "mirror")
            labels = json.dumps(colours.LABELS)
            await browser.until(f"{labels}.includes(document.querySelector('#label')?.textContent)")
            await browser.until("document.querySelector('#video').naturalWidth === 360")
            await browser.until("document.querySelector('#gone').hidden")
            await browser.until("document.querySelectorAll('.bar').length === 3")
            assert await browser.ask("[...document.querySelectorAll('[aria-live]')].map(e => e.id)") == ["label"]
            assert await browser.ask("[...document.querySelectorAll('meter')].every(m => m.ariaLabel)")
            await browser.ask("said = document.querySelector('#label').firstChild; told = performance.now(); null")
            await browser.until("heard > told + 300")  # further messages have come: the same word is not said again
            assert await browser.ask("said.data !== at('label').textContent || said === at('label').firstChild")
            page = "document.documentElement"
            assert await browser.ask(f"{page}.scrollWidth <= innerWidth && {page}.scrollHeight <= innerHeight")
            height = "document.querySelector('#panel').getBoundingClientRect().height / innerHeight"
            assert await browser.ask(height) < 0.5, "the picture keeps the larger part"
            long = "shown = show; show = () => {}; say('Winterhandschuhe '.repeat(9)); " + height
            assert await browser.ask(long) < 0.5, "and so it does beside a long label"
            await browser.ask("show = shown; null")
            node.stop()
            await browser.until("!document.querySelector('#gone').hidden")
            assert await browser.ask("getComputedStyle(document.querySelector('#video')).visibility") == "hidden"

    asyncio.run(look())
