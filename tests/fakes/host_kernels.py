"""The kernels of ImageCast as functions of this machine's processor, made by a C++ compiler of the very source."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiostream_data.device.image_cast_kernel import KERNELS, SOURCE

FLAGS = ("-std=c++14", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-fno-strict-aliasing")
ROUNDS_AS_THE_DEVICE = "-ffp-contract=off"


@functools.cache
def host_kernels() -> dict[str, Callable[..., None]]:
    """Return the kernels by name; each does all that a whole grid would do. Skips the test without a C++ compiler."""
    compiler = shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler to make the kernels for the host with")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernels.cpp"), Path(folder, "kernels.so")
        source.write_text(SOURCE)
        command = [compiler, *FLAGS, ROUNDS_AS_THE_DEVICE, "-shared", "-fPIC", str(source), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        loaded = ctypes.CDLL(str(library))  # stays loaded when the file is gone
    return {name: _as_function(loaded[name]) for name in KERNELS}


def _as_function(kernel: Any) -> Callable[..., None]:
    kernel.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int] * 6
    kernel.restype = None
    return lambda *arguments: kernel(*map(int, arguments))
