"""A mirror sees people: with evidence off, nothing of a frame reaches the disk, the wire or the log.

Frames carry a mark that nothing else has, in every pixel row; it is then looked for wherever a node writes.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
from pathlib import Path

import colours
import numpy as np
import pytest
import zmq
from line_bench import PATIENCE_S, Pictures
from nodes import free_port

from edge_app import app as wiring
from edge_app.frame import Frame

MARK = bytes([250, 17, 251, 18, 252, 19, 253, 20, 254, 21, 249, 22])
FRAMES = 80


def marked(seed: int) -> np.ndarray:
    """A red garment; each row begins with the mark."""
    picture = colours.picture("red", 120, 90, seed)
    picture.reshape(120, -1)[:, : len(MARK)] = np.frombuffer(MARK, np.uint8)
    return picture


def traces(seed: int) -> list[bytes]:
    """What would show that pixels were written: the mark, as it is, in base64 or hexadecimal; a JPEG or PNG; a row."""
    shifted = [base64.b64encode(bytes(offset) + MARK)[offset + 4 : -4] for offset in range(3)]
    return [MARK, *shifted, MARK.hex().encode(), b"\xff\xd8\xff", b"\x89PNG", marked(seed)[60].tobytes()[:64]]


class Listener:
    """Everything that a node publishes, as bytes."""

    def __init__(self, endpoint: str) -> None:
        self.frames: list[bytes] = []
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.subscribe(b"")
        self._socket.connect(endpoint)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while not self._stop.is_set():
            if self._socket.poll(50):
                self.frames += self._socket.recv_multipart()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close(0)
        self._context.term()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Frame]:
    """The node's camera shows marked pictures at ten frames a second; the frames that it gave."""
    given: list[Frame] = []

    class Marked(Pictures):
        period_us = 100_000

        def read(self) -> Frame | None:
            self._stopped.wait(0.02)
            frame = super().read()
            if frame is not None:
                given.append(frame)
            return frame

    monkeypatch.setattr(wiring, "open_camera", lambda _section: Marked(iter([marked(k) for k in range(FRAMES)])))
    return given


def test_nothing_of_a_frame_is_kept_or_sent(
    tmp_path: Path, shown: list[Frame], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    publish, commands = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
    kept = tmp_path / "var"
    made = colours.pipeline(
        tmp_path,
        decision={"dwell_s": 0.2, "smooth_s": 0.0, "hold_s": 1.0},
        gate={"somebody": None, "keep_alive_s": 0.5},
        results={"publish": publish, "commands": commands, "journal": {"path": str(kept / "results.db")}},
        monitor={"http": None},
    )
    assert made.results.evidence.path is None, "off unless it is asked for"
    before = {file for file in tmp_path.rglob("*") if file.is_file()}
    listener = Listener(publish)
    with caplog.at_level(logging.DEBUG):
        app = wiring.build(made, "mirror")
        app.start()
        assert app.wait(PATIENCE_S)
        app.close()
    listener.close()
    assert len(shown) == FRAMES
    assert app.summary().passed >= 1, "there was something to keep and to send"
    written = [file for file in tmp_path.rglob("*") if file.is_file() and file not in before]
    assert any(file.name.startswith("results.db") for file in written)
    out, err = capfd.readouterr()
    places = {str(file): file.read_bytes() for file in written}
    places |= {f"message {k}": frame for k, frame in enumerate(listener.frames)}
    places |= {"log": caplog.text.encode(), "stdout": out.encode(), "stderr": err.encode()}
    for place, content in places.items():
        for trace in traces(FRAMES // 2):
            assert trace not in content, f"{trace!r} in {place}"
    results = [json.loads(frame) for frame in listener.frames if frame.startswith(b'{"v":1,"kind":"result"')]
    assert all(result["image"] is None for result in results)


def test_the_search_would_find_a_frame(tmp_path: Path, shown: list[Frame]) -> None:
    """The same node with evidence on: what the test above looks for is there."""
    made = colours.pipeline(
        tmp_path,
        decision={"dwell_s": 0.2, "smooth_s": 0.0, "hold_s": 1.0},
        gate=None,
        results={"publish": None, "commands": None, "evidence": {"path": str(tmp_path / "pictures"), "pass_every": 1}},
    )
    app = wiring.build(made, "mirror")
    app.start()
    assert app.wait(PATIENCE_S)
    app.close()
    files = [file for file in (tmp_path / "pictures").rglob("*") if file.is_file()]
    assert any(b"\xff\xd8\xff" in file.read_bytes() for file in files)
    assert app.summary().passed >= 1
