"""A real RTSP stream over loopback: inspected, cut, stalled, frozen, and picked up again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_app.camera import open_camera
from edge_app.camera.base import Camera
from edge_app.clock import monotonic_us
from edge_app.config.camera import VideoCamera
from edge_app.errors import CameraError
from edge_app.frame import Frame, FrameStatus

SERVER = Path(__file__).parents[1] / "rtsp_server.py"
PYTHON = "/usr/bin/python3"
PACKAGES = "gir1.2-gst-rtsp-server-1.0 python3-gi gstreamer1.0-plugins-base gstreamer1.0-plugins-good"
PACKAGES += " gstreamer1.0-plugins-ugly"
NEEDED = """
import gi
gi.require_version("GstRtspServer", "1.0")
from gi.repository import Gst, GstRtspServer
Gst.init(None)
assert all(map(Gst.ElementFactory.find, ("videotestsrc", "x264enc", "rtph264pay", "rtpbin")))
"""
Serve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    try:
        found = subprocess.run([PYTHON, "-c", NEEDED], capture_output=True, text=True, timeout=60).returncode == 0
    except FileNotFoundError:
        found = False
    if found:
        return
    need = f"the RTSP server needs Debian's packages: apt-get install {PACKAGES}"
    if os.environ.get("CI"):
        pytest.fail(need)
    pytest.skip(need)


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def serve(port: int) -> Iterator[Serve]:
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        server = subprocess.Popen([PYTHON, str(SERVER), str(port), *options], stdout=subprocess.PIPE, text=True)
        started.append(server)
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        return server

    yield start
    for server in started:
        server.kill()
        server.wait()


def camera(port: int, **keys: object) -> Camera:
    path = f"rtsp://127.0.0.1:{port}/line"
    section = {"type": "video", "path": path, "timeout_ms": 700, "reconnect_max_s": 0.5, **keys}
    return open_camera(VideoCamera.model_validate(section))


def read_until(source: Camera, wanted: Callable[[Frame], bool], limit: int = 500) -> list[Frame]:
    """Frames up to the first that is wanted; ids must rise all the way."""
    got: list[Frame] = []
    while not got or not wanted(got[-1]):
        frame = source.read()
        assert frame is not None
        assert not got or frame.frame_id > got[-1].frame_id
        got.append(frame)
        source.recycle(frame)
        assert len(got) < limit, [f.status for f in got[-10:]]
    return got


def is_(status: FrameStatus) -> Callable[[Frame], bool]:
    return lambda frame: frame.status is status


def test_a_stream_is_read_cut_and_picked_up_again(port: int, serve: Serve) -> None:
    server = serve()
    source = camera(port)
    assert (source.width, source.height, source.live, source.simulated) == (160, 120, True, False)
    first = [source.read() for _ in range(10)]
    pictures = [f.pixels for f in first if f is not None and f.status is FrameStatus.COMPLETE]
    assert len(pictures) == 10
    assert all(p is not None and p.shape == (120, 160, 3) and p.max() > 200 for p in pictures)  # a white ball
    assert not np.array_equal(pictures[0], pictures[9])  # that moves

    server.kill()
    server.wait()
    lost = read_until(source, is_(FrameStatus.LOST))[-1]
    assert lost.pixels is None
    assert "no frame for 700 ms" in lost.note
    assert source.trouble is not None

    serve()
    back = read_until(source, is_(FrameStatus.COMPLETE))
    assert [f.status for f in back] == [FrameStatus.COMPLETE]  # one LOST frame per outage, not one per time-out
    assert source.trouble is None
    read_until(source, lambda frame: frame.frame_id > back[0].frame_id + 10)
    source.close()


def test_a_stalled_stream_is_lost_and_a_stop_does_not_wait_for_it(port: int, serve: Serve) -> None:
    server = serve()
    source = camera(port)
    read_until(source, is_(FrameStatus.COMPLETE))
    server.send_signal(signal.SIGSTOP)
    read_until(source, is_(FrameStatus.LOST))
    server.send_signal(signal.SIGCONT)
    read_until(source, is_(FrameStatus.COMPLETE))
    server.send_signal(signal.SIGSTOP)
    read_until(source, is_(FrameStatus.LOST))
    got: list[Frame | None] = []
    reader = threading.Thread(target=lambda: got.append(source.read()))
    reader.start()
    source.stop()
    reader.join(timeout=2)  # a process must end within two seconds
    assert not reader.is_alive()
    assert got == [None]
    source.close()
    server.send_signal(signal.SIGCONT)


class Stalling:
    """A network between camera and line that can stand still: what it holds up comes all at once."""

    def __init__(self, to_port: int) -> None:
        self.flows = threading.Event()
        self.flows.set()
        self._to = "127.0.0.1", to_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, server = self._listener.accept()[0], socket.create_connection(self._to)
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(1 << 16):
                self.flows.wait()
                target.sendall(data)

    def close(self) -> None:
        self._listener.close()


def test_what_a_stalled_network_held_up_is_not_taken_for_new(port: int, serve: Serve) -> None:
    """A trigger during the stall got the picture of the part before: a bad part could pass by it."""
    serve()
    network = Stalling(port)
    source = camera(network.port)
    read_until(source, lambda frame: frame.frame_id > 20)
    network.flows.clear()
    threading.Event().wait(0.1)
    stalled_us = monotonic_us()
    threading.Event().wait(0.5)
    released_us = monotonic_us()
    network.flows.set()
    got = read_until(source, lambda frame: frame.t_capture_mono_us >= released_us)
    assert any(stalled_us < frame.t_capture_mono_us < released_us for frame in got)
    source.close()
    network.close()


def test_the_same_picture_again_and_again_is_stale(port: int, serve: Serve) -> None:
    serve("still")
    source = camera(port, stale_after=4)
    got = read_until(source, is_(FrameStatus.STALE))
    assert len(got) >= 5
    assert all(f.status is FrameStatus.COMPLETE for f in got[:-1])
    assert got[-1].pixels is None
    assert "repeats to the last bit" in got[-1].note
    source.close()


def test_a_line_that_does_not_read_sees_the_hole(port: int, serve: Serve) -> None:
    serve()
    source = camera(port)
    first = source.read()
    assert first is not None
    threading.Event().wait(1.0)  # 25 frames; the queue takes 4
    got = read_until(source, lambda frame: frame.frame_id > first.frame_id + 8)
    ids = [f.frame_id for f in got]
    assert ids[:4] == [2, 3, 4, 5]
    assert ids[4] > 8  # the next one came much later, and its id says so
    source.close()


def test_a_path_that_the_server_has_not(port: int, serve: Serve) -> None:
    serve()
    section = VideoCamera(type="video", path=f"rtsp://127.0.0.1:{port}/elsewhere")
    with pytest.raises(CameraError) as caught:
        open_camera(section)
    assert "the host answers, but gives no video" in (caught.value.got or "")
