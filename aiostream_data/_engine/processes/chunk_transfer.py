"""Convert chunks to and from the form in which processes exchange chunks: few arrays, without unused bytes.

Processes transfer large arrays in shared memory; the receiver uses views of this memory. Small arrays are copied, and
each transferred object costs some microseconds. Therefore, the sender joins the small arrays of a chunk, such as row
ids, and the receiver splits the joined array again. The parts of a batch are joined directly in shared memory; the
message contains a placeholder for the joined array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.columns import Column, SeparateBytes, VarColumn
from aiostream_data.rows.lineage import MadeOf
from aiostream_data.rows.parts import Parts
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import Structure, structure_of

SMALL_NBYTES: Final = 32 << 10
"""Size in bytes below which an array is concatenated with the arrays of other elements in the same field (leaf)."""

SPARSE: Final = 0.75
"""Rows are copied before the transfer if they use less than this fraction of the values buffer that they share."""


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Concatenation of several arrays that differ only in length.

    Attributes:
        whole: Concatenated array.
        sizes: Number of rows of each original array.
    """

    whole: NDArray[Any]
    sizes: list[int]

    def apart(self) -> list[NDArray[Any]]:
        """Split ``whole`` into the original arrays, which are views of ``whole``."""
        ends = np.cumsum([0, *self.sizes]).tolist()
        return [self.whole[start:stop] for start, stop in pairwise(ends)]


