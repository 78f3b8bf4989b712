"""What the pipeline moves: shards, byte ranges, and chunks of rows.

A chunk is a run of consecutive elements. It comes in two classes:

* :class:`Columns`: the element's structure with one column per leaf, the row on the first axis. A
  column is a NumPy array, or a :class:`VarColumn` where rows differ in length. *Records* (framed but
  not yet parsed) are the same class with a single ``bytes`` column: buffer, starts, lengths.
* :class:`Items`: a Python list, for whatever user functions return.

Every chunk carries ``ids``: an int64 array of shape (rows, 2 or more) that starts with (split, ordinal)
of the row each element came from, so that order can be decided on ids and every row keeps its origin.
Operators that make rows out of several others add a pair of columns to the right, such as the number
that enumerate() gave, so that ids are enough to make the row again; rows with fewer pairs than others in
the same chunk are filled up with -1. What was put together from any number of rows (a batch) says so in
``made_of``.

Chunks are immutable by convention: nothing writes into the arrays of a chunk that it did not make.
A slice shares the memory, and the ``lease``, of the chunk it was cut from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.structure import LEAF, Structure

Ids: TypeAlias = NDArray[np.int64]

NO_PAIR: Final = -1
CUT: Final = 1
"""First number of a pair that says: row so and so of the element, as unbatch() cut it."""
NUMBERED: Final = 2
"""First number of a pair that says: the number that enumerate() gave."""
JOINED: Final = 3
"""First number of a pair that says how many columns to its left were joined to those before, as zip() and interleave() do."""
PADDING: Final = 4
"""First number of a pair that says that the row only fills up, and repeats the row that the other pairs name."""
PIECE: Final = 5
"""First number of a pair that says: piece so and so of the row, as pack() split it."""
VarKind = Literal["bytes", "str", "array"]

ITEM_NBYTES_GUESS = 64
"""What a Python object without a buffer is counted as."""


@dataclass(frozen=True, slots=True)
class ShardRef:
    """One object to read.

    Attributes:
        url: Where it is, with scheme (a plain path for local files).
        nbytes: Its size in bytes, or None when it has not been asked for yet.
        version: ETag, generation or modification time: changes when the object does. May be "".
    """

    url: str
    nbytes: int | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes ``start`` (included) to ``stop`` (excluded) of an object."""

    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class VarColumn:
    """A column whose rows differ in length: row i is ``values[starts[i] : starts[i] + lengths[i]]``.

    Attributes:
        values: Array whose first axis is cut into rows. uint8 for ``bytes`` and ``str``.
        starts, lengths: int64, one per row. Rows may overlap, leave gaps and be out of order.
        kind: What a row becomes: ``bytes``, ``str`` (UTF-8), or an ``array`` slice of ``values``.
    """

    values: NDArray[Any]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    kind: VarKind = "bytes"

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def nbytes(self) -> int:
        row = int(self.values.itemsize * np.prod(self.values.shape[1:], dtype=np.int64))
        return int(self.lengths.sum()) * row + 16 * len(self.starts)

    def slice(self, start: int, stop: int) -> VarColumn:
        return VarColumn(self.values, self.starts[start:stop], self.lengths[start:stop], self.kind)

    def take(self, rows: NDArray[np.int64]) -> VarColumn:
        """Return these rows; the values are shared, not copied."""
        return VarColumn(self.values, self.starts[rows], self.lengths[rows], self.kind)

    def compact(self) -> VarColumn:
        """Return the same rows over values of their own, one after another."""
        values, starts = _native.compact(self.values, self.starts, self.lengths)
        return VarColumn(values, starts, self.lengths, self.kind)

    def element(self, row: int) -> Any:
        start = int(self.starts[row])
        part = self.values[start : start + int(self.lengths[row])]
        if self.kind == "array":
            return part
        data = part.tobytes()
        return data if self.kind == "bytes" else data.decode()

    def elements(self) -> list[Any]:
        starts = self.starts.tolist()
        stops = (self.starts + self.lengths).tolist()
        if self.kind == "array":
            return [self.values[a:b] for a, b in zip(starts, stops, strict=True)]
        view = np.ascontiguousarray(self.values).data
        if self.kind == "bytes":
            return [bytes(view[a:b]) for a, b in zip(starts, stops, strict=True)]
        return [str(view[a:b], "utf-8") for a, b in zip(starts, stops, strict=True)]


