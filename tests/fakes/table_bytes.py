"""Rows of a file with a directory whose bytes are in memory, read without an engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from aiostream_data.errors import MemoryBudgetError
from aiostream_data.formats.row_groups import Directory, TableFormat, advance
from aiostream_data.rows.columns import column_elements
from aiostream_data.rows.records import ByteRange


def directory_of(format: TableFormat, data: bytes, limit: int = 1 << 28, url: str = "file") -> Directory:
    """Return the directory of a file."""
    steps = format.directory(url, len(data))
    ranges, found = advance(steps, None)
    while found is None:
        _check(sum(part.nbytes for part in ranges), limit)
        ranges, found = advance(steps, [_part(data, part) for part in ranges])
    return found


def rows_of(format: TableFormat, data: bytes, first: int = 0, limit: int = 1 << 28) -> Iterator[Any]:
    """Yield the rows of a file from row ``first`` on, as the engine reads them."""
    directory = directory_of(format, data, limit)
    for group in directory.groups_from(first):
        _check(group.stored_nbytes + group.nbytes, limit)
        parts = [_part(data, part) for part in group.ranges]
        _check(group.stored_nbytes + directory.decoded_nbytes(group, parts), limit)
        for part in directory.decode(group, parts):
            elements = part.structure.rows([column_elements(leaf) for leaf in part.leaves])
            yield from (row for row, number in zip(elements, part.rows.tolist(), strict=True) if number >= first)


def _part(data: bytes, part: ByteRange) -> memoryview:
    if not 0 <= part.start <= part.stop <= len(data):
        raise AssertionError(f"{part} is outside of the file of {len(data)} bytes")
    return memoryview(bytearray(data[part.start : part.stop]))


def _check(nbytes: int, limit: int) -> None:
    if nbytes > limit:
        raise MemoryBudgetError(f"{nbytes} bytes are more than the limit of {limit}")


def plain_rows(rows: Iterable[Any]) -> list[Any]:
    """Return rows with lists in place of arrays, and Python numbers in place of those of NumPy."""
    return [_plain(row) for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
