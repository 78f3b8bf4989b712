"""Read single fields of structs in Thrift's compact protocol, in which the metadata of Parquet files is written.

PyArrow hides some fields, and trusts others. A reader names the fields that it needs; all others are skipped, so the
memory does not depend on the size of the metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from aiostream_data.errors import AiostreamError

Wanted: TypeAlias = "Mapping[int, Wanted | None]"
"""Numbers of the wanted fields. The value has the wanted fields of a struct, or of each struct of a list."""

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_MOST_NESTED: Final = 32
_MOST_SHIFT: Final = 63
_NOTHING: Final[Wanted] = {}


class DamagedThriftError(AiostreamError):
    """The bytes are not a struct. The caller raises another error that names the file."""


def read_fields(data: bytes | memoryview, at: int, wanted: Wanted) -> tuple[dict[int, Any], int]:
    """Return the wanted fields of the struct at a place, and the place behind it.

    Integers are ``int``, text is ``bytes``, a list is a ``list``, and a struct is a ``dict``.

    Raises:
        DamagedThriftError: The bytes are not a struct.
    """
    reader = _StructReader(data, at)
    try:
        return reader.struct(wanted, 0), reader.at
    except IndexError:
        raise DamagedThriftError("the bytes end inside of a struct") from None


class _StructReader:
    """Reader of one struct.

    Attributes:
        at: Place of the next byte.
    """

    def __init__(self, data: bytes | memoryview, at: int) -> None:
        self._data = data
        self.at = at

    def struct(self, wanted: Wanted, depth: int) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            if number in wanted:
                if number in found:
                    raise DamagedThriftError(f"field {number} is repeated")
                found[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, wanted[number], depth)
            elif kind not in (_TRUE, _FALSE):
                self._skip(kind, depth)
        return found

    def _value(self, kind: int, wanted: Wanted | None, depth: int) -> Any:
        if kind in (_I16, _I32, _I64):
            return self._signed()
        if kind == _BINARY:
            size = self._size()
            self.at += size
            return bytes(self._data[self.at - size : self.at])
        if kind == _STRUCT:
            return self.struct(wanted or _NOTHING, self._deeper(depth))
        if kind == _LIST:
            item, count = self._list()
            return [self._value(item, wanted, self._deeper(depth)) for _ in range(count)]
        raise DamagedThriftError(f"type {kind} of a field is not supported")

    def _skip(self, kind: int, depth: int) -> None:
        if kind in (_I16, _I32, _I64):
            while self._byte() > 127:
                pass
        elif kind == _BINARY:
            size = self._size()
            self.at += size
        elif kind in (_TRUE, _FALSE, _BYTE):
            self.at += 1
        elif kind == _DOUBLE:
            self.at += 8
        elif kind == _STRUCT:
            self.struct(_NOTHING, self._deeper(depth))
        elif kind in (_LIST, _SET):
            item, count = self._list()
            for _ in range(count):
                self._skip(item, self._deeper(depth))
        else:
            raise DamagedThriftError(f"type {kind} of a field is not supported")
        if self.at > len(self._data):
            raise DamagedThriftError("the bytes end inside of a struct")

    def _list(self) -> tuple[int, int]:
        """Return the type and the number of items of a list. Each item has at least one byte."""
        head = self._byte()
        if head >> 4 < 15:
            return head & 15, head >> 4
        return head & 15, self._size()

    def _size(self) -> int:
        size = self._unsigned()
        if size > len(self._data) - self.at:
            raise DamagedThriftError("a value is longer than the bytes")
        return size

    def _deeper(self, depth: int) -> int:
        if depth >= _MOST_NESTED:
            raise DamagedThriftError("the structs are nested too deeply")
        return depth + 1

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _unsigned(self) -> int:
        byte = self._byte()
        found, shift = byte & 127, 7
        while byte > 127:
            if shift > _MOST_SHIFT:
                raise DamagedThriftError("a number is too long")
            byte = self._byte()
            found |= (byte & 127) << shift
            shift += 7
        return found

    def _signed(self) -> int:
        found = self._unsigned()
        return found >> 1 ^ -(found & 1)
