"""Emit one warning per process if the native core is missing. The slow pure-Python kernels then run instead."""

from __future__ import annotations

import warnings
from functools import cache

from aiostream_data import _native


@cache
def warn_without_native_core() -> None:
    """Warn if this installation has no native core. The user's process calls this function when reading begins."""
    if not _native.HAVE_NATIVE:
        warnings.warn(
            "aiostream_data runs without its native core, on Python code that is many times slower; "
            "install a C compiler and then the package again",
            RuntimeWarning,
            stacklevel=5,  # report the caller of open()
        )