@dataclass(frozen=True, slots=True)
class Lineage:
    """Which rows: their ids, and for those that were put together, of what.

    Attributes:
        ids: int64 (rows, 2 or more).
        made_of: None, or for every row what it was made of (None where its ids say it all).
    """

    ids: Ids
    made_of: Sequence[MadeOf | None] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def of(self, row: int) -> MadeOf | None:
        return None if self.made_of is None else self.made_of[row]

    def slice(self, start: int, stop: int) -> Lineage:
        made_of = None if self.made_of is None else self.made_of[start:stop]
        return Lineage(self.ids[start:stop], made_of)

    def take(self, rows: NDArray[np.int64]) -> Lineage:
        made_of = None if self.made_of is None else [self.made_of[row] for row in rows.tolist()]
        return Lineage(self.ids[rows], made_of)


def concat_lineages(parts: Sequence[Lineage]) -> Lineage:
    """Return the rows of all parts, one after another."""
    ids = np.concatenate(of_one_width([part.ids for part in parts]))
    if all(part.made_of is None for part in parts):
        return Lineage(ids)
    return Lineage(ids, [part.of(row) for part in parts for row in range(len(part))])


class CutFrom(Lineage):
    """The element (one row) that a row was cut out of, as by unbatch."""

    __slots__ = ()


class Beside(Lineage):
    """A row of zip(): ``ids`` is the row of its first input, ``made_of`` what the row of each input was made of."""

    __slots__ = ()


MadeOf: TypeAlias = "Ids | Lineage"
"""Rows that an element was made of: ids where those say it all, else a lineage."""


def source_ids(ids: Ids, made_of: MadeOf | None) -> Ids:
    """Return the ids of the rows that one element was made of: int64 (rows, 2 or more).

    Args:
        ids: The element's own, of shape (1, 2 or more).
    """
    if made_of is None or isinstance(made_of, CutFrom):
        return ids
    if not isinstance(made_of, Lineage):
        return made_of
    if isinstance(made_of, Beside):
        return source_ids(made_of.ids, made_of.of(0))
    if made_of.made_of is None:
        return made_of.ids
    rows = range(len(made_of))
    return np.concatenate(of_one_width([source_ids(made_of.ids[row : row + 1], made_of.of(row)) for row in rows]))


def of_one_width(parts: Sequence[Ids]) -> list[Ids]:
    """Return ids with as many columns each, the narrower ones filled up with -1."""
    width = max(part.shape[1] for part in parts)
    return [part if part.shape[1] == width else _widened(part, width) for part in parts]


def _widened(ids: Ids, width: int) -> Ids:
    wide = np.full((len(ids), width), NO_PAIR, np.int64)
    wide[:, : ids.shape[1]] = ids
    return wide


def with_pair(ids: Ids, split: int, ordinals: NDArray[np.int64] | int) -> Ids:
    """Return ids with one more pair of columns at the right end of every row."""
    wide = np.full((len(ids), ids.shape[1] + 2), NO_PAIR, np.int64)
    wide[:, : ids.shape[1]] = ids
    free = 2 * (last_pairs(ids) + 1)
    rows = np.arange(len(ids))
    wide[rows, free] = split
    wide[rows, free + 1] = ordinals
    return wide


def last_pairs(ids: Ids) -> NDArray[np.int64]:
    """Return which pair of columns is the last in use, for every row: 0 where there is one pair."""
    if ids.shape[1] == 2:
        return np.zeros(len(ids), np.int64)
    used = ids[:, ::2] != NO_PAIR
    last: NDArray[np.int64] = used.shape[1] - 1 - np.argmax(used[:, ::-1], axis=1)
    return last


