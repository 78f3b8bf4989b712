"""Build the native core when a C compiler is at hand; install without it when not."""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Extension, setup

SOURCES = sorted(Path("aiostream_data/_native").glob("*.pyx"))


def extensions() -> list[Extension]:
    from Cython.Build import cythonize

    modules = [
        Extension(
            f"aiostream_data._native.{path.stem}",
            [path.as_posix()],
            extra_compile_args=["-O3", "-g0"],
            extra_link_args=["-s"] if sys.platform == "linux" else [],  # symbols would be most of the wheel
            optional=True,  # a failed compile leaves the pure-Python twin in charge
        )
        for path in SOURCES
    ]
    return cythonize(modules, language_level=3) if modules else []


setup(ext_modules=extensions())
