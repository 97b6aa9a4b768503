"""The C extensions: what is built, and what is said where it can't be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edge_app.decode import _native as decode_native
from edge_app.preprocess import _native as preprocess_native

ROOT = Path(__file__).parents[3]


def test_one_build_serves_every_python():
    for module in (preprocess_native, decode_native):
        assert Path(str(module.__file__)).name == "_native.abi3.so"


def test_a_path_for_this_cpu_is_there():
    """x86_64 machines without AVX2, and CPUs that are neither, run the scalar path."""
    assert preprocess_native.simd() in ("avx2", "neon", "none")
    if "avx2" in Path("/proc/cpuinfo").read_text():
        assert preprocess_native.simd() == "avx2"


def test_a_missing_compiler_is_told_in_words(tmp_path):
    setuptools = pytest.importorskip("setuptools")
    if int(setuptools.__version__.split(".")[0]) < 77:
        pytest.skip("pyproject.toml needs setuptools 77")
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "edge_app", tmp_path / "edge_app", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--build-lib", "out", "--build-temp", "temp"],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "CC": "no-such-compiler"}, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "no working C compiler was found" in done.stderr
    assert "sudo apt install gcc python3-dev" in done.stderr


def test_every_source_is_in_the_source_distribution():
    """MANIFEST.in names kinds of files; a kernel that is not among them would be missed by users alone."""
    kinds = (ROOT / "MANIFEST.in").read_text().split()
    for folder in ("preprocess", "decode"):
        for path in (ROOT / "edge_app" / folder).iterdir():
            if path.suffix in (".c", ".h", ".pyi"):
                assert f"*{path.suffix}" in kinds
