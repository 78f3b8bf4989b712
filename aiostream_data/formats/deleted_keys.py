"""Rows that a table deletes by the values of some columns: a set of keys, and the lookup of rows in the set.

Each column has the array of its distinct deleted values. The code of a value is its place in the array. Codes of
several columns are combined one column after the other. ``pairs`` has the combined codes that occur, in ascending
order; their places are the codes for the next column. So lookups are exact, and need no Python object per key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.formats.table_columns import FileColumns

LOOKUP_NBYTES: Final = 64
"""Memory that the lookup of one row needs in addition to its columns, in bytes."""

_KEYS_AT_ONCE: Final = 1 << 20
"""Number of keys that are compared with the rows of a group at once."""


@dataclass(frozen=True, eq=False)
class DeletedKeys:
    """Set of deleted keys, which many data files share. Picklable.

    Null equals null, and NaN equals NaN. Zeros of different signs are different.

    Attributes:
        schema: Serialized Arrow schema of the columns; see :mod:`.table_columns`. A struct has one field, the column.
        values: Distinct values of each column, as Arrow arrays.
        pairs: Combined codes of each column after the first, ascending int64.
        newest: For each key, the sequence number of its newest deletion, int64.
    """

    schema: bytes = field(repr=False)
    values: tuple[Any, ...] = field(repr=False)
    pairs: tuple[NDArray[np.int64], ...] = field(repr=False)
    newest: NDArray[np.int64] = field(repr=False)

    @classmethod
    def of(cls, pyarrow: Any, keys: Any, sequences: NDArray[np.int64]) -> DeletedKeys:
        """Return the set of the keys.

        Args:
            pyarrow: The module.
            keys: ``pyarrow.Table`` with one row per key. Keys may repeat.
            sequences: Sequence number of the deletion of each key, at least 0.
        """
        codes = np.zeros(len(keys), np.int64)
        values: list[Any] = []
        pairs: list[NDArray[np.int64]] = []
        for column in keys.columns:
            plain = _comparable(pyarrow, column)
            distinct = plain.unique()
            found = _codes(plain, distinct)
            if values:
                occurring, codes = np.unique(codes * len(distinct) + found, return_inverse=True)
                pairs.append(occurring)
            else:
                codes = found
            values.append(distinct)
        newest = np.zeros(len(pairs[-1] if pairs else values[0]), np.int64)
        np.maximum.at(newest, codes, sequences)
        return cls(keys.schema.serialize().to_pybytes(), tuple(values), tuple(pairs), newest)

    def matches(self, pyarrow: Any, rows: Any, sequence: int) -> NDArray[np.bool_]:
        """Return a mask that is True for the rows with a key that was deleted after ``sequence``.

        Args:
            rows: ``pyarrow.Table`` with the columns of the schema.
        """
        codes = np.zeros(0, np.int64)
        for number, (column, distinct) in enumerate(zip(rows.columns, self.values, strict=True)):
            found = _codes(_comparable(pyarrow, column), distinct)
            codes = self._combined(number - 1, codes, found) if number else found
        return (codes >= 0) & (self.newest[codes] > sequence)

    def _combined(self, number: int, before: NDArray[np.int64], found: NDArray[np.int64]) -> NDArray[np.int64]:
        occurring = self.pairs[number]
        wanted = before * len(self.values[number + 1]) + found
        places = np.minimum(np.searchsorted(occurring, wanted), len(occurring) - 1)
        return np.where((before >= 0) & (found >= 0) & (occurring[places] == wanted), places, -1)


@dataclass(frozen=True, eq=False)
class FileKeys:
    """Deleted keys that concern one data file. Picklable.

    Attributes:
        keys: The deleted keys.
        sequence: Sequence number of the data file. Only later deletions concern it.
        constants: Names and values of columns of the keys that are the same in all rows of the file.
    """

    keys: DeletedKeys
    sequence: int
    constants: tuple[tuple[str, Any], ...] = ()


class KeyLookup:
    """Finds the rows of one data file whose keys are deleted.

    Args:
        pyarrow: The module.
        url: URL of the file, for error messages.
        deleted: The deleted keys.
        stored: Arrow schema of the file.

    Raises:
        TableSchemaError: The file has no field ids, or has a column of a type that is not converted.
    """

    def __init__(self, pyarrow: Any, url: str, deleted: Sequence[FileKeys], stored: Any) -> None:
        self._pyarrow = pyarrow
        self._deleted = [(each, self._columns(url, each.keys, dict(each.constants), stored)) for each in deleted]

    def _columns(self, url: str, keys: DeletedKeys, constants: Mapping[str, Any], stored: Any) -> FileColumns:
        schema = self._pyarrow.ipc.read_schema(self._pyarrow.py_buffer(keys.schema))
        return FileColumns(self._pyarrow, url, schema, constants, stored)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Paths in the file of the columns that the keys need."""
        return tuple(path for _, columns in self._deleted for path in columns.paths)

    def added_nbytes(self, rows: int) -> int:
        """Return the memory that the lookup of a number of rows needs, at most."""
        sizes = [columns.added_nbytes(rows) + rows * LOOKUP_NBYTES for _, columns in self._deleted]
        return max(sizes, default=0)

    def matches(self, table: Any, rows: int) -> NDArray[np.bool_]:
        """Return a mask of the rows of a table from the file that is True for deleted rows."""
        found = np.zeros(rows, bool)
        for each, columns in self._deleted:
            found |= each.keys.matches(self._pyarrow, columns.of(table, rows), each.sequence)
        return found


def _codes(column: Any, distinct: Any) -> NDArray[np.int64]:
    """Return the places of the values of a column in an array; -1 for other values."""
    from pyarrow import compute

    own = compute.unique(column)  # a hash table of these values, because there may be millions of keys
    places = np.full(len(own), -1, np.int64)
    for first in range(0, len(distinct), _KEYS_AT_ONCE):
        found = compute.index_in(distinct.slice(first, _KEYS_AT_ONCE), value_set=own)
        numbers = compute.fill_null(found, -1).to_numpy().astype(np.int64)
        keys = np.flatnonzero(numbers >= 0)
        places[numbers[keys]] = first + keys
    rows = compute.index_in(column, value_set=own).to_numpy().astype(np.int64)
    codes: NDArray[np.int64] = places[rows]
    return codes


def _comparable(pyarrow: Any, column: Any) -> Any:
    """Return the values of a column with a type in which equal values have equal bytes."""
    from pyarrow import compute

    types = pyarrow.types
    while types.is_struct(column.type):
        column = compute.struct_field(column, [0])  # null where the struct is null
    if not types.is_floating(column.type):
        return column
    whole = getattr(pyarrow, f"int{column.type.bit_width}")()
    column = compute.if_else(compute.is_nan(column), pyarrow.scalar(np.nan, column.type), column)
    return pyarrow.chunked_array([each.view(whole) for each in column.chunks], whole)
