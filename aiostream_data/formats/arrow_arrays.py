"""Arrays of PyArrow from the buffers of a record batch, without a copy unless the buffers are compressed."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from aiostream_data.errors import ArrowTypeError, CorruptRecordError
from aiostream_data.formats.arrow_fields import SchemaField, Stored, rebuilt_type
from aiostream_data.formats.arrow_messages import Buffer, RecordBatch
from aiostream_data.formats.object_sizes import makes_objects, node_nbytes
from aiostream_data.rows.records import ByteRange

_SIZE_NBYTES: Final = 8
_NOT_COMPRESSED: Final = -1

VARIABLE_NBYTES: Final = 17
"""Memory of a row of variable length beside its bytes: its start, its length, and a mark."""


class Body:
    """Buffers of a record batch of which some byte ranges of the file are in memory.

    Args:
        url: URL of the file, for error messages.
        batch: The record batch.
        ranges: Ranges in memory, ascending and without overlap.
        parts: Bytes of each range.
    """

    def __init__(self, url: str, batch: RecordBatch, ranges: Sequence[ByteRange], parts: Sequence[memoryview]) -> None:
        self.url = url
        self.batch = batch
        self.codec = batch.codec
        self._starts = [part.start for part in ranges]
        self._parts = parts

    def stored(self, buffer: Buffer) -> memoryview:
        """Return the bytes of a buffer in the file."""
        if not buffer.nbytes:
            return memoryview(b"")
        start = self.batch.start + buffer.offset
        number = bisect_right(self._starts, start) - 1
        begin = start - self._starts[number]
        return self._parts[number][begin : begin + buffer.nbytes]

    def decompressed_nbytes(self, buffer: Buffer) -> int:
        """Return the declared size of a buffer after decompression; 0 for a buffer that is not compressed."""
        if self.codec is None or not buffer.nbytes:
            return 0
        return max(0, self._declared(self.stored(buffer)))

    def bytes_of(self, pyarrow: Any, buffer: Buffer) -> Any:
        """Return a buffer of PyArrow.

        Raises:
            CorruptRecordError: The buffer cannot be decompressed.
        """
        found = self.stored(buffer)
        if self.codec is None or not buffer.nbytes:
            return pyarrow.py_buffer(found)
        nbytes = self._declared(found)
        if nbytes == _NOT_COMPRESSED:
            return pyarrow.py_buffer(found[_SIZE_NBYTES:])
        if not nbytes:
            return pyarrow.py_buffer(b"")
        try:
            made = pyarrow.Codec(self.codec).decompress(found[_SIZE_NBYTES:], nbytes)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise self.error(buffer, f"a buffer cannot be decompressed: {error}") from error
        if made.size != nbytes:
            raise self.error(buffer, f"a buffer has {made.size} bytes instead of {nbytes}")
        return made

    def _declared(self, stored: memoryview) -> int:
        if len(stored) < _SIZE_NBYTES:
            raise CorruptRecordError(self.url, self.batch.start, "a compressed buffer has no size")
        (nbytes,) = struct.unpack_from("<q", stored)
        if nbytes < _NOT_COMPRESSED:
            raise CorruptRecordError(self.url, self.batch.start, f"a compressed buffer declares {nbytes} bytes")
        return int(nbytes)

    def error(self, buffer: Buffer, reason: str) -> CorruptRecordError:
        return CorruptRecordError(self.url, self.batch.start + buffer.offset, reason)


def array_of(pyarrow: Any, part: Stored, body: Body, dictionaries: Mapping[int, Any]) -> Any:
    """Return the array of a field. Its contents are not checked.

    Args:
        dictionaries: Values of the dictionaries by number.

    Raises:
        CorruptRecordError: A buffer cannot be decompressed, or a dictionary is missing.
        ArrowTypeError: This package cannot read the type.
    """
    field, (length, null_count) = part.field, part.node
    buffers = [body.bytes_of(pyarrow, buffer) for buffer in part.buffers]
    if buffers and (null_count == 0 or not buffers[0].size) and not pyarrow.types.is_union(field.type):
        buffers[0] = None
    if field.dictionary is not None:
        values = dictionaries.get(field.dictionary)
        if values is None:
            raise CorruptRecordError(body.url, body.batch.start, f"the dictionary of column {field.path!r} is missing")
        type = pyarrow.dictionary(field.type, values.type)
        return pyarrow.DictionaryArray.from_buffers(type, length, buffers, values, null_count)
    children = [array_of(pyarrow, child, body, dictionaries) for child in part.children]
    kinds = [pyarrow.field(child.field.name, array.type) for child, array in zip(part.children, children, strict=True)]
    type = rebuilt_type(pyarrow, field, kinds)
    if pyarrow.types.is_null(type):
        return pyarrow.nulls(length)
    if field.is_variadic and not hasattr(type, "has_variadic_buffers"):
        raise ArrowTypeError(
            field.path, f"the column contains views, which PyArrow {pyarrow.__version__} cannot read. Upgrade PyArrow"
        )
    try:
        return pyarrow.Array.from_buffers(type, length, buffers, null_count, 0, children or None)
    except KeyError as error:  # PyArrow has no arrays of some types, such as intervals of months
        raise ArrowTypeError(field.path, f"PyArrow cannot read the type {type}. Select other columns") from error


class DecodedSizes:
    """Sizes of decoded rows, as a file declares them. The sizes of its types are computed once.

    Args:
        pyarrow: The package PyArrow.
    """

    def __init__(self, pyarrow: Any) -> None:
        self._pyarrow = pyarrow
        self._rows: dict[tuple[int, bool], int] = {}  # by the id of the field, and whether it has nulls
        self._makes_objects: dict[int, bool] = {}

    def of(self, parts: Iterable[Stored], body: Body) -> int:
        """Return the memory that decoding of the fields needs in addition to the stored bytes."""
        total = 0
        for outer in parts:
            is_object = self._is_object(outer.field)
            for part in outer.walk():
                total += part.node.length * self._row_nbytes(part.field, bool(part.node.null_count))
                decompressed = 0 if body.codec is None else sum(map(body.decompressed_nbytes, part.buffers))
                stored = sum([buffer.nbytes for buffer in part.buffers])
                total += decompressed + (stored if part.field.is_variadic else 0)
                if is_object:  # the objects are copies
                    object_nbytes = node_nbytes(self._pyarrow, part.field.type)
                    total += part.node.length * object_nbytes + (decompressed or stored)
        return total

    def _is_object(self, field: SchemaField) -> bool:
        if id(field) not in self._makes_objects:
            self._makes_objects[id(field)] = makes_objects(self._pyarrow, field.type)
        return self._makes_objects[id(field)]

    def _row_nbytes(self, field: SchemaField, has_nulls: bool) -> int:
        if (id(field), has_nulls) not in self._rows:
            self._rows[id(field), has_nulls] = _row_nbytes(self._pyarrow, field, has_nulls)
        return self._rows[id(field), has_nulls]


def referred_nbytes(fields: Iterable[Stored]) -> int:
    """Return the total size of the buffers of fields. Several buffers may be the same bytes of a file."""
    return sum(buffer.nbytes for field in fields for part in field.walk() for buffer in part.buffers)


def _row_nbytes(pyarrow: Any, field: SchemaField, has_nulls: bool) -> int:
    """Return the memory of a row in addition to its buffers."""
    types, kind = pyarrow.types, field.type
    if field.values is not None:
        return VARIABLE_NBYTES + 8 + _copied_nbytes(types, field.values.type)
    if types.is_fixed_size_list(kind) or types.is_struct(kind):
        return int(has_nulls)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_timestamp(kind) or types.is_duration(kind):
        return int(has_nulls)
    return VARIABLE_NBYTES


def _copied_nbytes(types: Any, kind: Any) -> int:
    """Return the memory of a value of a dictionary that is copied for each row. Text is shared by the rows."""
    if types.is_fixed_size_list(kind):
        return int(kind.list_size) * _copied_nbytes(types, kind.value_type)
    return max(1, int(kind.bit_width) // 8) if types.is_primitive(kind) else 0
