"""Thrift's compact protocol as plain values, to change single fields of the metadata of Parquet files."""

from __future__ import annotations

import struct
from typing import Any

__all__ = ["BINARY", "LIST", "STRUCT", "List", "ThriftError", "parsed", "written"]

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_INTEGERS = (I16, I32, I64)
_MOST_NESTED = 20

Struct = list[tuple[int, int, Any]]
"""Fields: number, type and value. The value of a struct is a ``Struct``, that of a list is a :class:`List`."""


class ThriftError(Exception):
    """The bytes are not a struct."""


class List:
    """Items of one type."""

    def __init__(self, kind: int, items: list[Any]) -> None:
        self.kind = kind
        self.items = items


def parsed(data: bytes, at: int = 0) -> tuple[Struct, int]:
    """Return the struct at a place of ``data``, and the place behind it.

    Raises:
        ThriftError: There is no struct.
    """
    reader = _Reader(data, at)
    try:
        return reader.struct(0), reader.at
    except (IndexError, struct.error, MemoryError) as error:
        raise ThriftError("the bytes end inside of a struct") from error


def written(fields: Struct) -> bytes:
    """Return the bytes of a struct."""
    found, last = bytearray(), 0
    for number, kind, value in fields:
        if 0 < number - last < 16:
            found.append((number - last) << 4 | kind)
        else:
            found += bytes([kind]) + _varint(_zigzag(number))
        found += b"" if kind in (TRUE, FALSE) else _value(kind, value)
        last = number
    return bytes(found) + b"\0"


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def struct(self, depth: int) -> Struct:
        if depth > _MOST_NESTED:
            raise ThriftError("the structs are nested too deeply")
        fields: Struct = []
        last = 0
        while head := self._byte():
            kind = head & 15
            last = last + (head >> 4) if head >> 4 else self._integer()
            fields.append((last, kind, self._value(kind, depth, is_field=True)))
        return fields

    def _value(self, kind: int, depth: int, *, is_field: bool = False) -> Any:
        if kind in (TRUE, FALSE):
            return None if is_field else self._byte()
        if kind == BYTE:
            return self._byte()
        if kind in _INTEGERS:
            return self._integer()
        if kind in (DOUBLE, BINARY):
            return self._bytes(8 if kind == DOUBLE else self._unsigned())
        if kind in (LIST, SET):
            head = self._byte()
            size = head >> 4 if head >> 4 < 15 else self._unsigned()
            if size > len(self._data):
                raise ThriftError("a list is longer than the bytes")
            return List(head & 15, [self._value(head & 15, depth + 1) for _ in range(size)])
        if kind == STRUCT:
            return self.struct(depth + 1)
        raise ThriftError(f"type {kind} is not supported")

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _bytes(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self._data):
            raise ThriftError("the bytes end inside of a value")
        return self._data[self.at - size : self.at]

    def _unsigned(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128 or shift > 63:
                return found

    def _integer(self) -> int:
        found = self._unsigned()
        return found >> 1 ^ -(found & 1)


def _value(kind: int, value: Any) -> bytes:
    if kind in (TRUE, FALSE, BYTE):
        return bytes([value & 255])
    if kind in _INTEGERS:
        return _varint(_zigzag(value))
    if kind == DOUBLE:
        return bytes(value)
    if kind == BINARY:
        return _varint(len(value)) + bytes(value)
    if kind == STRUCT:
        return written(value)
    size = len(value.items)
    head = bytes([size << 4 | value.kind]) if size < 15 else bytes([0xF0 | value.kind]) + _varint(size)
    return head + b"".join(_value(value.kind, item) for item in value.items)


def _zigzag(number: int) -> int:
    return (number << 1 ^ number >> 63) & (1 << 64) - 1


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes(found) + bytes([number])
