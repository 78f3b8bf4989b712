"""Read files with row groups from memory, without an engine, to test formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from mmap import mmap
from typing import Any, TypeAlias

import numpy as np

from aiostream_data.errors import MemoryBudgetError
from aiostream_data.formats.row_groups import Directory, RowGroup, TableFormat, advance
from aiostream_data.rows.columns import Column, VarColumn, column_elements
from aiostream_data.rows.records import ByteRange

Content: TypeAlias = bytes | mmap
"""Content of a file."""


def directory_of(format: TableFormat, data: Content, limit: int = 1 << 28, url: str = "file") -> Directory:
    """Return the directory of a file.

    Raises:
        AssertionError: The format requests bytes outside of the file.
        MemoryBudgetError: The directory is larger than ``limit`` bytes.
    """
    steps = format.directory(url, len(data))
    ranges, found = advance(steps, None)
    while found is None:
        nbytes = sum(part.nbytes for part in ranges)
        parts = parts_of(data, ranges) if nbytes <= limit else _too_large(nbytes, limit)
        ranges, found = advance(steps, parts)
    return found


def rows_of(
    format: TableFormat, data: Content, first: int = 0, limit: int = 1 << 28, url: str = "file"
) -> Iterator[Any]:
    """Yield the rows of a file from row ``first`` on, as the engine reads them. See :func:`directory_of`."""
    directory = directory_of(format, data, limit, url)
    for group in directory.groups_from(first):
        yield from rows_of_group(directory, group, data, first, limit)


def rows_of_group(
    directory: Directory, group: RowGroup, data: Content, first: int = 0, limit: int = 1 << 28
) -> list[Any]:
    """Return the rows of a group from row ``first`` of the file on. See :func:`directory_of`."""
    _check(group.stored_nbytes + group.nbytes, limit)
    parts = parts_of(data, group.ranges)
    _check(group.stored_nbytes + directory.decoded_nbytes(group, parts), limit)
    found: list[Any] = []
    for part in directory.decode(group, parts):
        elements = part.structure.rows([column_elements(leaf) for leaf in part.leaves])
        found += (row for row, number in zip(elements, part.rows.tolist(), strict=True) if number >= first)
    return found


def parts_of(data: Content, ranges: Sequence[ByteRange]) -> list[memoryview]:
    """Return the bytes of ranges, in writable memory as from the engine."""
    return [_part(data, part) for part in ranges]


def is_view(column: Column, parts: Sequence[memoryview]) -> bool:
    """Return True if a column refers to the bytes of a part of the file."""
    values = column.values if isinstance(column, VarColumn) else column
    return any(np.may_share_memory(values, np.frombuffer(part, np.uint8)) for part in parts)


def _part(data: Content, part: ByteRange) -> memoryview:
    if not 0 <= part.start <= part.stop <= len(data):
        raise AssertionError(f"{part} is outside of the file of {len(data)} bytes")
    return memoryview(bytearray(data[part.start : part.stop]))


def _check(nbytes: int, limit: int) -> None:
    if nbytes > limit:
        raise _too_large(nbytes, limit)


def _too_large(nbytes: int, limit: int) -> MemoryBudgetError:
    return MemoryBudgetError(f"{nbytes} bytes are more than the limit of {limit}")
