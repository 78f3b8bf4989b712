"""Split CSV text into records and parse fields: the pure-Python version of ``csv_rows.pyx``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

FIELD_START: Final = 0
FIELD: Final = 1
QUOTED: Final = 2
CLOSING: Final = 3
"""States inside a record: at the start of a field, in an unquoted field, in a quoted field, after a quote in it."""

SKIPPED: Final = 0
TEXT: Final = 1
_DTYPES: Final = (
    *(np.bool_, np.float32, np.float64),
    *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
)
KINDS: Final = {np.dtype(dtype): kind for kind, dtype in enumerate(_DTYPES, 2)}
"""Number of each dtype in the argument ``kinds`` of :func:`parse_csv`."""

FIELD_COUNT: Final = 1
BAD_VALUE: Final = 2
OUT_OF_RANGE: Final = 3
TEXT_AFTER_QUOTE: Final = 4
OPEN_QUOTE: Final = 5

_NEWLINE = 10
_RETURN = 13
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_FLOAT = re.compile(rb"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE)
_BOOLS = {b"true": True, b"1": True, b"false": False, b"0": False}

Bytes: TypeAlias = NDArray[np.uint8]
Indices: TypeAlias = NDArray[np.int64]
Parsed: TypeAlias = tuple[NDArray[Any], Indices | None, NDArray[np.bool_], bool, bool]
"""(values, None, valid, has missing values, False) for numbers; (starts, lengths, valid, has missing values, has
doubled quotes) for text."""


class CsvFault(NamedTuple):
    """First record that cannot be parsed.

    Attributes:
        code: ``FIELD_COUNT``, ``BAD_VALUE``, ``OUT_OF_RANGE``, ``TEXT_AFTER_QUOTE`` or ``OPEN_QUOTE``.
        row, column: Numbers of the record and of its field.
    """

    code: int
    row: int
    column: int


class Field(NamedTuple):
    """One field of a record: ``text`` without the outer quotes, and the bytes with them."""

    text: bytes
    raw: bytes
    is_quoted: bool


def find_csv_records(
    buffer: Bytes, start: int, stop: int, delimiter: int, quote: int, most_rows: int
) -> tuple[Indices, Indices, int, int]:
    r"""Find the complete records in ``buffer[start:stop]``.

    A record ends with ``\n`` or ``\r\n`` outside quotes. A quote has an effect only at the start of a field, as in the
    module ``csv``. Empty lines are not records.

    Args:
        buffer: Contiguous uint8 array.
        start, stop: Range of bytes to read.
        delimiter, quote: Bytes between and around fields; ``quote`` is -1 for no quotes.
        most_rows: Maximum number of records to find.

    Returns:
        Starts and lengths of the records without line ends, the index after the last of them, and its number of lines.
    """
    starts: list[int] = []
    lengths: list[int] = []
    lines = 0
    while start < stop and len(starts) < most_rows:
        end, _ = scan_csv(buffer, start, stop, delimiter, quote, FIELD_START)
        if end < 0:
            break
        length = end - 1 - start
        length -= length > 0 and int(buffer[end - 2]) == _RETURN
        if length:
            starts.append(start)
            lengths.append(length)
        lines += int(np.count_nonzero(buffer[start:end] == _NEWLINE))
        start = end
    return np.array(starts, np.int64), np.array(lengths, np.int64), start, lines


def scan_csv(buffer: Bytes, start: int, stop: int, delimiter: int, quote: int, state: int) -> tuple[int, int]:
    """Find the end of a record of which the bytes before ``start`` were scanned.

    Args:
        state: State at ``start``: ``FIELD_START`` at the beginning of a record, else the state that was returned.

    Returns:
        The index after the newline of the record, or -1; and the state at the end.
    """
    if not 0 <= start <= stop <= len(buffer):
        raise IndexError(f"bytes {start} to {stop} are outside a buffer of {len(buffer)}")
    for at, byte in enumerate(buffer[start:stop].tolist(), start):
        if state == QUOTED:
            state = CLOSING if byte == quote else QUOTED
        elif byte == quote and state in (FIELD_START, CLOSING):
            state = QUOTED
        elif byte == delimiter:
            state = FIELD_START
        elif byte == _NEWLINE:
            return at + 1, FIELD_START
        else:
            state = FIELD
    return -1, state


def parse_csv(
    buffer: Bytes,
    starts: Indices,
    lengths: Indices,
    kinds: Sequence[int],
    delimiter: int,
    quote: int,
    na_values: Sequence[bytes],
) -> list[Parsed] | CsvFault:
    """Parse records to columns.

    Args:
        buffer: Contiguous uint8 array; record i is ``buffer[starts[i] : starts[i] + lengths[i]]``.
        kinds: For each field of a record ``SKIPPED``, ``TEXT``, or the number of its dtype in ``KINDS``.
        na_values: Texts of fields without a value. A quoted text field always has a value.

    Returns:
        The columns that are not skipped, or the first record that cannot be parsed.
    """
    columns = [_Column(kind) for kind in kinds]
    for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        column, at = 0, start
        for code, field in _fields(buffer[start : start + length].tobytes(), delimiter, quote):
            code = code or (FIELD_COUNT if column == len(columns) else columns[column].add(field, at, na_values))
            if code:
                return CsvFault(code, row, column)
            column, at = column + 1, at + len(field.raw) + 1
        if column != len(columns):
            return CsvFault(FIELD_COUNT, row, column - 1)
    return [column.parsed() for column in columns if column.kind != SKIPPED]


def _fields(record: bytes, delimiter: int, quote: int) -> Iterator[tuple[int, Field]]:
    """Yield a code (0 if the field is valid) and the field for each field of a record."""
    between = bytes([delimiter])
    mark = bytes([quote]) if quote >= 0 else b""
    at = 0
    while True:
        if not (mark and record.startswith(mark, at)):
            end = record.find(between, at)
            end = len(record) if end < 0 else end
            yield 0, Field(record[at:end], record[at:end], is_quoted=False)
        else:
            end = _closing(record, at + 1, mark)
            if end < 0:
                yield OPEN_QUOTE, Field(b"", b"", is_quoted=True)
                return
            is_over = end + 1 == len(record) or record.startswith(between, end + 1)
            yield 0 if is_over else TEXT_AFTER_QUOTE, Field(record[at + 1 : end], record[at : end + 1], is_quoted=True)
            if not is_over:
                return
            end += 1
        if end == len(record):
            return
        at = end + 1


def _closing(record: bytes, at: int, mark: bytes) -> int:
    """Return the index of the quote that ends a field, or -1."""
    while (at := record.find(mark, at)) >= 0 and record.startswith(mark, at + 1):
        at += 2
    return at


class _Column:
    """Values of one column."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.values: list[Any] = []
        self.lengths: list[int] = []
        self.valid: list[bool] = []
        self.has_doubled = False

    def add(self, field: Field, at: int, na_values: Sequence[bytes]) -> int:
        """Append the value of a field. Return 0, or the code of the error."""
        if self.kind == SKIPPED:
            return 0
        has_value = (field.is_quoted and self.kind == TEXT) or field.text not in na_values
        self.valid.append(has_value)
        if self.kind == TEXT:
            self.values.append(at + field.is_quoted)
            self.lengths.append(len(field.text) if has_value else 0)
            self.has_doubled = self.has_doubled or len(field.raw) > len(field.text) + 2 or _has_doubled(field)
            return 0
        dtype = np.dtype(_DTYPES[self.kind - 2])
        value, code = _number(field.text.strip(b" \t"), dtype) if has_value else (0, 0)
        self.values.append(value)
        return code

    def parsed(self) -> Parsed:
        valid = np.array(self.valid, np.bool_)
        is_missing = not valid.all()
        if self.kind == TEXT:
            lengths = np.array(self.lengths, np.int64)
            return np.array(self.values, np.int64), lengths, valid, is_missing, self.has_doubled
        dtype = np.dtype(_DTYPES[self.kind - 2])
        if dtype.kind == "f":
            with np.errstate(over="ignore"):
                return np.array(self.values, np.float64).astype(dtype), None, valid, is_missing, False
        return np.array(self.values, dtype), None, valid, is_missing, False


