"""Columns of chunks: one leaf of the element structure for all rows of a chunk."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.rows.lent_memory import LendsMemory, empty_array, empty_block
from aiostream_data.rows.object_nbytes import objects_nbytes, sample_of

VarKind = Literal["bytes", "str", "array"]

LONG_ROW_NBYTES: Final = 4 << 10
"""Minimum mean size of rows in bytes for which one object per row costs less than copying the rows."""


LARGE_ROW_NBYTES: Final = 32 << 10
"""Minimum mean size of rows in bytes for which new memory takes longer than copying the row into used memory."""

INDEX_NBYTES: Final = 16
"""Bytes per row in the index of a variable-length column: the start and the length."""


@dataclass(frozen=True, slots=True)
class VarColumn:
    """A column whose rows differ in length: row i is ``values[starts[i] : starts[i] + lengths[i]]``.

    Attributes:
        values: Array that contains all rows along its first axis. The dtype is uint8 for ``bytes`` and ``str`` rows.
        starts: Start of each row in ``values``, int64. Rows can overlap, leave gaps and be out of order.
        lengths: Length of each row, int64.
        kind: Python type of a row: ``bytes``, ``str`` (decoded from UTF-8), or ``array`` (a slice of ``values``).
    """

    values: NDArray[Any]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    kind: VarKind = "bytes"

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the items of all rows."""
        return self.values.dtype

    @property
    def item_shape(self) -> tuple[int, ...]:
        """Shape of one item of a row."""
        return self.values.shape[1:]

    @property
    def nbytes(self) -> int:
        values = self.values
        row = values.itemsize if values.ndim == 1 else values.itemsize * math.prod(values.shape[1:])
        nbytes = _native.total_length(self.lengths) * row + INDEX_NBYTES * len(self.starts)
        if not values.dtype.hasobject:
            return nbytes
        filled = self.starts[self.lengths > 0]
        some = self.values[filled[sample_of(len(filled))]]
        return nbytes + objects_nbytes(some, _native.total_length(self.lengths))

    def slice(self, start: int, stop: int) -> VarColumn:
        return VarColumn(self.values, self.starts[start:stop], self.lengths[start:stop], self.kind)

    def take(self, rows: NDArray[np.int64]) -> VarColumn:
        """Return the rows at the indices ``rows``. The result and this column share the array of values."""
        return VarColumn(self.values, self.starts[rows], self.lengths[rows], self.kind)

    def compact(self, pool: LendsMemory | None = None) -> VarColumn:
        """Return a copy of the rows with contiguous values.

        Args:
            pool: Pool of memory for large arrays.
        """
        values, starts = _native.compact(self.values, self.starts, self.lengths, partial(empty_block, pool=pool))
        return VarColumn(values, starts, self.lengths, self.kind)

    def gathered(
        self,
        rows: VarColumn,
        parts: Sequence[VarColumn],
        picked: Callable[[list[NDArray[np.int64]]], NDArray[np.int64]],
    ) -> VarColumn:
        """Return rows gathered from several columns, with what a subclass knows of each of them.

        Args:
            rows: The gathered rows.
            parts: The columns, of which this is the first.
            picked: Function that gathers one array of each column like the rows.
        """
        return rows

    @property
    def is_packed(self) -> bool:
        """True if the values consist of the rows in order, without gaps."""
        if not len(self):
            return not len(self.values)
        stop = int(self.starts[-1]) + int(self.lengths[-1])
        return self.starts[0] == 0 and stop == len(self.values) and _native.are_packed(self.starts, self.lengths)

    def packed_values(self) -> NDArray[Any]:
        """Return the values of all rows without gaps: a view if the rows have no gaps, otherwise a copy."""
        if not len(self) or not _native.are_packed(self.starts, self.lengths):
            return self.compact().values
        return self.values[int(self.starts[0]) : int(self.starts[-1]) + int(self.lengths[-1])]

    def element(self, row: int) -> Any:
        start = int(self.starts[row])
        part = self.values[start : start + int(self.lengths[row])]
        if self.kind == "array":
            return part
        return part.tobytes() if self.kind == "bytes" else str(np.ascontiguousarray(part).data, "utf-8")

    def elements(self, pool: LendsMemory | None = None) -> list[Any]:
        """Return the rows. If they are large ``bytes``, their memory is taken from ``pool``."""
        if self.kind == "bytes":
            is_large = pool is not None and are_large(self.lengths)
            memory = pool.lend_objects(self.lengths.tolist()) if pool is not None and is_large else None
            return _native.byte_rows(np.ascontiguousarray(self.values), self.starts, self.lengths, memory)
        if self.kind == "str":
            return _native.str_rows(np.ascontiguousarray(self.values), self.starts, self.lengths)
        starts = self.starts.tolist()
        stops = (self.starts + self.lengths).tolist()
        return [self.values[a:b] for a, b in zip(starts, stops, strict=True)]

    def objects(self) -> NDArray[Any]:
        """Return the rows, of bytes or text, as a one-dimensional object array."""
        make = _native.byte_objects if self.kind == "bytes" else _native.str_objects
        return make(np.ascontiguousarray(self.values), self.starts, self.lengths)


