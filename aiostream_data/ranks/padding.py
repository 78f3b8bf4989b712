"""Mark padding rows, which make the row counts of all ranks equal.

The row id of a padding row ends with an extra pair of numbers, which operators preserve. The flag "valid" is added to
the elements after all user functions have run, so that these functions do not receive the flag.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import RankError
from aiostream_data.rows.lineage import Lineage, MadeOf, is_single
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.row_ids import PADDING, RowIds
from aiostream_data.rows.structure import LEAF, Structure

VALID: Final = "valid"
"""Key of the padding flag in elements that are dicts."""

OF_RANKS: Final = 0
"""Number of all operators that make the row counts of ranks equal."""

TAIL: Final = "tail='pad'"
"""Option of ``open()`` that adds the flag."""


def as_padding(chunk: Chunk, first: int = 0, adder: int = OF_RANKS) -> Chunk:
    """Mark row ``first`` and all later rows as padding, in their row ids.

    A function with an ``rng`` gets the same random numbers for a padding row as for the row that it repeats.

    Args:
        adder: Number of the operator that adds the rows; ``OF_RANKS`` for the operators that make ranks equal.
    """
    return marked(chunk, np.arange(len(chunk)) >= first, adder)


def marked(chunk: Chunk, is_padding: NDArray[np.bool_], adder: int = OF_RANKS) -> Chunk:
    """Mark the rows selected by ``is_padding`` as padding, in their row ids."""
    return chunk.with_ids(_marked(chunk.ids, is_padding, adder))


def _marked(ids: RowIds, is_padding: NDArray[np.bool_], adder: int = OF_RANKS) -> RowIds:
    return ids.with_pair(PADDING, adder, where=is_padding) if is_padding.any() else ids


def padding_rows(ids: RowIds) -> NDArray[np.bool_]:
    """Return one bool per row: True if the row's id marks the row as padding."""
    return ids.ends_with(PADDING)


def has_padding(ids: RowIds) -> bool:
    """Return True if the id of any row marks the row as padding."""
    return ids.any_ends_with(PADDING)


def padding_of(ids: RowIds, adder: int = OF_RANKS) -> NDArray[np.bool_]:
    """Return one bool per row: True if the row's id marks the row as padding that ``adder`` added."""
    is_padding = padding_rows(ids)
    return is_padding & (ids.last_ordinals() == adder) if is_padding.any() else is_padding


def without_padding(ids: RowIds, adder: int = OF_RANKS) -> RowIds:
    """Remove the padding mark from the ids of padding rows that ``adder`` added.

    The id of a padding row becomes equal to the id of the repeated row.
    """
    return ids.without_pair(where=padding_of(ids, adder))


def batches_without_padding(lineage: Lineage) -> Lineage:
    """Remove the padding mark from the row ids of batches."""
    made_of = [_with_ids(entry, without_padding) for entry in lineage.made_of or ()]
    return Lineage(lineage.ids, made_of or None)


def batches_marked_like(chunk: Chunk, saved: Lineage) -> Chunk:
    """In recomputed batches, mark the same rows as padding as in the lineage ``saved``."""
    if saved.made_of is None or chunk.made_of is None:
        return chunk
    made_of = [
        _with_ids(entry, partial(_marked, is_padding=padding_of(rows_named_by(before))))
        for entry, before in zip(chunk.made_of, saved.made_of, strict=True)
    ]
    return chunk.with_made_of(made_of)


def _with_ids(rows: MadeOf | None, change: Callable[[RowIds], RowIds]) -> MadeOf | None:
    """Apply the function ``change`` to the row ids of a batch.

    If the element is not a batch, return ``rows`` unchanged.
    """
    if rows is None or is_single(rows):
        return rows
    return type(rows)(change(rows.ids), rows.made_of) if isinstance(rows, Lineage) else change(rows)


def rows_named_by(made_of: MadeOf | None) -> RowIds:
    """Return the ids of the rows of a batch."""
    if made_of is None:
        return RowIds.none()
    return made_of.ids if isinstance(made_of, Lineage) else made_of


def marked_structure(structure: Structure) -> Structure:
    """Add the padding flag to a structure: an extra key of a dict, otherwise a pair (element, flag)."""
    if structure.kind == "dict":
        return Structure("dict", (*structure.names, VALID), (*structure.children, LEAF))
    return Structure("tuple", (), (structure, LEAF))


def with_marks(chunk: Chunk, adder: str = TAIL) -> Chunk:
    """Add a flag to each row: True for data, False for padding.

    Args:
        adder: Name of the operator or option that adds the flag, for errors.

    Raises:
        RankError: The elements are dicts that already have the key "valid".
    """
    marks = ~padding_rows(chunk.ids)
    if isinstance(chunk, Items):
        return _items_with(chunk, marks.tolist(), adder)
    if chunk.structure.kind == "dict" and VALID in chunk.structure.names:
        raise _taken(adder)
    return Columns(marked_structure(chunk.structure), (*chunk.leaves, marks), chunk.ids, chunk.lease, chunk.made_of)


def batches_with_marks(chunk: Chunk) -> Chunk:
    """Add an array with one flag per row to each batch. The flag is False if the row or its batch is padding."""
    made_of = chunk.made_of or [None] * len(chunk)
    whole = padding_rows(chunk.ids).tolist()
    flags = [_flags(rows, is_padding) for rows, is_padding in zip(made_of, whole, strict=True)]
    return _items_with(Items(chunk.elements(), chunk.ids, chunk.lease, chunk.made_of), flags)


def _flags(rows: MadeOf | None, is_padding: bool) -> NDArray[np.bool_]:
    if is_padding or rows is None:
        return np.full(1 if rows is None else len(rows), not is_padding)
    return ~padding_rows(rows.ids if isinstance(rows, Lineage) else rows)


def _items_with(chunk: Items, flags: Sequence[Any], adder: str = TAIL) -> Items:
    values = [_with_flag(value, flag, adder) for value, flag in zip(chunk.values, flags, strict=True)]
    return Items(values, chunk.ids, chunk.lease, chunk.made_of)


def _with_flag(element: Any, flag: Any, adder: str) -> Any:
    if not isinstance(element, Mapping):
        return element, flag
    if VALID in element:
        raise _taken(adder)
    return {**element, VALID: flag}


def _taken(adder: str) -> RankError:
    return RankError(f"{adder} adds {VALID!r} to every element, and an element has {VALID!r} already")
