"""Read tables of FlatBuffers, in which Arrow files store their metadata. Every offset is checked before use."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CorruptRecordError

_OFFSET_NBYTES: Final = 4


class Table:
    """A table in a buffer. Its fields have numbers, and absent fields have default values.

    Args:
        data: The buffer.
        at: Position of the table in the buffer, or None for the root table.
        url: URL of the file, for error messages.
        offset: Offset of the buffer in the file, for error messages.

    Raises:
        CorruptRecordError: An offset or a length lies outside the buffer. All methods raise this error.
    """

    __slots__ = ("_at", "_data", "_fields", "_offset", "_url")

    def __init__(self, data: memoryview, at: int | None, url: str, offset: int) -> None:
        self._data = data
        self._url = url
        self._offset = offset
        self._at = self._unpacked("<I", 0)[0] if at is None else at
        vtable = self._at - self._unpacked("<i", self._at)[0]
        self._fields = self._vector("<H", vtable + 4, max(0, self._unpacked("<H", vtable)[0] - 4) // 2)

    def scalar(self, number: int, format: str, default: int = 0) -> int:
        """Return a number. ``format`` is a format of :mod:`struct`, such as ``<q``."""
        place = self._place(number)
        return default if place is None else int(self._unpacked(format, place)[0])

    def table(self, number: int) -> Table | None:
        """Return a table, or None if the field is absent."""
        place = self._place(number)
        return None if place is None else self._table_at(place)

    def tables(self, number: int) -> Iterator[Table]:
        """Iterate over a vector of tables."""
        start, count = self._vector_place(number, _OFFSET_NBYTES)
        return (self._table_at(start + _OFFSET_NBYTES * i) for i in range(count))

    def structs(self, number: int, format: str) -> list[tuple[int, ...]]:
        """Return a vector of structs, or of numbers as tuples."""
        start, count = self._vector_place(number, struct.calcsize(format))
        return list(struct.iter_unpack(format, self._data[start : start + count * struct.calcsize(format)]))

    def pairs(self, number: int) -> NDArray[np.int64]:
        """Return a vector of structs of two 64-bit integers as an array of shape (structs, 2)."""
        start, count = self._vector_place(number, 16)
        return np.frombuffer(self._data, "<i8", 2 * count, start).reshape(count, 2)

    def _table_at(self, place: int) -> Table:
        return Table(self._data, place + self._unpacked("<I", place)[0], self._url, self._offset)

    def _place(self, number: int) -> int | None:
        distance = self._fields[number] if number < len(self._fields) else 0
        return self._at + distance if distance else None

    def _vector_place(self, number: int, item_nbytes: int) -> tuple[int, int]:
        """Return the position and the length of a vector."""
        place = self._place(number)
        if place is None:
            return 0, 0
        place += self._unpacked("<I", place)[0]
        count = self._unpacked("<I", place)[0]
        if count * item_nbytes > len(self._data) - place - _OFFSET_NBYTES:
            raise self.error(f"a list of {count} items is longer than the metadata")
        return place + _OFFSET_NBYTES, count

    def _vector(self, format: str, place: int, count: int) -> tuple[int, ...]:
        return tuple(self._unpacked(f"<{count}{format[1:]}", place))

    def _unpacked(self, format: str, place: int) -> tuple[Any, ...]:
        if not 0 <= place <= len(self._data) - struct.calcsize(format):
            raise self.error(f"the metadata refers to its byte {place}, but has {len(self._data)} bytes")
        return struct.unpack_from(format, self._data, place)

    def error(self, reason: str) -> CorruptRecordError:
        """Return an error for this buffer."""
        return CorruptRecordError(self._url, self._offset, reason)
