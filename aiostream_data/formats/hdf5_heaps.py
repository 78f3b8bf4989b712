"""Check the heaps of an HDF5 file that contain strings of any length.

The HDF5 library does not return from a damaged heap, so the sizes of all objects are checked before it reads them. A
heap begins with ``GCOL``, a version and its size. Each object has an index, a number of references and a size, and its
data fill a multiple of eight bytes. An object with the index 0 is the free space at the end.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Final

import numpy as np

from aiostream_data.errors import CorruptRecordError
from aiostream_data.rows.records import ByteRange

_START: Final = re.compile(rb"GCOL\x01\0\0\0")
_HEADER_NBYTES: Final = 16
_OBJECT: Final = struct.Struct("<HHIQ")
_STRING: Final = np.dtype([("length", "<u4"), ("heap", "<u8"), ("index", "<u4")])
_SIZE: Final = struct.Struct("<Q")


def check_heaps(url: str, data: memoryview) -> None:
    """Check all heaps in a whole file.

    Raises:
        CorruptRecordError: An object does not fit into its heap, or a heap does not fit into the file.
    """
    for found in _START.finditer(data):
        start = found.start()
        if start + _HEADER_NBYTES > len(data):
            raise CorruptRecordError(url, start, "a heap of strings is cut short")
        (size,) = _SIZE.unpack_from(data, start + 8)
        if not _HEADER_NBYTES <= size <= len(data) - start or not _are_sound(
            data, start + _HEADER_NBYTES, start + size
        ):
            raise CorruptRecordError(url, start, "a heap of strings is damaged")


def _are_sound(data: memoryview, at: int, stop: int) -> bool:
    """Return True if the objects of a heap fill it exactly."""
    while at + _OBJECT.size <= stop:
        index, _, _, size = _OBJECT.unpack_from(data, at)
        if index == 0:
            return bool(size == stop - at)
        at += _OBJECT.size + (size + 7) // 8 * 8
    return at <= stop


def check_strings(url: str, data: memoryview, ranges: Iterable[ByteRange]) -> None:
    """Check the lengths of strings, whose places are stored in some ranges of a whole file.

    Raises:
        CorruptRecordError: The strings are longer than the file.
    """
    for part in ranges:
        stored = data[part.start : part.start + part.nbytes // _STRING.itemsize * _STRING.itemsize]
        lengths = np.frombuffer(stored, _STRING)["length"]
        if int(lengths.sum(dtype=np.int64)) > len(data):
            raise CorruptRecordError(url, part.start, "the strings are longer than the file")