def _has_doubled(field: Field) -> bool:
    mark = field.raw[:1]
    return field.is_quoted and mark * 2 in field.text


def _number(text: bytes, dtype: np.dtype[Any]) -> tuple[Any, int]:
    """Return the value of a field and 0, or 0 and the code of the error."""
    if dtype == np.bool_:
        value = _BOOLS.get(text.lower())
        return (value, 0) if value is not None else (0, BAD_VALUE)
    if dtype.kind == "f":
        return (float(text), 0) if _FLOAT.fullmatch(text) else (0, BAD_VALUE)
    if not _INTEGER.fullmatch(text):
        return 0, BAD_VALUE
    if len(text.lstrip(b"+-0")) > len("18446744073709551615"):
        return 0, OUT_OF_RANGE
    number, limits = int(text), np.iinfo(dtype)
    return (number, 0) if limits.min <= number <= limits.max else (0, OUT_OF_RANGE)


def unescape_csv(buffer: Bytes, starts: Indices, lengths: Indices, quote: int) -> tuple[Bytes, Indices, Indices]:
    """Copy rows to a new array, with one quote in place of two. Return the array, and the rows' starts and lengths."""
    mark = bytes([quote])
    rows = [
        buffer[start : start + length].tobytes().replace(mark * 2, mark)
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
    return _joined(rows)


def reorder_csv(
    buffer: Bytes, starts: Indices, lengths: Indices, order: Indices, delimiter: int, quote: int
) -> tuple[Bytes, Indices, Indices]:
    """Copy records to a new array, with field ``order[i]`` in place i.

    A record with another number of fields, or with a damaged field, is copied unchanged.

    Returns:
        The array, and the starts and lengths of the records.
    """
    rows = []
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        record = buffer[start : start + length].tobytes()
        found = list(_fields(record, delimiter, quote))
        if len(found) == len(order) and not any(code for code, _ in found):
            record = bytes([delimiter]).join(found[number][1].raw for number in order.tolist())
        rows.append(record)
    return _joined(rows)


def _joined(rows: Sequence[bytes]) -> tuple[Bytes, Indices, Indices]:
    lengths = np.array([len(row) for row in rows], np.int64)
    return np.frombuffer(b"".join(rows), np.uint8), np.cumsum(lengths) - lengths, lengths


def five_powers() -> NDArray[np.uint64]:
    """Return the upper 128 bits of 5**q for q from -342 to 308, as two uint64 each, the upper one first.

    Powers with a negative exponent are rounded up, as the algorithm of Eisel and Lemire requires.
    """
    found = []
    for power in range(-342, 309):
        if power >= 0:
            five = 5**power
            shift = five.bit_length() - 128
            bits = five >> shift if shift > 0 else five << -shift
        else:
            five = 5**-power
            zeros = 1 << (2 * five.bit_length() + 128)
            bits = zeros // five + 1
            bits >>= bits.bit_length() - 128
        found += [bits >> 64, bits & 0xFFFFFFFFFFFFFFFF]
    return np.array(found, np.uint64)


def text_fields(record: bytes, delimiter: int, quote: int) -> list[bytes] | None:
    """Return the texts of the fields of one record without their quotes; None if a quoted field is damaged."""
    mark = bytes([quote]) if quote >= 0 else b""
    texts = []
    for code, field in _fields(record, delimiter, quote):
        if code:
            return None
        texts.append(field.text.replace(mark * 2, mark) if field.is_quoted else field.text)
    return texts