class SeparateBytes(VarColumn):
    """A ``bytes`` column whose rows are separate ``bytes`` objects, so that large rows need no copy.

    It has all methods and attributes of :class:`VarColumn`. Each access to ``values`` joins the rows, which copies them
    unless there is only one row.

    Args:
        rows: The rows. Nobody may change the list.
    """

    __slots__ = ("rows",)

    rows: list[bytes]

    def __init__(self, rows: list[bytes]) -> None:
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        for name, value in (("rows", rows), ("lengths", lengths), ("kind", "bytes")):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return SeparateBytes, (self.rows,)

    @property
    def values(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.rows[0], np.uint8) if len(self.rows) == 1 else self.compact().values

    @property
    def starts(self) -> NDArray[np.int64]:
        return np.cumsum(self.lengths) - self.lengths

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    @property
    def item_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def is_packed(self) -> bool:
        return False

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.rows)) + 16 * len(self.rows)

    def slice(self, start: int, stop: int) -> SeparateBytes:
        return SeparateBytes(self.rows[start:stop])

    def take(self, rows: NDArray[np.int64]) -> SeparateBytes:
        return SeparateBytes([self.rows[row] for row in rows.tolist()])

    def compact(self, pool: LendsMemory | None = None) -> VarColumn:
        starts = self.starts
        values = empty_block((_native.total_length(self.lengths),), np.dtype(np.uint8), pool)
        for row, start in zip(self.rows, starts.tolist(), strict=True):  # a copy of a large row releases the GIL
            values[start : start + len(row)] = np.frombuffer(row, np.uint8)
        return VarColumn(values, starts, self.lengths)

    def element(self, row: int) -> bytes:
        return self.rows[row]

    def elements(self, pool: LendsMemory | None = None) -> list[bytes]:
        return self.rows

    def objects(self) -> NDArray[Any]:
        return object_array(self.rows)


Column: TypeAlias = NDArray[Any] | VarColumn


def column_nbytes(column: Column) -> int:
    """Return the size of a column in bytes. The size of Python objects is estimated from some of them."""
    if isinstance(column, VarColumn) or not column.dtype.hasobject:
        return column.nbytes
    flat = column.reshape(-1)
    return column.nbytes + objects_nbytes(flat[sample_of(len(flat))], len(flat))


_PYTHON_SCALARS = (np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.bool_), np.dtype(object))


def object_array(values: Sequence[Any]) -> NDArray[Any]:
    """Return a one-dimensional object array of the values. Values that are sequences or arrays stay single objects."""
    return np.fromiter(values, np.dtype(object), len(values))


def column_elements(column: Column, pool: LendsMemory | None = None) -> list[Any]:
    """Return the rows of a column as the Python objects that user functions receive.

    int64, float64 and bool scalars become Python int, float and bool, which convert back to the same dtype. Scalars of
    other dtypes become NumPy scalars. Rows that are arrays become views of the column's memory.

    Args:
        pool: Pool of memory for large ``bytes`` rows.
    """
    if isinstance(column, VarColumn):
        return column.elements(pool)
    return column.tolist() if column.ndim == 1 and column.dtype in _PYTHON_SCALARS else list(column)


def column_element(column: Column, row: int) -> Any:
    """Return one row of a column. See :func:`column_elements`."""
    if isinstance(column, VarColumn):
        return column.element(row)
    value = column[row]
    return value.item() if column.ndim == 1 and column.dtype in _PYTHON_SCALARS[:3] else value


def need_objects(columns: Sequence[Column]) -> bool:
    """Return True if some columns contain text, and the others objects that are text or None. The same for ``bytes``.

    Such columns can be joined as objects; see :func:`string_objects`.
    """
    kinds = {column.kind if isinstance(column, VarColumn) else "" for column in columns}
    if len(kinds) != 2 or "" not in kinds or "array" in kinds:
        return False
    wanted = (str if "str" in kinds else bytes, type(None))
    objects = [column for column in columns if not isinstance(column, VarColumn)]
    if not all(column.dtype.hasobject and column.ndim == 1 for column in objects):
        return False
    return all(issubclass(kind, wanted) for column in objects for kind in set(map(type, column.tolist())))


def string_objects(column: Column, valid: NDArray[np.bool_] | None) -> NDArray[Any]:
    """Return rows of text or ``bytes`` as an object array, with None for each row that is not valid."""
    objects = column.objects() if isinstance(column, VarColumn) else column
    return objects if valid is None or valid.all() else np.where(valid, objects, np.array(None))


