"""Build the native core when a C compiler is at hand; install without it when not."""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = sorted(Path("aiostream_data/_native").glob("*.pyx"))


class BuildWhereACompilerIs(build_ext):
    """Leaves out extensions that cannot be built: their pure-Python twins take their place."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:  # noqa: BLE001 - compilers fail in many ways, none of which is fatal here
            print(f"{ext.name} was not built, its Python twin will run instead: {error}", file=sys.stderr)  # noqa: T201


def extensions() -> list[Extension]:
    from Cython.Build import cythonize

    modules: list[Extension] = cythonize(
        [
            Extension(
                f"aiostream_data._native.{path.stem}",
                [path.as_posix()],
                extra_compile_args=["-O3", "-g0"],
                extra_link_args=["-s"] if sys.platform == "linux" else [],  # symbols would be most of the wheel
            )
            for path in SOURCES
        ],
        language_level=3,
    )
    for module in modules:
        module.optional = True  # an editable install does not miss its file then; cythonize() drops the argument
    return modules


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildWhereACompilerIs})