def last_ordinals(ids: Ids) -> NDArray[np.int64]:
    """Return the number in the last pair of every row."""
    ordinals: NDArray[np.int64] = ids[np.arange(len(ids)), 2 * last_pairs(ids) + 1]
    return ordinals


def joined_ids(left: Ids, right: Ids) -> Ids:
    """Return both side by side, such that :func:`split_ids` can tell them apart again."""
    return with_pair(np.concatenate([left, right], axis=1), JOINED, right.shape[1])


def split_ids(ids: Ids) -> tuple[Ids, Ids]:
    """Return what :func:`joined_ids` joined. All rows must have been joined with the same number of columns.

    Raises:
        ValueError: They were not joined.
    """
    widths = last_ordinals(ids)
    whole = without_last_pair(ids)
    width = int(widths[0])
    end = 2 * (int(last_pairs(ids)[0]))
    if not 2 <= width <= end - 2 or bool((widths != width).any()) or bool((last_pairs(ids) * 2 != end).any()):
        raise ValueError("these ids are not of rows that were joined of two")
    return whole[:, : end - width], whole[:, end - width : end]


def ids_side_by_side(parts: Sequence[Lineage]) -> tuple[Ids, list[MadeOf | None] | None]:
    """Return the ids of rows that stand side by side, and what they were made of where one was made of several."""
    ids = parts[0].ids
    for part in parts[1:]:
        ids = joined_ids(ids, part.ids)
    if all(part.made_of is None for part in parts):
        return ids, None
    lists = [part.made_of or [None] * len(part) for part in parts]
    first = parts[0].ids
    return ids, [Beside(first[row : row + 1], entries) for row, entries in enumerate(zip(*lists, strict=True))]


def without_last_pair(ids: Ids) -> Ids:
    """Return ids without the last pair of every row."""
    shorter = ids.copy()
    rows, pair = np.arange(len(ids)), 2 * last_pairs(ids)
    shorter[rows, pair] = shorter[rows, pair + 1] = NO_PAIR
    return shorter[:, : max(2, int(pair.max(initial=0)))]


Column: TypeAlias = NDArray[Any] | VarColumn

_PYTHON_SCALARS = (np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.bool_), np.dtype(object))


def column_elements(column: Column) -> list[Any]:
    """Return the rows of a column as user functions see them.

    Scalars of int64, float64 and bool come as Python int, float and bool (they go back into an array
    of the same dtype); other dtypes as NumPy scalars; anything with a shape as a view of the row.
    """
    if isinstance(column, VarColumn):
        return column.elements()
    return column.tolist() if column.ndim == 1 and column.dtype in _PYTHON_SCALARS else list(column)


def _column_element(column: Column, row: int) -> Any:
    if isinstance(column, VarColumn):
        return column.element(row)
    value = column[row]
    return value.item() if column.ndim == 1 and column.dtype in _PYTHON_SCALARS[:3] else value


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows as one column per leaf of the element's structure."""

    structure: Structure
    leaves: tuple[Column, ...]
    ids: Ids
    lease: object = field(default=None, compare=False, repr=False)
    made_of: list[MadeOf | None] | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return sum(leaf.nbytes for leaf in self.leaves) + self.ids.nbytes

    def slice(self, start: int, stop: int) -> Columns:
        leaves = tuple(
            leaf.slice(start, stop) if isinstance(leaf, VarColumn) else leaf[start:stop] for leaf in self.leaves
        )
        made_of = None if self.made_of is None else self.made_of[start:stop]
        return Columns(self.structure, leaves, self.ids[start:stop], self.lease, made_of)  # replace() is far slower

    def take(self, rows: NDArray[np.int64]) -> Columns:
        """Return these rows, in this order. Dense columns are copied; variable ones share values."""
        leaves = tuple(
            leaf.take(rows) if isinstance(leaf, VarColumn) else _native.take_rows(leaf, rows) for leaf in self.leaves
        )
        return replace(self, leaves=leaves, ids=_native.take_rows(self.ids, rows), made_of=_taken(self.made_of, rows))

    def element(self, row: int) -> Any:
        return self.structure.unflatten([_column_element(leaf, row) for leaf in self.leaves])

    def elements(self) -> list[Any]:
        return self.structure.rows([column_elements(leaf) for leaf in self.leaves])

    def with_ids(self, ids: Ids) -> Columns:
        return replace(self, ids=ids)

    def with_lease(self, lease: object) -> Columns:
        return replace(self, lease=lease)

    def with_made_of(self, made_of: list[MadeOf | None] | None) -> Columns:
        return replace(self, made_of=made_of)


