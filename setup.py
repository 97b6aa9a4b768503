"""Builds the C extensions; everything else about the package is in pyproject.toml.

One abi3 wheel per platform serves every CPython from 3.11 on. The wheel for aarch64 can be made on x86_64:
CC=aarch64-linux-gnu-gcc LDSHARED="aarch64-linux-gnu-gcc -shared" _PYTHON_HOST_PLATFORM=linux-aarch64 python -m build -w
"""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

# Contraction of a*b+c into one rounding would give other bits on aarch64 than on x86_64.
COMPILE = ["-std=c11", "-O3", "-Wall", "-Wextra", "-g0", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden"]

NO_COMPILER = """
edge_app has kernels in C, and no working C compiler was found.
  wanted: gcc or clang, and the headers of Python
  got:    {error}
  do:     Debian, Ubuntu: sudo apt install gcc python3-dev    Fedora: sudo dnf install gcc python3-devel
          or install the ready wheel for this platform, which needs no compiler
"""


class BuildExtensions(build_ext):
    """build_ext that tells a missing compiler in words."""

    def build_extension(self, extension: Extension) -> None:
        """Build one, or end with what to install."""
        try:
            super().build_extension(extension)
        except Exception as error:
            sys.exit(NO_COMPILER.format(error=error))


class Abi3Wheel(bdist_wheel):
    """bdist_wheel that tags the wheel for every CPython from 3.11 on."""

    def initialize_options(self) -> None:
        """Set the tag."""
        super().initialize_options()
        self.py_limited_api = "cp311"


def extension(folder: str) -> Extension:
    """The extension module `_native` of one folder of the package, from all C files there."""
    return Extension(
        f"edge_app.{folder}._native",
        sources=sorted(str(path) for path in Path("edge_app", folder).glob("*.c")),
        depends=["edge_app/native.h", *sorted(str(path) for path in Path("edge_app", folder).glob("*.h"))],
        extra_compile_args=COMPILE,
        libraries=["m"],
        py_limited_api=True,
    )


setup(
    ext_modules=[extension("preprocess"), extension("decode")],
    cmdclass={"build_ext": BuildExtensions, "bdist_wheel": Abi3Wheel},
)
