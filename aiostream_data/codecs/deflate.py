"""Choose the library that decompresses deflate: gzip, zlib, and compressed members of zip archives.

Complete streams are decompressed here in one step. :mod:`.deflate_stream` decompresses all others.

zlib-ng has the interface of Python's ``zlib`` and takes half to three quarters of its time. Its output, its checks and
the places at which it finds damage are the same, so a run can resume with the other library.
"""

from __future__ import annotations

import zlib
from functools import cache
from types import ModuleType
from typing import Final

WINDOW_BITS: Final = {"gzip": 31, "zlib": 15}
"""Argument ``wbits`` of ``zlib.decompressobj()`` and ``zlib.compressobj()``, which selects the format."""


@cache
def deflate_library() -> ModuleType:
    """Return zlib-ng if it is installed, otherwise Python's ``zlib``. Their class of errors is ``error``."""
    try:
        from zlib_ng import zlib_ng
    except ImportError:
        return zlib
    return zlib_ng


def sound_stream(name: str, data: memoryview, most_nbytes: int) -> bytes | None:
    """Decompress one complete gzip member or zlib stream in one step.

    Args:
        name: A key of :data:`WINDOW_BITS`.

    Returns:
        The decompressed bytes. None if they are more than ``most_nbytes``, if the stream is damaged or cut short, or if
        other bytes follow.
    """
    library = deflate_library()
    state = library.decompressobj(WINDOW_BITS[name])
    try:
        found: bytes = state.decompress(data, most_nbytes + 1)
    except library.error:
        return None
    return found if state.eof and not state.unused_data and len(found) <= most_nbytes else None
