"""Syntax of CSV files, and validation of CSV records: maximum length and encoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from aiostream_data import _native
from aiostream_data._native.csv_rows_py import text_fields
from aiostream_data.arguments import shown
from aiostream_data.errors import PlanError
from aiostream_data.formats.cutting import Bytes
from aiostream_data.formats.lines import Indices, LineRules
from aiostream_data.rows.columns import VarColumn, VarKind

NO_QUOTE: Final = -1
"""Value of :attr:`CsvSyntax.quote_byte` if fields cannot be quoted."""


def _check_character(name: str, value: object) -> None:
    if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in "\r\n\0":
        cure = " (a tab is '\\t')" if name == "delimiter" else " or None"
        raise PlanError(f"{name} must be one ASCII character{cure}, got {shown(value)}")


@dataclass(frozen=True)
class CsvSyntax:
    """Characters with a meaning in a CSV file.

    Attributes:
        delimiter: Character between two fields.
        quote: Character around fields that contain delimiters or newlines; None if fields cannot be quoted.
    """

    delimiter: str = ","
    quote: str | None = '"'

    def __post_init__(self) -> None:
        _check_character("delimiter", self.delimiter)
        if self.quote is not None:
            _check_character("quote", self.quote)
        if self.quote == self.delimiter:
            raise PlanError(f"delimiter and quote must differ, got {shown(self.quote)} for both")

    @property
    def delimiter_byte(self) -> int:
        return ord(self.delimiter)

    @property
    def quote_byte(self) -> int:
        return NO_QUOTE if self.quote is None else ord(self.quote)

    def records(self, values: Bytes, start: int, stop: int, most_rows: int) -> Records:
        """Find at most ``most_rows`` complete records in ``values[start:stop]``."""
        return Records(*_native.find_csv_records(values, start, stop, self.delimiter_byte, self.quote_byte, most_rows))

    def scan(self, values: Bytes, start: int, stop: int, state: int) -> tuple[int, int]:
        """Find the end of a record. See :func:`~aiostream_data._native.csv_rows_py.scan_csv`."""
        return _native.scan_csv(values, start, stop, self.delimiter_byte, self.quote_byte, state)

    def fields(self, record: bytes) -> list[bytes] | None:
        """Return the texts of the fields of one record without their quotes; None if a quoted field is damaged."""
        return text_fields(record, self.delimiter_byte, self.quote_byte)


COMMAS: Final = CsvSyntax()
"""Syntax of RFC 4180."""


class Records(NamedTuple):
    """Records found in a range of bytes.

    Attributes:
        starts, lengths: Index of each record's first byte, and its length without the line end.
        consumed: Index after the last record.
        lines: Number of newlines before ``consumed``, including newlines in quoted fields.
    """

    starts: Indices
    lengths: Indices
    consumed: int
    lines: int


class CsvRecords(VarColumn):
    """Records of a CSV file in the order of the file, with the line number of the first one.

    A column that is gathered from several columns becomes a plain :class:`VarColumn`, without line numbers.
    """

    __slots__ = ("line",)

    line: int | None

    def __init__(self, column: VarColumn, line: int | None) -> None:
        super().__init__(column.values, column.starts, column.lengths, column.kind)
        object.__setattr__(self, "line", line)

    def __reduce__(self) -> tuple[object, ...]:
        return CsvRecords, (VarColumn(self.values, self.starts, self.lengths, self.kind), self.line)

    def line_of(self, row: int) -> int | None:
        """Return the number of the first line of a record, starting at 1; None if unknown."""
        if self.line is None or not row:
            return self.line
        before = self.values[int(self.starts[0]) : int(self.starts[row])]
        return self.line + int(np.count_nonzero(before == ord("\n")))

    def slice(self, start: int, stop: int) -> CsvRecords:
        line = self.line_of(start) if start < len(self) else None
        return CsvRecords(VarColumn.slice(self, start, stop), line)


class CsvRules(LineRules):
    """Validator of CSV records. Valid records are bytes in UTF-8, or unchanged bytes without an encoding."""

    def __init__(self, syntax: CsvSyntax, encoding: str | None, max_nbytes: int) -> None:
        super().__init__(encoding, max_nbytes)
        self.syntax = syntax

    @property
    def kind(self) -> VarKind:
        return "bytes"

    def _split(self, values: Bytes) -> tuple[Indices, Indices]:
        found = self.syntax.records(values, 0, len(values), len(values))
        return found.starts, found.lengths

    def too_long(self) -> str:
        cure = "check for a quote without its closing quote, or pass a larger max_line_nbytes"
        return f"the record is longer than max_line_nbytes={self.max_nbytes}; {cure}"


def reordered(column: VarColumn, order: Indices | None, syntax: CsvSyntax) -> VarColumn:
    """Return the records with field ``order[i]`` in place i; ``order`` is None for the order of the file."""
    if order is None or not len(column):
        return column
    values = np.ascontiguousarray(column.values)
    found = _native.reorder_csv(values, column.starts, column.lengths, order, syntax.delimiter_byte, syntax.quote_byte)
    return VarColumn(*found)