class Arriving:
    """Placeholder in a message for an array that is written to shared memory, separately from the message.

    Attributes:
        number: Index of the array among all arrays written next to the message.
    """

    # Not a dataclass: dataclasses count as structure, and this object must be a leaf.
    __slots__ = ("dtype", "number", "shape")

    def __init__(self, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.number, self.shape, self.dtype = number, shape, dtype

    def arrived(self, written: Sequence[NDArray[np.uint8]]) -> NDArray[Any]:
        """Return the array that this placeholder stands for, as a view of the received memory."""
        return np.ndarray(self.shape, self.dtype, written[self.number].data)


@dataclass(frozen=True, slots=True)
class Leaves:
    """Elements with the same structure, stored as one column per field (leaf)."""

    structure: Structure
    columns: tuple[SideBySide | list[Any], ...]

    def elements(self) -> list[Any]:
        """Rebuild the elements."""
        columns = [column.apart() if isinstance(column, SideBySide) else column for column in self.columns]
        return self.structure.rows(columns)


@dataclass(frozen=True, slots=True)
class IdsSideBySide:
    """Concatenated row ids of several elements, with the number of rows that each element was made of."""

    whole: RowIds
    sizes: list[int]


@dataclass(frozen=True, slots=True)
class Handed:
    """Chunk in the form in which processes exchange chunks.

    Attributes:
        rows: Elements of an :class:`Items` chunk, or a :class:`Columns` chunk without its lineage and lease.
        ids: Row ids of the chunk.
        made_of: Ids of the rows from which the chunk was made, possibly concatenated.
        nbytes: Size of the chunk in bytes, for memory accounting.
    """

    rows: list[Any] | Leaves | Columns
    ids: RowIds
    made_of: IdsSideBySide | list[MadeOf | None] | None
    nbytes: int


def handed(chunk: Chunk, nbytes: int) -> tuple[Handed, list[Parts]]:
    """Convert a chunk to the form in which processes exchange chunks.

    Return the converted chunk, and the parts to write to shared memory next to the message.
    """
    beside: list[Parts] = []
    rows = _compact(chunk, beside) if isinstance(chunk, Columns) else _leaf_by_leaf(chunk.values, beside)
    made_of = chunk.made_of
    return Handed(rows, chunk.ids, None if made_of is None else _runs_of(made_of) or made_of, nbytes), beside


def taken(sent: Handed, written: Sequence[NDArray[np.uint8]] = ()) -> Chunk:
    """Rebuild a chunk that another process sent; its arrays are views of the received memory.

    Args:
        written: Arrays received next to the message.
    """
    made_of: list[MadeOf | None] | None
    made_of, runs = (sent.made_of, None) if not isinstance(sent.made_of, IdsSideBySide) else _apart(sent.made_of)
    if isinstance(sent.rows, Columns):
        return _with_arrived(sent.rows, written).with_ids(sent.ids).with_made_of(made_of)
    values = sent.rows.elements() if isinstance(sent.rows, Leaves) else sent.rows
    if written:
        values = [_with_leaves(element, Arriving, lambda leaf: leaf.arrived(written)) for element in values]
    return Items(values, sent.ids, None, made_of, runs)


def _apart(runs: IdsSideBySide) -> tuple[list[MadeOf | None], list[RowIds]]:
    stops = [0, *np.cumsum(runs.sizes).tolist()]
    return [runs.whole.slice(start, stop) for start, stop in pairwise(stops)], [runs.whole]


def _compact(chunk: Columns, beside: list[Parts]) -> Columns:
    leaves = tuple(_compact_leaf(leaf, beside) for leaf in chunk.leaves)
    return Columns(chunk.structure, leaves, RowIds.none())


def _compact_leaf(leaf: Column, beside: list[Parts]) -> Column:
    if isinstance(leaf, SeparateBytes) and len(leaf):
        values: Any = _put_beside(Parts(tuple(np.frombuffer(row, np.uint8) for row in leaf.rows)), beside)
        return VarColumn(values, leaf.starts, leaf.lengths)
    return leaf.compact() if isinstance(leaf, VarColumn) and _is_sparse(leaf) else leaf


def _with_arrived(rows: Columns, written: Sequence[NDArray[np.uint8]]) -> Columns:
    if not written:
        return rows
    leaves = tuple(
        replace(leaf, values=leaf.values.arrived(written))
        if isinstance(leaf, VarColumn) and isinstance(leaf.values, Arriving)
        else leaf
        for leaf in rows.leaves
    )
    return replace(rows, leaves=leaves)


def _is_sparse(column: VarColumn) -> bool:
    row_nbytes = column.values.nbytes / max(1, len(column.values))
    return int(column.lengths.sum()) * row_nbytes < SPARSE * column.values.nbytes


def _runs_of(entries: Sequence[MadeOf | None]) -> IdsSideBySide | None:
    parts = [entry for entry in entries if isinstance(entry, RowIds)]
    if not parts or len(parts) < len(entries):
        return None
    return IdsSideBySide(RowIds.concat(parts), [len(part) for part in parts])


def _leaf_by_leaf(elements: list[Any], beside: list[Parts]) -> list[Any] | Leaves:
    """Return elements as columns if this combines small arrays; otherwise, return a list of elements."""
    if len(elements) > 1 and _has_small_array(elements[0]):
        structure = structure_of(elements[0])
        if all(structure_of(element) == structure for element in elements[1:]):
            columns = structure.columns(elements)
            return Leaves(structure, tuple(_joined(column, beside) for column in columns))
    return [_with_leaves(element, Parts, lambda leaf: _put_beside(leaf, beside)) for element in elements]


def _with_leaves(element: Any, kind: type[Any], change: Callable[[Any], Any]) -> Any:
    """Apply ``change`` to all values (leaves) of type ``kind`` in an element.

    Return the element itself if it contains no value of type ``kind``.
    """
    structure = structure_of(element)
    leaves = structure.flatten(element)
    if not any(type(leaf) is kind for leaf in leaves):
        return element
    return structure.unflatten([change(leaf) if type(leaf) is kind else leaf for leaf in leaves])


def _put_beside(parts: Parts, beside: list[Parts]) -> Arriving:
    beside.append(parts)
    return Arriving(len(beside) - 1, parts.shape, parts.dtype)


def _has_small_array(element: Any) -> bool:
    structure = structure_of(element)
    return any(isinstance(leaf, np.ndarray) and leaf.nbytes < SMALL_NBYTES for leaf in structure.flatten(element))


def _joined(column: list[Any], beside: list[Parts]) -> SideBySide | list[Any]:
    if all(type(leaf) is np.ndarray and leaf.nbytes < SMALL_NBYTES for leaf in column):
        return side_by_side(column) or column
    return [_put_beside(leaf, beside) if type(leaf) is Parts else leaf for leaf in column]


def side_by_side(arrays: Sequence[NDArray[Any]]) -> SideBySide | None:
    """Concatenate arrays. Return None if the arrays differ in dtype or row shape, or contain Python objects."""
    if not arrays or arrays[0].ndim == 0 or arrays[0].dtype.hasobject:
        return None
    kind = (arrays[0].dtype, arrays[0].shape[1:])
    if any((array.dtype, array.shape[1:]) != kind for array in arrays):
        return None
    return SideBySide(np.concatenate(arrays), [len(array) for array in arrays])
