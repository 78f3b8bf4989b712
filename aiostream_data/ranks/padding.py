"""Rows that only fill up: named as such in their ids, and later marked in the elements.

A row that is padding has one more pair in its ids, so that whatever happens to it on its way, in whatever order
rows are worked on, the flag can be added where functions that should not see it have been passed.
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
"""Key of the flag in elements that are dicts."""


def as_padding(chunk: Chunk, first: int = 0) -> Chunk:
    """Return the rows with ids that name those from row ``first`` on as padding.

    A function that draws by record draws the same for them as for the rows that they repeat.
    """
    return marked(chunk, np.arange(len(chunk)) >= first)


def marked(chunk: Chunk, is_padding: NDArray[np.bool_]) -> Chunk:
    """Return the rows with ids that name some of them as padding."""
    return chunk.with_ids(_marked(chunk.ids, is_padding))


def _marked(ids: RowIds, is_padding: NDArray[np.bool_]) -> RowIds:
    return ids.with_pair(PADDING, 0, where=is_padding) if is_padding.any() else ids


def padding_rows(ids: RowIds) -> NDArray[np.bool_]:
    """Return, for each row, whether its id marks padding."""
    return ids.ends_with(PADDING)


def without_padding(ids: RowIds) -> RowIds:
    """Return the ids of the rows that padding repeats."""
    return ids.without_pair(where=padding_rows(ids))


def batches_without_padding(lineage: Lineage) -> Lineage:
    """Return batches as if they were made of the rows that their padding repeats."""
    made_of = [_with_ids(entry, without_padding) for entry in lineage.made_of or ()]
    return Lineage(lineage.ids, made_of or None)


def batches_marked_like(chunk: Chunk, saved: Lineage) -> Chunk:
    """Return batches that were made again, their rows named as padding where those of ``saved`` are."""
    if saved.made_of is None or chunk.made_of is None:
        return chunk
    made_of = [
        _with_ids(entry, partial(_marked, is_padding=padding_rows(rows_named_by(before))))
        for entry, before in zip(chunk.made_of, saved.made_of, strict=True)
    ]
    return chunk.with_made_of(made_of)


def _with_ids(rows: MadeOf | None, change: Callable[[RowIds], RowIds]) -> MadeOf | None:
    """Return what a batch was made of with other ids of its rows; elements that are no batch as they are."""
    if rows is None or is_single(rows):
        return rows
    return type(rows)(change(rows.ids), rows.made_of) if isinstance(rows, Lineage) else change(rows)


def rows_named_by(made_of: MadeOf | None) -> RowIds:
    """Return the ids of the rows that a batch was made of."""
    if made_of is None:
        return RowIds.none()
    return made_of.ids if isinstance(made_of, Lineage) else made_of


def marked_structure(structure: Structure) -> Structure:
    """Return the structure of elements with a flag: one more key of a dict, else a pair of element and flag."""
    if structure.kind == "dict":
        return Structure("dict", (*structure.names, VALID), (*structure.children, LEAF))
    return Structure("tuple", (), (structure, LEAF))


def with_marks(chunk: Chunk) -> Chunk:
    """Return the rows with a flag each, which is True unless the row is padding.

    Raises:
        RankError: Elements are dicts that have a "valid" already.
    """
    marks = ~padding_rows(chunk.ids)
    if isinstance(chunk, Items):
        return _items_with(chunk, marks.tolist())
    if chunk.structure.kind == "dict" and VALID in chunk.structure.names:
        raise _taken()
    return Columns(marked_structure(chunk.structure), (*chunk.leaves, marks), chunk.ids, chunk.lease, chunk.made_of)


def batches_with_marks(chunk: Chunk) -> Chunk:
    """Return batches with a flag per row of each, which is True unless the row, or the whole batch, is padding."""
    made_of = chunk.made_of or [None] * len(chunk)
    whole = padding_rows(chunk.ids).tolist()
    flags = [_flags(rows, is_padding) for rows, is_padding in zip(made_of, whole, strict=True)]
    return _items_with(Items(chunk.elements(), chunk.ids, chunk.lease, chunk.made_of), flags)


def _flags(rows: MadeOf | None, is_padding: bool) -> NDArray[np.bool_]:
    if is_padding or rows is None:
        return np.full(1 if rows is None else len(rows), not is_padding)
    return ~padding_rows(rows.ids if isinstance(rows, Lineage) else rows)


def _items_with(chunk: Items, flags: Sequence[Any]) -> Items:
    values = [_with_flag(value, flag) for value, flag in zip(chunk.values, flags, strict=True)]
    return Items(values, chunk.ids, chunk.lease, chunk.made_of)


def _with_flag(element: Any, flag: Any) -> Any:
    if not isinstance(element, Mapping):
        return element, flag
    if VALID in element:
        raise _taken()
    return {**element, VALID: flag}


def _taken() -> RankError:
    return RankError(f"tail='pad' adds {VALID!r} to every element, and an element has {VALID!r} already")