def gather_column(
    columns: Sequence[Column], which: NDArray[np.int32], rows: NDArray[np.int64], pool: LendsMemory | None = None
) -> Column:
    """For each i, take row ``rows[i]`` of ``columns[which[i]]``. Return these rows as a new column.

    Args:
        pool: Pool of memory for large ``bytes`` rows. They become separate objects, which later steps do not copy.
    """
    variable = [column for column in columns if isinstance(column, VarColumn)]
    if not variable:
        return _native.take_rows_many([column for column in columns if not isinstance(column, VarColumn)], which, rows)
    if separate := _all_separate(variable):
        return SeparateBytes([separate[k][row] for k, row in zip(which.tolist(), rows.tolist(), strict=True)])
    sources, numbers, starts = _sources(variable)
    starts_of_rows = _native.take_rows_many(starts, which, rows)
    lengths = _native.take_rows_many([column.lengths for column in variable], which, rows)
    source_of_rows = which if numbers is None else _native.take_rows_many(numbers, which, rows)
    if pool is not None and variable[0].kind == "bytes" and are_large(lengths):
        memory = pool.lend_objects(lengths.tolist())
        contiguous = list(map(np.ascontiguousarray, sources))
        return SeparateBytes(_native.byte_rows_many(contiguous, source_of_rows, starts_of_rows, lengths, memory))
    values, new_starts = _native.compact_many(sources, source_of_rows, starts_of_rows, lengths)
    gathered = VarColumn(values, new_starts, lengths, variable[0].kind)
    return variable[0].gathered(gathered, variable, lambda arrays: _native.take_rows_many(arrays, which, rows))


def owned_column(column: Column) -> Column:
    """Return a copy of the rows that shares no memory with ``column``, except objects."""
    if isinstance(column, VarColumn):
        return gather_column([column], np.zeros(len(column), np.int32), np.arange(len(column)))
    return column.copy()


def concat_column(columns: Sequence[Column], pool: LendsMemory | None = None) -> Column:
    """Concatenate columns of equal layout into a new column. Its values are packed; see :attr:`VarColumn.is_packed`.

    Args:
        pool: Pool of memory for large values of variable-length columns.
    """
    variable = [column for column in columns if isinstance(column, VarColumn)]
    if not variable:
        return np.concatenate([column for column in columns if not isinstance(column, VarColumn)])
    if separate := _all_separate(variable):
        return SeparateBytes(list(chain.from_iterable(separate)))
    sources, numbers, starts = _sources(variable)
    if numbers is None:
        numbers = [np.full(len(column), number, np.int32) for number, column in enumerate(variable)]
    lengths = np.concatenate([column.lengths for column in variable])
    new_array = partial(empty_array, pool=pool)
    places = np.concatenate(numbers), np.concatenate(starts), lengths
    values, new_starts = _native.compact_many(sources, *places, new_array)
    return variable[0].gathered(VarColumn(values, new_starts, lengths, variable[0].kind), variable, np.concatenate)


def _sources(
    columns: Sequence[VarColumn],
) -> tuple[list[NDArray[Any]], list[NDArray[np.int32]] | None, list[NDArray[np.int64]]]:
    """Return arrays with the values of columns, without a copy, and for each column the places of its rows.

    Returns:
        The arrays; the numbers of the arrays with the rows of each column, or None if each column is one array; and the
        starts of the rows in their arrays.
    """
    if not any(isinstance(column, SeparateBytes) for column in columns):
        return [column.values for column in columns], None, [column.starts for column in columns]
    sources: list[NDArray[Any]] = []
    numbers, starts = [], []
    for column in columns:
        if isinstance(column, SeparateBytes):
            numbers.append(np.arange(len(sources), len(sources) + len(column), dtype=np.int32))
            starts.append(np.zeros(len(column), np.int64))
            sources += [np.frombuffer(row, np.uint8) for row in column.rows]
        else:
            numbers.append(np.full(len(column), len(sources), np.int32))
            starts.append(column.starts)
            sources.append(column.values)
    return sources, numbers, starts


def with_separate_rows(column: Column, pool: LendsMemory) -> Column:
    """Return a column with separate objects if its rows are large ``bytes``, which later steps then do not copy.

    Args:
        pool: Pool of memory for the objects.
    """
    if not isinstance(column, VarColumn) or isinstance(column, SeparateBytes):
        return column
    if column.kind != "bytes" or not are_large(column.lengths):
        return column
    return SeparateBytes(column.elements(pool))


def are_large(lengths: NDArray[np.int64]) -> bool:
    """Return True if rows of these lengths are large; see :data:`LARGE_ROW_NBYTES`."""
    return _native.total_length(lengths) >= LARGE_ROW_NBYTES * max(1, len(lengths))


def _all_separate(columns: Sequence[Column]) -> list[list[bytes]]:
    """Return the rows of each column if all are :class:`SeparateBytes`; otherwise return an empty list."""
    found = [column.rows for column in columns if isinstance(column, SeparateBytes)]
    return found if len(found) == len(columns) else []