@dataclass(frozen=True, slots=True)
class Items:
    """Rows as a list of Python objects."""

    values: list[Any]
    ids: Ids
    lease: object = field(default=None, compare=False, repr=False)
    made_of: list[MadeOf | None] | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        return sum(map(object_nbytes, self.values)) + self.ids.nbytes

    def slice(self, start: int, stop: int) -> Items:
        made_of = None if self.made_of is None else self.made_of[start:stop]
        return replace(self, values=self.values[start:stop], ids=self.ids[start:stop], made_of=made_of)

    def take(self, rows: NDArray[np.int64]) -> Items:
        values = [self.values[row] for row in rows.tolist()]
        return replace(self, values=values, ids=self.ids[rows], made_of=_taken(self.made_of, rows))

    def element(self, row: int) -> Any:
        return self.values[row]

    def elements(self) -> list[Any]:
        return self.values

    def with_ids(self, ids: Ids) -> Items:
        return replace(self, ids=ids)

    def with_lease(self, lease: object) -> Items:
        return replace(self, lease=lease)

    def with_made_of(self, made_of: list[MadeOf | None] | None) -> Items:
        return replace(self, made_of=made_of)


Chunk: TypeAlias = Columns | Items


def _taken(made_of: list[MadeOf | None] | None, rows: NDArray[np.int64]) -> list[MadeOf | None] | None:
    return None if made_of is None else [made_of[row] for row in rows.tolist()]


def lineage_of(chunk: Chunk) -> Lineage:
    """Return which rows a chunk holds."""
    return Lineage(chunk.ids, chunk.made_of)


def object_nbytes(value: Any) -> int:
    """Estimate what an element holds, in bytes; exact for arrays and bytes, a guess for the rest."""
    nbytes = getattr(value, "nbytes", None)
    if isinstance(nbytes, int):
        return nbytes
    if isinstance(value, (bytes, bytearray, str)):
        return len(value)
    if isinstance(value, dict):
        return sum(map(object_nbytes, value.values()))
    if isinstance(value, (tuple, list)):
        return sum(map(object_nbytes, value))
    return ITEM_NBYTES_GUESS


def run_of_ids(split: int, first: int, count: int) -> Ids:
    """Return the ids of ``count`` consecutive rows of one split, the first being ``first``."""
    ids = np.empty((count, 2), np.int64)
    ids[:, 0] = split
    ids[:, 1] = np.arange(first, first + count)
    return ids


def records_chunk(column: VarColumn, ids: Ids) -> Columns:
    """Wrap framed records (one variable column) as a chunk whose elements are bytes or str."""
    return Columns(LEAF, (column,), ids)


def same_layout(chunks: Sequence[Chunk]) -> bool:
    """True when all are Columns whose leaves could stand in one column each."""
    first = chunks[0]
    if not isinstance(first, Columns):
        return False
    layout = _layout(first)
    return all(isinstance(chunk, Columns) and _layout(chunk) == layout for chunk in chunks[1:])


