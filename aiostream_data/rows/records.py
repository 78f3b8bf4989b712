"""Data types of the pipeline: shards, byte ranges, and chunks of rows.

A chunk is a sequence of consecutive elements. A chunk is an instance of one of these two classes:

* :class:`Columns`: the structure of an element, and one column per leaf. The first axis of a column is the row number.
  A column is a NumPy array, or a :class:`VarColumn` if rows differ in length. Records that are not parsed yet are
  stored in one ``bytes`` column (buffer, starts and lengths).
* :class:`Items`: a Python list of elements, used for the results of user functions.

Each chunk has ``ids``, with one row id per row. A row id identifies the source row of an element. Operators that
combine rows extend the ids (:mod:`aiostream_data.rows.lineage`). For an element that combines several rows, such as a
batch, ``made_of`` lists the combined rows.

Chunks are immutable by convention: only the creator of an array writes to the array. A slice shares the memory and the
``lease`` of its chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.rows.columns import (
    Column,
    VarColumn,
    column_element,
    column_elements,
    column_nbytes,
    concat_column,
    gather_column,
    need_objects,
    owned_column,
    string_objects,
)
from aiostream_data.rows.lent_memory import LendsMemory
from aiostream_data.rows.lineage import Lineage, MadeOf
from aiostream_data.rows.object_nbytes import object_nbytes
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF, NULLABLE, Structure, graft
from aiostream_data.rows.text_lists import of_equal_widths
from aiostream_data.safe_url import safe_url


@dataclass(frozen=True, slots=True)
class ShardRef:
    """Reference to one object to read.

    Attributes:
        url: URL with scheme, or a plain path for local files.
        nbytes: Size of the object in bytes, or None if not requested yet.
        version: ETag, generation or modification time, which changes when the object changes. Can be "".
    """

    url: str
    nbytes: int | None = None
    version: str = ""

    def __repr__(self) -> str:
        """Return a representation without the signature in the URL."""
        return f"ShardRef(url={safe_url(self.url)!r}, nbytes={self.nbytes!r}, version={self.version!r})"


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Byte range of an object, from ``start`` (inclusive) to ``stop`` (exclusive)."""

    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Columns:
    """A chunk with one column per leaf of the element structure."""

    structure: Structure
    leaves: tuple[Column, ...]
    ids: RowIds
    lease: object = field(default=None, compare=False, repr=False)
    made_of: list[MadeOf | None] | None = field(default=None, compare=False, repr=False)
    _nbytes: int | None = field(default=None, init=False, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Size in bytes. It is computed once, because several stages ask for it."""
        if self._nbytes is None:
            object.__setattr__(self, "_nbytes", sum(map(column_nbytes, self.leaves)) + self.ids.nbytes)
        return self._nbytes or 0

    def slice(self, start: int, stop: int) -> Columns:
        if start == 0 and stop == len(self.ids):
            return self
        leaves = tuple(
            leaf.slice(start, stop) if isinstance(leaf, VarColumn) else leaf[start:stop] for leaf in self.leaves
        )
        made_of = None if self.made_of is None else self.made_of[start:stop]
        ids = self.ids.slice(start, stop)
        return Columns(self.structure, leaves, ids, self.lease, made_of)  # dataclasses.replace() is far slower

    def take(self, rows: NDArray[np.int64]) -> Columns:
        """Return the rows at the indices ``rows``, in this order.

        Dense columns are copied. Variable columns are not.
        """
        leaves = tuple(
            leaf.take(rows) if isinstance(leaf, VarColumn) else _native.take_rows(leaf, rows) for leaf in self.leaves
        )
        return replace(self, leaves=leaves, ids=self.ids.take(rows), made_of=_taken(self.made_of, rows))

    def element(self, row: int) -> Any:
        return self.structure.unflatten([column_element(leaf, row) for leaf in self.leaves])

    def elements(self, pool: LendsMemory | None = None) -> list[Any]:
        return self.structure.rows([column_elements(leaf, pool) for leaf in self.leaves])

    def with_ids(self, ids: RowIds) -> Columns:
        return replace(self, ids=ids)

    def with_lease(self, lease: object) -> Columns:
        return replace(self, lease=lease)

    def with_made_of(self, made_of: list[MadeOf | None] | None) -> Columns:
        return replace(self, made_of=made_of)


@dataclass(frozen=True, slots=True)
class Items:
    """A chunk stored as a list of Python objects.

    If ``runs`` is set, it contains the row ids of all ``made_of`` entries in fewer and longer arrays. If ``sizes`` is
    set, it contains the size of each element in bytes, int64.
    """

    values: list[Any]
    ids: RowIds
    lease: object = field(default=None, compare=False, repr=False)
    made_of: list[MadeOf | None] | None = field(default=None, compare=False, repr=False)
    runs: Sequence[RowIds] | None = field(default=None, compare=False, repr=False)
    sizes: NDArray[np.int64] | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        return int(self.known_sizes.sum()) + self.ids.nbytes

    @property
    def known_sizes(self) -> NDArray[np.int64]:
        """The sizes of all elements. They are measured once, because several stages ask for them."""
        if self.sizes is None:
            measured = np.fromiter(map(object_nbytes, self.values), np.int64, len(self.values))
            object.__setattr__(self, "sizes", measured)
            return measured
        return self.sizes

    def slice(self, start: int, stop: int) -> Items:
        made_of = None if self.made_of is None else self.made_of[start:stop]
        sizes = None if self.sizes is None else self.sizes[start:stop]
        return Items(self.values[start:stop], self.ids.slice(start, stop), self.lease, made_of, None, sizes)

    def take(self, rows: NDArray[np.int64]) -> Items:
        values = [self.values[row] for row in rows.tolist()]
        sizes = None if self.sizes is None else self.sizes[rows]
        return Items(values, self.ids.take(rows), self.lease, _taken(self.made_of, rows), None, sizes)

    def element(self, row: int) -> Any:
        return self.values[row]

    def elements(self) -> list[Any]:
        return self.values

    def with_ids(self, ids: RowIds) -> Items:
        return replace(self, ids=ids)

    def with_lease(self, lease: object) -> Items:
        return replace(self, lease=lease)

    def with_made_of(self, made_of: list[MadeOf | None] | None) -> Items:
        return replace(self, made_of=made_of, runs=None)


Chunk: TypeAlias = Columns | Items


def _taken(made_of: list[MadeOf | None] | None, rows: NDArray[np.int64]) -> list[MadeOf | None] | None:
    return None if made_of is None else list(map(made_of.__getitem__, rows.tolist()))


def lineage_of(chunk: Chunk) -> Lineage:
    """Return the lineage of a chunk's rows."""
    return Lineage(chunk.ids, chunk.made_of)


def records_chunk(column: VarColumn, ids: RowIds) -> Columns:
    """Wrap unparsed records (one column of variable length) as a chunk whose elements are bytes or str."""
    return Columns(LEAF, (column,), ids)


def same_layout(chunks: Sequence[Chunk]) -> bool:
    """Return True if all chunks are :class:`Columns` with equal structure, dtypes and row shapes."""
    first = chunks[0]
    if not isinstance(first, Columns):
        return False
    layout = layout_of(first)
    return all(isinstance(chunk, Columns) and layout_of(chunk) == layout for chunk in chunks[1:])


def layout_of(chunk: Columns) -> tuple[Any, ...]:
    """Return the structure, dtypes and row shapes of a chunk, for comparisons. The result refers to no rows."""
    leaves = [
        (leaf.kind, leaf.dtype, leaf.item_shape) if isinstance(leaf, VarColumn) else (leaf.dtype, leaf.shape[1:])
        for leaf in chunk.leaves
    ]
    return (chunk.structure, *leaves)


def with_equal_marks(chunks: Sequence[Chunk]) -> Sequence[Chunk]:
    """Make a leaf nullable in all chunks if it is nullable in one of them.

    Parsers mark missing values only in chunks that have missing values. The chunks are returned unchanged if their
    elements differ in another way.
    """
    columns = [chunk for chunk in chunks if isinstance(chunk, Columns)]
    if len(columns) < len(chunks) or all(chunk.structure is columns[0].structure for chunk in columns):
        return chunks
    structures = {chunk.structure for chunk in columns}
    if len(structures) < 2 or len({each.plain for each in structures}) > 1:
        return chunks
    nullable = [any(found) for found in zip(*(each.nullable_leaves() for each in structures), strict=True)]
    structure = graft(columns[0].structure.plain, [NULLABLE if each else LEAF for each in nullable])
    return [_with_marks(chunk, nullable, structure) for chunk in columns]


def _with_marks(chunk: Columns, nullable: Sequence[bool], structure: Structure) -> Columns:
    leaves: list[Column] = []
    given = iter(chunk.leaves)
    for wanted, is_marked in zip(nullable, chunk.structure.nullable_leaves(), strict=True):
        leaves.append(next(given))
        if is_marked:
            leaves.append(next(given))
        elif wanted:
            leaves.append(np.ones(len(chunk), np.bool_))
    return replace(chunk, structure=structure, leaves=tuple(leaves))


def with_equal_texts(chunks: Sequence[Chunk]) -> Sequence[Chunk]:
    """Convert a leaf of text to Python objects in all chunks if its rows are objects in one of them. So are ``bytes``.

    Rows of text in which a value is missing are objects. The other leaves of such chunks keep their columns. Call
    :func:`with_equal_marks` first. The chunks are returned unchanged if another leaf differs.
    """
    columns = [chunk for chunk in chunks if isinstance(chunk, Columns)]
    if len(columns) < len(chunks) or len({chunk.structure for chunk in columns}) > 1:
        return chunks
    nullable = columns[0].structure.nullable_leaves()
    pairs = [list(_with_marks_of(chunk, nullable)) for chunk in columns]
    has_objects = [need_objects([column for column, _ in leaf]) for leaf in zip(*pairs, strict=True)]
    if not any(has_objects):
        return chunks
    kinds = [NULLABLE if marked and not some else LEAF for marked, some in zip(nullable, has_objects, strict=True)]
    structure = graft(columns[0].structure.plain, kinds)
    return [
        replace(chunk, structure=structure, leaves=_with_objects(own, has_objects))
        for chunk, own in zip(columns, pairs, strict=True)
    ]


def _with_marks_of(chunk: Columns, nullable: Sequence[bool]) -> Iterator[tuple[Column, NDArray[np.bool_] | None]]:
    """Yield the column of each leaf of the elements, and its marks if it is nullable."""
    given = iter(chunk.leaves)
    for is_marked in nullable:
        column = next(given)
        marks: Any = next(given) if is_marked else None
        yield column, marks


def _with_objects(
    pairs: Sequence[tuple[Column, NDArray[np.bool_] | None]], has_objects: Sequence[bool]
) -> tuple[Column, ...]:
    leaves: list[Column] = []
    for (column, marks), some in zip(pairs, has_objects, strict=True):
        if not some:
            leaves += [column] if marks is None else [column, marks]
            continue
        leaves.append(string_objects(column, marks))
    return tuple(leaves)


def with_equal_layouts(chunks: Sequence[Chunk]) -> tuple[Sequence[Chunk], bool]:
    """Return the chunks with equal layouts if possible, and True if their layouts are equal."""
    chunks = with_equal_marks(chunks)
    if same_layout(chunks):
        return chunks, True
    chunks = _with_equal_widths(with_equal_texts(chunks))
    return chunks, same_layout(chunks)


def _with_equal_widths(chunks: Sequence[Chunk]) -> Sequence[Chunk]:
    columns = [chunk for chunk in chunks if isinstance(chunk, Columns)]
    if len(columns) < len(chunks) or len({chunk.structure for chunk in columns}) > 1 or not columns[0].leaves:
        return chunks
    leaves = map(of_equal_widths, zip(*(chunk.leaves for chunk in columns), strict=True))
    return [replace(chunk, leaves=own) for chunk, own in zip(columns, zip(*leaves, strict=True), strict=True)]


def gather(
    chunks: Sequence[Chunk], which: NDArray[np.int32], rows: NDArray[np.int64], pool: LendsMemory | None = None
) -> Chunk:
    """For each i, copy row ``rows[i]`` of ``chunks[which[i]]`` into one new chunk.

    The result is Columns if all chunks have equal layouts, else Items. Copying dense columns releases the GIL.

    Args:
        pool: Pool of memory for large ``bytes`` rows; see :func:`.gather_column`.
    """
    chunks, are_alike = with_equal_layouts(chunks)
    ids = RowIds.gather([chunk.ids for chunk in chunks], which, rows)
    made_of = _gathered_made_of(chunks, which, rows)
    if not are_alike:
        lists = [chunk.elements() for chunk in chunks]
        values = [lists[k][row] for k, row in zip(which.tolist(), rows.tolist(), strict=True)]
        sizes = _joined_sizes(chunks)
        if sizes is not None:
            starts = np.cumsum([0, *map(len, chunks[:-1])])
            sizes = sizes[starts[which] + rows]
        return Items(values, ids, None, made_of, None, sizes)
    sources: list[Columns] = [chunk for chunk in chunks if isinstance(chunk, Columns)]
    columns = zip(*(chunk.leaves for chunk in sources), strict=True)
    leaves = tuple(gather_column(column, which, rows, pool) for column in columns)
    return Columns(sources[0].structure, leaves, ids, None, made_of)


def _joined_sizes(chunks: Sequence[Chunk]) -> NDArray[np.int64] | None:
    """Return the sizes of all elements; None if they are unknown for a chunk."""
    sizes = [chunk.sizes for chunk in chunks if isinstance(chunk, Items) and chunk.sizes is not None]
    return np.concatenate(sizes) if sizes and len(sizes) == len(chunks) else None


def _gathered_made_of(
    chunks: Sequence[Chunk], which: NDArray[np.int32], rows: NDArray[np.int64]
) -> list[MadeOf | None] | None:
    if all(chunk.made_of is None for chunk in chunks):
        return None
    starts = np.cumsum([0, *map(len, chunks[:-1])], dtype=np.int64)
    return list(map(_joined_made_of(chunks).__getitem__, (starts[which] + rows).tolist()))


def _joined_made_of(chunks: Sequence[Chunk]) -> list[MadeOf | None]:
    joined: list[MadeOf | None] = []
    for chunk in chunks:
        joined += chunk.made_of or repeat(None, len(chunk))
    return joined


def owned(chunk: Chunk) -> Chunk:
    """Return a copy of the rows that shares no memory with ``chunk``, except objects, and has no lease."""
    ids, made_of = chunk.ids.copy(), chunk.made_of
    if isinstance(chunk, Items):
        return Items(list(chunk.values), ids, None, made_of)
    return Columns(chunk.structure, tuple(map(owned_column, chunk.leaves)), ids, None, made_of)


def concat(chunks: Sequence[Chunk], pool: LendsMemory | None = None) -> Chunk:
    """Concatenate chunks into one chunk. A single chunk is returned without a copy.

    Args:
        pool: Pool of memory for large values of variable-length columns.
    """
    if len(chunks) == 1:
        return chunks[0]
    chunks, are_alike = with_equal_layouts(chunks)
    ids = RowIds.concat([chunk.ids for chunk in chunks])
    made_of = _joined_made_of(chunks) if any(chunk.made_of is not None for chunk in chunks) else None
    if not are_alike:
        values = [element for chunk in chunks for element in chunk.elements()]
        return Items(values, ids, None, made_of, None, _joined_sizes(chunks))
    sources = [chunk for chunk in chunks if isinstance(chunk, Columns)]
    leaves = tuple(concat_column(column, pool) for column in zip(*(chunk.leaves for chunk in sources), strict=True))
    return Columns(sources[0].structure, leaves, ids, None, made_of)
