"""In the steady state a frame costs no allocation of its own size, nor of a tensor's: counted by a hook in malloc.

The hook counts every block from 100,000 bytes on, in all threads and libraries: a 1080p frame has 6.2 MB, pcb-defect's
input 2 MB, its output 142 KB.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the hook is for glibc's malloc")

LINE = """
import ctypes, sys, time
from pathlib import Path
from edge_app.app import build
from edge_app.config.load import load_pipeline
hook = ctypes.CDLL(None)
hook.large_allocations.restype = ctypes.c_long
hook.largest_allocation.restype = ctypes.c_size_t
pictures, provider, warm, frames = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
app = build(load_pipeline(Path("pipelines/defect.yaml"), [
    "camera.type=folder", f"camera.path={pictures}", "camera.loop=true", "camera.preload=true",
    f"runtime.provider={provider}", "results.publish=tcp://127.0.0.1:*", "results.commands=null", "judge.guard=null",
    "monitor.http=null",
]), "bench", frames)
start = hook.large_allocations()
app.start()
while app.line.sealer.triggers < warm:
    time.sleep(0.001)
before, _, after_frame = hook.large_allocations(), hook.largest_allocation(), app.line.sealer.triggers
assert app.wait(120)
print(start, hook.large_allocations() - before, hook.largest_allocation(), app.line.sealer.triggers - after_frame)
app.close()
"""


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("hook") / "large_allocations.so"
    source = ROOT / "tests" / "c" / "large_allocations.c"
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(1)
    for number in range(2):
        cv2.imwrite(str(folder / f"{number}.bmp"), rng.integers(0, 256, (1080, 1920, 3), np.uint8))
    return folder


def counted(hook: Path, code: str, *words: object) -> list[int]:
    """What a process under the hook prints."""
    command = [sys.executable, "-P", "-c", code, *map(str, words)]
    environment = {**os.environ, "LD_PRELOAD": str(hook)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def test_the_hook_counts_what_numpy_and_opencv_allocate(hook):
    code = """
import ctypes, cv2, numpy as np
hook = ctypes.CDLL(None)
cv2.setNumThreads(1)
small = np.ones((300, 300), np.uint8)
before = hook.large_allocations()
a = np.empty(100_000, np.uint8)
b = cv2.resize(small, (400, 400))
c = np.empty(99_000, np.uint8)
print(hook.large_allocations() - before)
"""
    assert counted(hook, code)[0] >= 2


@pytest.mark.parametrize(("provider", "warm", "frames"), [("null", 100, 300), ("cpu", 12, 32)])
def test_a_frame_allocates_nothing_of_its_size(hook, pictures, provider, warm, frames):
    at_start, large, largest, counted_frames = counted(hook, LINE, pictures, provider, warm, frames)
    assert at_start > 0  # the hook is at work: frames and tensors were allocated before the line began
    assert counted_frames > 0
    assert (large, largest) == (0, 0)
