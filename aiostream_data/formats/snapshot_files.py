"""Data files of a table with versions: Parquet files whose columns have the table's schema, without deleted rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CorruptRecordError, StateMismatchError
from aiostream_data.formats.arrow_rows import explained, load_pyarrow, table_rows
from aiostream_data.formats.column_paths import selected_columns
from aiostream_data.formats.declared_types import Declared
from aiostream_data.formats.deleted_keys import FileKeys, KeyLookup
from aiostream_data.formats.parquet_directory import ParquetDirectory, read_footer
from aiostream_data.formats.parquet_filters import Filters, open_alternatives, row_mask
from aiostream_data.formats.plain_types import shown_type
from aiostream_data.formats.row_groups import RowGroup, Steps, TableRows
from aiostream_data.formats.table_columns import FileColumns, selected
from aiostream_data.safe_url import safe_url


@dataclass(frozen=True, kw_only=True)
class SnapshotFormat:
    """Format of one data file.

    Attributes:
        table: Kind of the table: ``delta`` or ``iceberg``.
        version: Clause for error messages, such as "version 5 of s3://bucket/table".
        schema: Serialized Arrow schema of the columns for elements and filters; see :mod:`.table_columns`.
        columns: Paths of the columns of an element, in order. ``a.b`` selects the field ``b`` of the struct ``a``.
        filters: Conditions on columns of the table.
        constants: Names and values of columns that are the same in all rows of the file.
        deleted: Numbers of the deleted rows in the file, as the bytes of an ascending int64 array.
        deleted_keys: Keys whose rows are deleted.
    """

    table: str
    version: str
    schema: bytes = field(repr=False)
    columns: tuple[str, ...]
    filters: Filters = ()
    constants: tuple[tuple[str, Any], ...] = ()
    deleted: bytes = field(default=b"", repr=False)
    deleted_keys: tuple[FileKeys, ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        return self.table

    def directory(self, url: str, nbytes: int) -> Steps[SnapshotDirectory]:
        stored = yield from read_footer(url, nbytes)
        return SnapshotDirectory(self, url, stored)


class SnapshotDirectory:
    """Row groups of one data file.

    Rows have their numbers in the file, so deleted rows leave gaps.

    Args:
        format: The format.
        url: URL of the file, for error messages.
        stored: Footer of the file.
    """

    def __init__(self, format: SnapshotFormat, url: str, stored: ParquetDirectory) -> None:
        self._pyarrow = load_pyarrow("parquet", format.table.capitalize(), format.table)
        self._format = format
        self._url = url
        self._schema = schema = self._pyarrow.ipc.read_schema(self._pyarrow.py_buffer(format.schema))
        self._columns = FileColumns(self._pyarrow, url, schema, dict(format.constants), stored.schema)
        self._keys = KeyLookup(self._pyarrow, url, format.deleted_keys, stored.schema)
        paths = dict.fromkeys([*self._columns.paths, *self._keys.paths])
        self._stored = stored.selecting(tuple(paths), self._stored_filters(), declared=self._wide_floats()).listed()
        self._check_deleted()

    @property
    def rows(self) -> int:
        return self._stored.rows

    @property
    def types(self) -> Mapping[str, str | None]:
        output = selected(self._pyarrow, self._schema, self._format.columns, self._format.version)
        return {field.name: shown_type(self._pyarrow, field.type) for field in output}

    def groups_from(self, first_row: int) -> Iterable[RowGroup]:
        """Return the row groups from a row on that may contain rows of the element."""
        if self._format.filters and not self._alternatives:
            return ()
        return self._stored.groups_from(first_row, self._is_deleted)

    def separated(self, group: RowGroup) -> list[RowGroup]:
        return self._stored.separated(group)

    def decoded_nbytes(self, group: RowGroup, parts: Sequence[memoryview]) -> int:
        added = self._columns.added_nbytes(group.rows) + self._keys.added_nbytes(group.rows)
        return self._stored.decoded_nbytes(group, parts) + added

    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        stored = self._stored.table(group, parts)
        table = self._columns.of(stored, group.rows)
        rows = group.first_row + np.arange(group.rows, dtype=np.int64)
        if filtered:
            kept = ~(self._deleted(group) | self._keys.matches(stored, group.rows))
            if self._format.filters:
                kept &= np.asarray(row_mask(self._format.filters, table, self._url))
            if not kept.all():
                table, rows = table.filter(self._pyarrow.array(kept)), rows[kept]
        offset = group.ranges[0].start if group.ranges else 0
        with explained(self._pyarrow, self._url, offset, rows):
            return table_rows(selected_columns(self._pyarrow, table, self._format.columns), rows)

    def check_not_deleted(self, rows: NDArray[np.int64]) -> None:
        """See :class:`.row_groups.DeletesRows`."""
        self._refuse(rows[np.isin(rows, self._positions)])

    def check_kept(self, group: RowGroup, parts: Sequence[memoryview], rows: NDArray[np.int64]) -> None:
        """See :class:`.row_groups.DeletesRows`."""
        if self._format.deleted_keys:
            deleted = self._keys.matches(self._stored.table(group, parts), group.rows)
            self._refuse(rows[deleted[rows - group.first_row]])

    def _refuse(self, found: NDArray[np.int64]) -> None:
        if len(found):
            raise StateMismatchError(
                [f"row {found[0]} of {safe_url(self._url)} is deleted in {self._format.version}"],
                "Read the version of the table that the row was read from.",
            )

    @cached_property
    def _alternatives(self) -> Filters:
        return open_alternatives(self._format.filters, self._columns.constant_row())

    def _stored_filters(self) -> Filters:
        """Return the conditions on columns of the file, by the names that the file uses."""
        names = self._columns.names
        parts = [
            tuple((names[name], operator, value) for name, operator, value in part if name in names)
            for part in self._alternatives
        ]
        return tuple(parts) if all(parts) else ()

    def _wide_floats(self) -> Declared:
        """Return the columns whose values are rounded less by filters than the type in the file would round them."""
        kinds = {stored: self._schema.field(name).type for name, stored in self._columns.names.items()}
        return tuple((name, "float64") for name, kind in kinds.items() if self._pyarrow.types.is_float64(kind))

    @cached_property
    def _positions(self) -> NDArray[np.int64]:
        """Numbers of the deleted rows, ascending."""
        return np.frombuffer(self._format.deleted, np.int64)

    def _is_deleted(self, group: RowGroup) -> bool:
        """Return True if all rows of a group are deleted."""
        first, last = np.searchsorted(self._positions, [group.first_row, group.first_row + group.rows])
        return bool(last - first == group.rows)

    def _deleted(self, group: RowGroup) -> NDArray[np.bool_]:
        """Return a mask of the rows of a group that is True for deleted rows."""
        found = np.zeros(group.rows, bool)
        first, last = np.searchsorted(self._positions, [group.first_row, group.first_row + group.rows])
        found[self._positions[first:last] - group.first_row] = True
        return found

    def _check_deleted(self) -> None:
        if len(self._positions) and not 0 <= self._positions[0] <= self._positions[-1] < self.rows:
            raise CorruptRecordError(
                self._url,
                0,
                f"{self._format.version} deletes rows that the file, which has {self.rows} rows, does not have",
            )
