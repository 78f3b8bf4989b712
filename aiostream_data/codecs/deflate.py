"""The library that decompresses deflate: gzip, zlib, and compressed members of zip archives.

zlib-ng has the interface of Python's ``zlib`` and takes half to three quarters of its time. Its output, its checks and
the places at which it finds damage are the same, so a run can resume with the other library.
"""

from __future__ import annotations

import zlib
from functools import cache
from types import ModuleType


@cache
def deflate_library() -> ModuleType:
    """Return zlib-ng if it is installed, otherwise Python's ``zlib``. Their class of errors is ``error``."""
    try:
        from zlib_ng import zlib_ng
    except ImportError:
        return zlib
    return zlib_ng
