"""Parse ``tf.train.Example`` messages directly to columns: the pure-Python version of ``example.pyx``.

How this works. A record is the protobuf message::

    Example    {Features features = 1}          BytesList {repeated bytes value = 1}
    Features   {map<string, Feature> feature = 1}   FloatList {repeated float value = 1}  packed or not
    Feature    {oneof kind {BytesList = 1, FloatList = 2, Int64List = 3}}
    map entry  {string key = 1, Feature value = 2}  Int64List {repeated int64 value = 1}  packed or not

Each protobuf message type has a function that reads the fields between two positions and skips unknown fields. The
parser skips unrequested features by their encoded length. Repeated fields follow the protobuf rules: the last map entry
of a key replaces earlier entries of that key. The last field of a ``oneof`` clears the other fields of that ``oneof``.
Several lists of one kind are concatenated. One list can mix packed values and single values.

The native parser and this parser report the same first fault. A parser reports damaged bytes immediately. A parser
reports a faulty feature at the end of the record, because a later map entry with the same key can replace the feature.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

BYTES, FLOAT, INT64 = 1, 2, 3
"""Kinds of features. The value of each kind is its field number in the ``oneof``."""

ANY_NUMBER = -1
"""Value of ``Wanted.size`` for a feature with any number of values per row."""

MALFORMED, WRONG_KIND, WRONG_COUNT, MISSING = 1, 2, 3, 4
"""Codes of the possible faults in a record."""

_KEY_TAG, _VALUE_TAG = 0x0A, 0x12
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_PACKED_TAG, _ONE_INT64_TAG, _ONE_FLOAT_TAG = 0x0A, 0x08, 0x0D

_MAX_VARINT_NBYTES = 10
_UINT64 = (1 << 64) - 1


class Wanted(NamedTuple):
    """One feature to extract.

    Attributes:
        name: Key of the feature in the Example's feature map, as UTF-8 bytes.
        kind: Kind of the feature's values: ``BYTES``, ``FLOAT`` or ``INT64``.
        size: Required number of values per row (at least 1), or ``ANY_NUMBER``.
        required: True if a row without the feature is a fault. An empty list counts as a present feature with 0 values.
    """

    name: bytes
    kind: int
    size: int
    required: bool


class ParsedFeature(NamedTuple):
    """The values of one feature in all rows.

    Attributes:
        data: float32 or int64 values, row by row. For ``BYTES``, the int64 offset of each value in the buffer. A
            feature of fixed size has ``size`` values per row; rows without the feature contain zeros. Features of
            variable size have ``counts`` values per row.
        nbytes: For ``BYTES``, the length in bytes of each value in ``data``, int64. Empty for other kinds.
        counts: Number of values per row, int64; -1 for a row without the feature.
    """

    data: NDArray[Any]
    nbytes: NDArray[np.int64]
    counts: NDArray[np.int64]


class ParseFault(NamedTuple):
    """The first fault in the records.

    Attributes:
        record: Row index.
        feature: Index of the faulty feature in the list of requested features; -1 if the message is damaged.
        code: Fault code: ``MALFORMED``, ``WRONG_KIND``, ``WRONG_COUNT`` or ``MISSING``.
        found: Detail that depends on ``code``: byte offset of the damage in the record, actual kind, actual number of
            values, or 0.
    """

    record: int
    feature: int
    code: int
    found: int


Field: TypeAlias = tuple[int, int, int, int]
"""A protobuf field: tag, varint value (0 for other wire types), and start and stop of the payload."""


class DamagedMessageError(Exception):
    """Error for bytes at position ``at`` that are not a valid protobuf field."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class _Cell:
    """Values of one requested feature in one record."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.clear(0)

    def clear(self, found: int) -> None:
        self.found = found
        self.ints: list[int] = []  # INT64: values; BYTES: offsets
        self.nbytes: list[int] = []
        self.floats = bytearray()  # raw little-endian bits, which preserves NaN payloads

    @property
    def count(self) -> int:
        return len(self.floats) // 4 if self.kind == FLOAT else len(self.ints)


def parse_examples(
    values: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], wanted: Sequence[Wanted]
) -> list[ParsedFeature] | ParseFault:
    """Parse the records at ``values[starts[i] : starts[i] + lengths[i]]``.

    Args:
        values: C-contiguous uint8 array. It is not modified. The result stores offsets into ``values`` instead of
            pointers.
        starts: Index of the first byte of each record, int64.
        lengths: Length of each record in bytes, int64.
        wanted: The features to extract. Their names must be distinct.

    Returns:
        One ParsedFeature per requested feature, with its own arrays; or the first ParseFault.

    Raises:
        IndexError: A record is not completely inside ``values``.
        MemoryError: The columns do not fit into memory.
    """
    buffer = memoryview(cast(Any, np.ascontiguousarray(values)))
    index = {want.name: i for i, want in enumerate(wanted)}
    columns = [_Growing(want) for want in wanted]
    for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        if start < 0 or length < 0 or start + length > len(buffer):
            raise IndexError(f"record {start}+{length} is outside a buffer of {len(buffer)}")
        cells = [_Cell(want.kind) for want in wanted]
        try:
            _read_example(buffer, start, start + length, index, cells)
        except DamagedMessageError as damage:
            return ParseFault(row, -1, MALFORMED, damage.at - start)
        for i, (column, cell) in enumerate(zip(columns, cells, strict=True)):
            code, found = column.append(cell)
            if code:
                return ParseFault(row, i, code, found)
    return [column.finish() for column in columns]


class _Growing:
    """Growing column of one feature during parsing."""

    def __init__(self, want: Wanted) -> None:
        self.want = want
        self.ints: list[int] = []
        self.nbytes: list[int] = []
        self.floats = bytearray()
        self.counts: list[int] = []

    def append(self, cell: _Cell) -> tuple[int, int]:
        """Add one row.

        Return the fault code of the row (0 if the row is valid) and the value for ``ParseFault.found``.
        """
        want, count = self.want, cell.count
        if cell.found not in (0, want.kind):
            return WRONG_KIND, cell.found
        if cell.found == 0:
            if want.required:
                return MISSING, 0
            self.counts.append(-1)
            self._pad(max(want.size, 0))
            return 0, 0
        if want.size not in (ANY_NUMBER, count):
            return WRONG_COUNT, count
        self.counts.append(count)
        self.ints += cell.ints
        self.nbytes += cell.nbytes
        self.floats += cell.floats
        return 0, 0

    def _pad(self, count: int) -> None:
        if self.want.kind == FLOAT:
            self.floats += bytes(4 * count)
        else:
            self.ints += [0] * count
            self.nbytes += [0] * (count if self.want.kind == BYTES else 0)

    def finish(self) -> ParsedFeature:
        floats = self.want.kind == FLOAT
        data = np.frombuffer(self.floats, "<f4").astype(np.float32) if floats else np.array(self.ints, np.int64)
        return ParsedFeature(data, np.array(self.nbytes, np.int64), np.array(self.counts, np.int64))


def _read_example(buffer: memoryview, start: int, stop: int, index: dict[bytes, int], cells: list[_Cell]) -> None:
    for tag, _, features_start, features_stop in fields(buffer, start, stop):
        if tag != _KEY_TAG:
            continue
        for entry_tag, _, entry_start, entry_stop in fields(buffer, features_start, features_stop):
            if entry_tag == _KEY_TAG:
                key, value_start, value_stop = map_entry(buffer, entry_start, entry_stop)
                i = index.get(key)
                if i is not None:
                    _read_feature(buffer, value_start, value_stop, cells[i])


def map_entry(buffer: memoryview, start: int, stop: int) -> tuple[bytes, int, int]:
    """Return the key of a map entry, and the start and stop of its value. Key and value can be in any order."""
    key, value_start, value_stop = b"", stop, stop
    for tag, _, field_start, field_stop in fields(buffer, start, stop):
        if tag == _KEY_TAG:
            key = bytes(buffer[field_start:field_stop])
        elif tag == _VALUE_TAG:
            value_start, value_stop = field_start, field_stop
    return key, value_start, value_stop


def _read_feature(buffer: memoryview, start: int, stop: int, cell: _Cell) -> None:
    cell.clear(0)
    for tag, _, list_start, list_stop in fields(buffer, start, stop):
        kind = tag >> 3
        if tag & 7 != _DELIMITED or kind not in (BYTES, FLOAT, INT64):
            continue
        if kind != cell.found:
            cell.clear(kind)
        if kind == cell.kind:
            _read_list(buffer, list_start, list_stop, cell)


def _read_list(buffer: memoryview, start: int, stop: int, cell: _Cell) -> None:
    for tag, value, field_start, field_stop in fields(buffer, start, stop):
        if cell.kind == BYTES and tag == _PACKED_TAG:
            cell.ints.append(field_start)
            cell.nbytes.append(field_stop - field_start)
        elif cell.kind == FLOAT and tag in (_PACKED_TAG, _ONE_FLOAT_TAG):
            if (field_stop - field_start) % 4:
                raise DamagedMessageError(field_start)
            cell.floats += buffer[field_start:field_stop]
        elif cell.kind == INT64 and tag == _ONE_INT64_TAG:
            cell.ints.append(_signed(value))
        elif cell.kind == INT64 and tag == _PACKED_TAG:
            at = field_start
            while at < field_stop:
                value, at = _varint(buffer, at, field_stop)
                cell.ints.append(_signed(value))


def fields(buffer: memoryview, at: int, stop: int) -> Iterator[Field]:
    """Yield the fields of the message in bytes ``at`` to ``stop``. Raise ``DamagedMessageError`` for damaged bytes."""
    while at < stop:
        tag, after = _varint(buffer, at, stop)
        if tag < 8 or tag > 0xFFFFFFFF:
            raise DamagedMessageError(at)
        at, wire_type, value = after, tag & 7, 0
        if wire_type == _VARINT:
            value, end = _varint(buffer, at, stop)
        elif wire_type == _DELIMITED:
            length, end = _varint(buffer, at, stop)
            if length > stop - end:
                raise DamagedMessageError(at)
            at, end = end, end + length
        elif wire_type in (_FIXED64, _FIXED32):
            end = at + (8 if wire_type == _FIXED64 else 4)
        else:
            raise DamagedMessageError(at)  # groups (3, 4) are deprecated; wire types 6 and 7 do not exist
        if end > stop:
            raise DamagedMessageError(at)
        yield tag, value, at, end
        at = end


def _varint(buffer: memoryview, at: int, stop: int) -> tuple[int, int]:
    value = 0
    for i, byte in enumerate(buffer[at : min(stop, at + _MAX_VARINT_NBYTES)]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value & _UINT64, at + i + 1
    raise DamagedMessageError(at)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
