"""Parquet files in folders such as ``year=2024``: the folders are columns of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.formats.hive_partitions import constant_text
from aiostream_data.formats.row_groups import Directory, JoinsGroups, RowGroup, TableRows
from aiostream_data.rows.columns import INDEX_NBYTES, Column
from aiostream_data.rows.structure import LEAF, NULLABLE, Structure

_ROW_NBYTES: Final = INDEX_NBYTES + 1
"""Memory of a row of a constant column, with the mark of a missing value."""


class PartitionedDirectory:
    """Directory of a Parquet file, with the partitions in its URL as columns.

    Args:
        stored: Directory of the file for the columns that the file stores.
        values: Values of the partitions to add, by name.
        names: Names of all columns, in the order of the elements.
        is_excluded: True if the partitions do not satisfy the filters, so that no row is read.
    """

    def __init__(
        self, stored: Directory, values: Mapping[str, str | None], names: Sequence[str], *, is_excluded: bool
    ) -> None:
        self._stored = stored
        self._values = values
        self._names = tuple(names)
        self._is_excluded = is_excluded

    @property
    def rows(self) -> int:
        return self._stored.rows

    @property
    def types(self) -> Mapping[str, str | None]:
        return {**self._stored.types, **dict.fromkeys(self._values, "string")}

    def groups_from(self, first_row: int) -> Iterable[RowGroup]:
        return () if self._is_excluded else self._stored.groups_from(first_row)

    def separated(self, group: RowGroup) -> Sequence[RowGroup]:
        """See :class:`.row_groups.JoinsGroups`."""
        return self._stored.separated(group) if isinstance(self._stored, JoinsGroups) else [group]

    def decoded_nbytes(self, group: RowGroup, parts: Sequence[memoryview]) -> int:
        return self._stored.decoded_nbytes(group, parts) + _ROW_NBYTES * group.rows * len(self._values)

    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        return [self._with_partitions(part) for part in self._stored.decode(group, parts, filtered=filtered)]

    def _with_partitions(self, part: TableRows) -> TableRows:
        found = dict(_columns_of(part))
        for name, value in self._values.items():
            found[name] = _constant(value, len(part.rows))
        kinds = tuple(found[name][0] for name in self._names)
        leaves = tuple(leaf for name in self._names for leaf in found[name][1])
        return TableRows(Structure("dict", self._names, kinds), leaves, part.rows)


def _columns_of(part: TableRows) -> Iterator[tuple[str, tuple[Structure, tuple[Column, ...]]]]:
    """Yield the name of each column, with its structure and its leaves."""
    first = 0
    for name, kind in zip(part.structure.names, part.structure.children, strict=True):
        stop = first + kind.leaf_count
        yield name, (kind, part.leaves[first:stop])
        first = stop


def _constant(value: str | None, rows: int) -> tuple[Structure, tuple[Column, ...]]:
    """Return a column with the same text, or without a value, in each row."""
    if value is not None:
        return LEAF, (constant_text(value, rows),)
    missing: NDArray[np.bool_] = np.zeros(rows, np.bool_)
    return NULLABLE, (constant_text("", rows), missing)
