"""Build the native core when a C compiler is at hand; install without it when not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PACKAGE = "aiostream_data._native"
SOURCES = sorted(Path("aiostream_data/_native").glob("*.pyx"))
# Cython's support for memoryviews and functions, larger than most kernels: one extension has it for all of them.
SHARED = f"{PACKAGE}.cython_shared"
# These handle structures, not rows: their loops are short.
SMALLEST = (SHARED, f"{PACKAGE}.arrow_c", f"{PACKAGE}.ledger")
# C code needs no tables for unwinding, and sections of their own let the linker leave out what nobody calls.
SMALL = ["-fno-asynchronous-unwind-tables", "-ffunction-sections", "-fdata-sections"] if sys.platform == "linux" else []

# Checks of memory and of undefined behaviour, for `make sanitize`.
CHECKS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"] if os.environ.get("ASD_SANITIZE") else []


class BuildWhereACompilerIs(build_ext):
    """Leaves out extensions that cannot be built: their pure-Python twins take their place."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:  # noqa: BLE001 - compilers fail in many ways, none of which is fatal here
            print(f"{ext.name} was not built, its Python twin will run instead: {error}", file=sys.stderr)  # noqa: T201


def extension(name: str, file_name: str) -> Extension:
    if CHECKS:
        arguments = ["-O1", "-g", "-fno-omit-frame-pointer", *CHECKS]
        return Extension(
            name, [f"aiostream_data/_native/{file_name}"], extra_compile_args=arguments, extra_link_args=CHECKS
        )
    return Extension(
        name,
        [f"aiostream_data/_native/{file_name}"],
        # Kernels are few and hot, except for these.
        extra_compile_args=["-Os" if name in SMALLEST else "-O3", "-g0", *SMALL],
        extra_link_args=["-s", "-Wl,--gc-sections"] if sys.platform == "linux" else [],  # symbols would be most of it
    )


def extensions() -> list[Extension]:
    from Cython.Build import cythonize

    modules: list[Extension] = cythonize(
        [extension(SHARED, "cython_shared.c"), *(extension(f"{PACKAGE}.{path.stem}", path.name) for path in SOURCES)],
        shared_utility_qualified_name=SHARED,
        language_level=3,
        nthreads=(os.cpu_count() or 1) if sys.platform == "linux" else 0,  # elsewhere processes would import this file
        # Kernels keep nothing between calls or have their own locks, so a free-threaded Python may leave its lock off.
        compiler_directives={"freethreading_compatible": True},
    )
    for module in modules:
        module.optional = True  # an editable install does not miss its file then; cythonize() drops the argument
    return modules


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildWhereACompilerIs})
