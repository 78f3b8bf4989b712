"""Split many complete small CSV files into records at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from aiostream_data._native.csv_rows_py import FIELD_START, QUOTED
from aiostream_data.errors import CsvSchemaError
from aiostream_data.formats.base import SmallObjects
from aiostream_data.formats.csv_rules import CsvRules, CsvSyntax, reordered
from aiostream_data.formats.cutting import Bytes
from aiostream_data.formats.lines import BOM, NEWLINE, RETURN, Indices
from aiostream_data.rows.columns import VarColumn

OrderOfFirst: TypeAlias = Callable[[bytes], Indices | None]
"""Function that returns the order of the columns of a file with this first row, or raises CsvSchemaError."""


class CsvObjectRecords(VarColumn):
    """Records of several CSV files that lie one after another.

    A column that is gathered from several columns becomes a plain :class:`VarColumn`, without line numbers.

    Attributes:
        bounds: File i is ``values[bounds[i]:bounds[i + 1]]``; int64, ascending.
    """

    __slots__ = ("bounds",)

    bounds: Indices

    def __init__(self, column: VarColumn, bounds: Indices) -> None:
        super().__init__(column.values, column.starts, column.lengths, column.kind)
        object.__setattr__(self, "bounds", bounds)

    def __reduce__(self) -> tuple[object, ...]:
        return CsvObjectRecords, (VarColumn(self.values, self.starts, self.lengths, self.kind), self.bounds)

    def line_of(self, row: int) -> int:
        """Return the number of the first line of a record in its file, starting at 1."""
        start = int(self.starts[row])
        first = int(self.bounds[np.searchsorted(self.bounds, start, side="right") - 1])
        return 1 + int(np.count_nonzero(self.values[first:start] == NEWLINE))

    def slice(self, start: int, stop: int) -> CsvObjectRecords:
        return CsvObjectRecords(VarColumn.slice(self, start, stop), self.bounds)


def records_of_objects(
    rules: CsvRules, order_of_first: OrderOfFirst, header: bool, values: Bytes, bounds: Indices, most_rows: int
) -> SmallObjects | None:
    """Split the files ``values[bounds[i]:bounds[i + 1]]`` into records.

    Args:
        order_of_first: Function that checks the first row of a file.
        header: True if the first row of each file is its header.

    Returns:
        None if a file may be damaged, if several files cannot be split in one pass, or if they have more than
        ``most_rows`` records and headers.
    """
    split = _one_file if len(bounds) == 2 else _files
    found = split(rules, values, bounds, most_rows)
    if found is None:
        return None
    starts, lengths = found
    rows_before = np.searchsorted(starts, bounds)
    firsts = rows_before[:-1][np.diff(rows_before) > 0]
    try:
        orders = [order_of_first(each) for each in _texts(values, starts[firsts], lengths[firsts])]
    except CsvSchemaError:
        return None
    order = orders[0] if orders else None
    if len(orders) > 1 and any(each is not None for each in orders):
        return None
    if header:
        starts, lengths = np.delete(starts, firsts), np.delete(lengths, firsts)
    rows = np.diff(np.searchsorted(starts, bounds))
    first = int(starts[0]) if len(starts) else int(bounds[0])
    cut = rules.checked(values, first, starts, lengths, int(bounds[-1]))
    if cut.problem is not None:
        return None
    column = reordered(cut.column, order, rules.syntax)
    return SmallObjects(CsvObjectRecords(column, bounds) if column.values is values else column, rows)


def _texts(values: Bytes, starts: Indices, lengths: Indices) -> set[bytes]:
    """Return the different texts of some records."""
    return {
        values[start:stop].tobytes() for start, stop in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
    }


def _files(rules: CsvRules, values: Bytes, bounds: Indices, most_rows: int) -> tuple[Indices, Indices] | None:
    """Return the starts and lengths of the records of several files, or None if a file must be split alone."""
    if not rules.keeps_bytes:
        return None
    filled = np.diff(bounds) > 0
    starts_of_files, ends = bounds[:-1][filled], bounds[1:][filled]
    if (values[ends - 1] != NEWLINE).any() or (rules.is_utf8 and _begin_with_mark(values, starts_of_files, ends)):
        return None
    start, stop = int(bounds[0]), int(bounds[-1])
    starts, lengths, consumed, _ = rules.syntax.records(values, start, stop, most_rows)
    if consumed != stop:
        return None
    last = np.searchsorted(starts, ends) - 1  # the last record that begins before the end of each file
    crosses = (last >= 0) & (starts[last] + lengths[last] >= ends) if len(starts) else np.zeros(0, np.bool_)
    return None if crosses.any() else (starts, lengths)


def _begin_with_mark(values: Bytes, starts: Indices, ends: Indices) -> bool:
    """Return True if a file begins with a byte order mark."""
    starts = starts[ends - starts >= len(BOM)]
    return bool((values[starts[:, None] + np.arange(len(BOM))] == BOM).all(1).any())


def _one_file(rules: CsvRules, values: Bytes, bounds: Indices, most_rows: int) -> tuple[Indices, Indices] | None:
    """Return the starts and lengths of the records of one file, or None if its last quote is not closed."""
    start, stop = bounds.tolist()
    if rules.is_utf8 and np.array_equal(values[start:stop][: len(BOM)], BOM):
        start += len(BOM)
    starts, lengths, consumed, _ = rules.syntax.records(values, start, stop, most_rows)
    if consumed == stop:
        return starts, lengths
    if len(starts) == most_rows:
        return None
    if _ends_in_quotes(rules.syntax, values, consumed, stop):
        return None
    nbytes = stop - consumed
    nbytes -= int(values[stop - 1]) == RETURN
    if not nbytes:
        return starts, lengths
    return np.append(starts, consumed), np.append(lengths, nbytes)


def _ends_in_quotes(syntax: CsvSyntax, values: Bytes, start: int, stop: int) -> bool:
    return syntax.scan(values, start, stop, FIELD_START)[1] == QUOTED
