"""Check the heaps of an HDF5 file that contain strings of any length, and those that contain the names of a group.

The HDF5 library does not return from a damaged heap, so the sizes of all objects are checked before it reads them. A
heap begins with ``GCOL``, a version and its size. Each object has an index, a number of references and a size, and its
data fill a multiple of eight bytes. An object with the index 0 is the free space at the end.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CorruptRecordError
from aiostream_data.rows.records import ByteRange

_START: Final = re.compile(rb"GCOL\x01\0\0\0")
_HEADER_NBYTES: Final = 16
_OBJECT: Final = struct.Struct("<HHIQ")
_STRING: Final = np.dtype([("length", "<u4"), ("heap", "<u8"), ("index", "<u4")])
_SIZE: Final = struct.Struct("<Q")
_NAMES: Final = struct.Struct("<4sIQQQ")
_FREE: Final = struct.Struct("<QQ")
_NO_FREE: Final = 1

MOST_NAMES_NBYTES: Final = 1 << 26
"""Maximum size of the names in a group, in bytes."""


class NameHeap(NamedTuple):
    """Heap of the names in a group of the older format.

    Attributes:
        nbytes: Size of its data.
        free: Place of the first free block in its data.
        start: Offset of its data in the file.
    """

    nbytes: int
    free: int
    start: int

    @classmethod
    def at_start_of(cls, block: bytes | memoryview) -> NameHeap | None:
        """Return the heap that begins with a block, or None."""
        if len(block) < _NAMES.size or block[:5] != b"HEAP\0":  # version 0; the library ignores the next bytes
            return None
        return cls(*_NAMES.unpack_from(block)[2:])

    def has_loop(self, data: bytes) -> bool:
        """Return True if a list of free blocks has no end. The library would follow it for ever."""
        at = self.free
        for _ in range(len(data) // _FREE.size + 1):
            if at == _NO_FREE or at + _FREE.size > len(data):
                return False  # the library checks that blocks are inside
            at, _ = _FREE.unpack_from(data, at)
        return True


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
        check_lengths(url, part.start, np.frombuffer(data[part.start : part.stop], np.uint8), len(data))


def check_lengths(url: str, offset: int, stored: NDArray[np.uint8], file_nbytes: int) -> None:
    """Check the lengths of strings. ``stored`` contains their lengths and places.

    Raises:
        CorruptRecordError: The strings are longer than the file of ``file_nbytes`` bytes.
    """
    lengths = stored[: len(stored) // _STRING.itemsize * _STRING.itemsize].view(_STRING)["length"]
    if int(lengths.sum(dtype=np.int64)) > file_nbytes:
        raise CorruptRecordError(url, offset, "the strings are longer than the file")