def _layout(chunk: Columns) -> tuple[Any, ...]:
    leaves = [
        (leaf.kind, leaf.values.dtype, leaf.values.shape[1:])
        if isinstance(leaf, VarColumn)
        else (leaf.dtype, leaf.shape[1:])
        for leaf in chunk.leaves
    ]
    return (chunk.structure, *leaves)


def gather(chunks: Sequence[Chunk], which: NDArray[np.int32], rows: NDArray[np.int64]) -> Chunk:
    """Return row ``rows[i]`` of ``chunks[which[i]]`` for every i, as one new chunk that shares nothing.

    Chunks of one layout give Columns; a mixture gives Items. Releases the GIL for dense columns.
    """
    ids = _native.take_rows_many(of_one_width([chunk.ids for chunk in chunks]), which, rows)
    made_of = _gathered_made_of(chunks, which, rows)
    if not same_layout(chunks):
        lists = [chunk.elements() for chunk in chunks]
        values = [lists[k][row] for k, row in zip(which.tolist(), rows.tolist(), strict=True)]
        return Items(values, ids, None, made_of)
    sources: list[Columns] = [chunk for chunk in chunks if isinstance(chunk, Columns)]
    columns = zip(*(chunk.leaves for chunk in sources), strict=True)
    leaves = tuple(_gather_column(column, which, rows) for column in columns)
    return Columns(sources[0].structure, leaves, ids, None, made_of)


def _gathered_made_of(
    chunks: Sequence[Chunk], which: NDArray[np.int32], rows: NDArray[np.int64]
) -> list[MadeOf | None] | None:
    if all(chunk.made_of is None for chunk in chunks):
        return None
    lists: list[list[MadeOf | None]] = [chunk.made_of or [None] * len(chunk) for chunk in chunks]
    return [lists[k][row] for k, row in zip(which.tolist(), rows.tolist(), strict=True)]


def _gather_column(columns: Sequence[Column], which: NDArray[np.int32], rows: NDArray[np.int64]) -> Column:
    variable = [column for column in columns if isinstance(column, VarColumn)]
    if not variable:
        return _native.take_rows_many([column for column in columns if not isinstance(column, VarColumn)], which, rows)
    starts = _native.take_rows_many([column.starts for column in variable], which, rows)
    lengths = _native.take_rows_many([column.lengths for column in variable], which, rows)
    values, new_starts = _native.compact_many([column.values for column in variable], which, starts, lengths)
    return VarColumn(values, new_starts, lengths, variable[0].kind)


def concat(chunks: Sequence[Chunk]) -> Chunk:
    """Return the rows of all chunks, one after another, as one chunk."""
    if len(chunks) == 1:
        return chunks[0]
    ids = np.concatenate(of_one_width([chunk.ids for chunk in chunks]))
    made_of: list[MadeOf | None] | None = None
    if any(chunk.made_of is not None for chunk in chunks):
        made_of = [entry for chunk in chunks for entry in (chunk.made_of or [None] * len(chunk))]
    if not same_layout(chunks):
        return Items([element for chunk in chunks for element in chunk.elements()], ids, None, made_of)
    sources = [chunk for chunk in chunks if isinstance(chunk, Columns)]
    leaves = tuple(concat_column(column) for column in zip(*(chunk.leaves for chunk in sources), strict=True))
    return Columns(sources[0].structure, leaves, ids, None, made_of)


def concat_column(columns: Sequence[Column]) -> Column:
    """Return the rows of columns of one layout, one after another, as one new column."""
    variable = [column.compact() for column in columns if isinstance(column, VarColumn)]
    if not variable:
        return np.concatenate([column for column in columns if not isinstance(column, VarColumn)])
    shifts = np.cumsum([0] + [len(column.values) for column in variable[:-1]])
    return VarColumn(
        np.concatenate([column.values for column in variable]),
        np.concatenate([column.starts + shift for column, shift in zip(variable, shifts, strict=True)]),
        np.concatenate([column.lengths for column in variable]),
        variable[0].kind,
    )
