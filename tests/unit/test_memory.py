"""Freed memory goes back to the system, and a line that starts does not load what it does not need. glibc only."""

import os
import platform
import subprocess
import sys

import pytest

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
MIB = 1 << 20

RESIDENT = """
import re
def resident():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
"""


def run(code: str) -> list[int]:
    done = subprocess.run([sys.executable, "-P", "-c", RESIDENT + code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


@glibc
def test_large_blocks_go_back_though_larger_ones_were_freed_before():
    before, held, after = run("""
import numpy as np
from edge_app import memory
memory.keep_little()
del (largest := [np.ones(24 << 20, np.uint8)])[0]  # by itself glibc would now keep all blocks up to 24 MiB
before = resident()
blocks = [np.ones(2 << 20, np.uint8) for _ in range(32)]
pins = [bytearray(600) for _ in range(64)]
held = resident()
del blocks
print(before, held, resident())
""")
    assert held - before > 60 * MIB
    assert after - before < 4 * MIB


@glibc
def test_small_blocks_go_back_when_asked():
    before, after = run("""
import ctypes
from edge_app import memory
c = ctypes.CDLL(None)
c.malloc.restype, c.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
blocks = [c.malloc(4096) for _ in range(8192)]
for block in blocks:
    ctypes.memset(block, 1, 4096)
pin = c.malloc(4096)  # the top of the heap stays in use, so that free() alone gives nothing back
for block in blocks:
    c.free(block)
before = resident()
memory.give_back()
print(before, resident())
""")
    assert before - after > 16 * MIB


def test_a_line_that_starts_loads_no_event_loop_web_server_table_printer_or_trainer():
    code = """
import sys
import edge_app.commands.run_pipeline
heavy = {"asyncio", "aiohttp", "rich", "onnx", "torch", "matplotlib", "edge_app.toolchain", "edge_app.bench"}
print(*sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_the_size_of_a_process_is_told_in_bytes_whatever_a_page_is() -> None:
    """In a process of its own: in a long one, other memory comes and goes."""
    code = """
import mmap, os
from edge_app.memory import resident_mb
with mmap.mmap(-1, 64_000_000) as held:
    before = resident_mb(os.getpid())
    held.write(bytes(len(held)))
    print(round(resident_mb(os.getpid()) - before))
"""
    assert run(code) == pytest.approx([64], abs=2)


@pytest.mark.skipif((os.cpu_count() or 1) < 2 or not os.path.isdir("/proc/self/task"), reason="one core, or no /proc")
def test_what_a_line_imports_starts_no_thread_of_its_own():
    (threads,) = run("""
import os
from edge_app import memory
memory.begin_loading()
import edge_app.app
print(len(os.listdir("/proc/self/task")))
""")
    assert threads == 1, "BLAS libraries start one for each core, which spins"
