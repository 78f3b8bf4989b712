"""A file of which only some byte ranges are in memory, for libraries that read files."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from aiostream_data.rows.records import ByteRange


class SeekableFile(io.RawIOBase):
    """Base class of readable file objects: size and position. Subclasses read.

    Args:
        nbytes: Size of the file in bytes.
    """

    def __init__(self, nbytes: int) -> None:
        super().__init__()
        self._nbytes = nbytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._nbytes}[whence]
        self._at = max(0, base + offset)
        return self._at


class KnownRanges(SeekableFile):
    """Readable file object over some ranges of a file. A read of other bytes raises :class:`OSError`.

    Args:
        nbytes: Size of the file in bytes.
        ranges: Ranges in memory, ascending and without overlap.
        parts: Bytes of each range.
    """

    def __init__(self, nbytes: int, ranges: Sequence[ByteRange], parts: Sequence[memoryview]) -> None:
        super().__init__(nbytes)
        self._starts = [part.start for part in ranges]
        self._parts = parts

    def size(self) -> int:
        return self._nbytes

    def read(self, size: int = -1) -> bytes:
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int | None = -1) -> memoryview:
        """Return the next bytes as :meth:`read` does, without a copy. PyArrow calls this method instead of ``read``."""
        stop = self._nbytes if size is None or size < 0 else min(self._nbytes, self._at + size)
        if stop <= self._at:
            return memoryview(b"")
        number = bisect_right(self._starts, self._at) - 1
        begin = self._starts[number] if number >= 0 else 0
        if number < 0 or stop - begin > len(self._parts[number]):
            raise OSError(f"bytes {self._at} to {stop} are not part of the ranges that the directory lists")
        found = self._parts[number][self._at - begin : stop - begin]
        self._at = stop
        return found

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        found = self.read_buffer(len(view))
        view[: len(found)] = found
        return len(found)


class NoBytes(SeekableFile):
    """Readable file object without bytes: each read raises :class:`OSError`.

    Attributes:
        was_read: True after the first read.
    """

    was_read = False

    def readinto(self, buffer: Any) -> int:
        self.was_read = True
        raise OSError("no bytes of the file are in memory")


def part_of(place: ByteRange, ranges: Sequence[ByteRange], parts: Sequence[memoryview]) -> memoryview:
    """Return the bytes of a place inside of one of the ranges.

    Args:
        ranges: Ranges in memory, ascending and without overlap.
        parts: Bytes of each range.
    """
    number = bisect_right(ranges, place.start, key=lambda each: each.start) - 1
    begin = ranges[number].start
    return parts[number][place.start - begin : place.stop - begin]
