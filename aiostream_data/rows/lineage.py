"""Lineage of an element: the ids of the rows from which the element was made.

A row id (:class:`~.row_ids.RowIds`) identifies a source row and the operators applied to it. An element that combines
several rows, such as a batch, also has an entry in a :class:`Lineage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import is_not
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.row_ids import RowIds


@dataclass(frozen=True, slots=True)
class Lineage:
    """Ids of rows. A row that combines other rows also has an entry that lists the combined rows.

    Attributes:
        ids: Ids of the rows.
        made_of: For each row, the rows that were combined into it, or None if the row's id is sufficient. The attribute
            is None if no row has an entry.
    """

    ids: RowIds
    made_of: Sequence[MadeOf | None] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def as_made_of(self) -> MadeOf:
        """Return this lineage as a ``made_of`` entry. Return only the ids if no row has an entry of its own."""
        if self.made_of is None or not any(map(is_not, self.made_of, repeat(None))):
            return self.ids
        return self

    def of(self, row: int) -> MadeOf | None:
        return None if self.made_of is None else self.made_of[row]

    def slice(self, start: int, stop: int) -> Lineage:
        made_of = None if self.made_of is None else self.made_of[start:stop]
        return Lineage(self.ids.slice(start, stop), made_of)

    def take(self, rows: NDArray[np.int64]) -> Lineage:
        made_of = None if self.made_of is None else list(map(self.made_of.__getitem__, rows.tolist()))
        return Lineage(self.ids.take(rows), made_of)


def concat_lineages(parts: Sequence[Lineage]) -> Lineage:
    """Concatenate lineages."""
    ids = RowIds.concat([part.ids for part in parts])
    if all(part.made_of is None for part in parts):
        return Lineage(ids)
    joined: list[MadeOf | None] = []
    for part in parts:
        joined += part.made_of or repeat(None, len(part))
    return Lineage(ids, joined)


def rows_behind(parts: Sequence[Lineage], rows: int) -> Lineage:
    """Concatenate the parts and return the result without its first ``rows`` rows."""
    left = []
    for part in parts:
        cut = min(rows, len(part))
        rows -= cut
        left.append(part.slice(cut, len(part)))
    return concat_lineages(left) if left else Lineage(RowIds.none())


class CutFrom(Lineage):
    """Lineage entry of a row that was split from another element, for example by ``unbatch()``."""

    __slots__ = ()


class Beside(Lineage):
    """Lineage of a ``zip()`` row. ``ids`` is the id of the first input's row, and ``made_of`` has one entry per
    input."""

    __slots__ = ()


MadeOf: TypeAlias = RowIds | Lineage
"""Rows from which an element was made: row ids if they are sufficient, else a :class:`Lineage`."""


_OF_OWN_ROWS = {type(None), CutFrom}


def is_single(made_of: MadeOf | None) -> bool:
    """Return True if an element is a single row, not a combination of rows.

    For a row of ``zip()``, test only the first input.
    """
    if isinstance(made_of, Beside):
        return is_single(made_of.of(0))
    return made_of is None or isinstance(made_of, CutFrom)


def are_own_rows(entries: Sequence[MadeOf | None]) -> bool:
    """Return True if all ``made_of`` entries belong to rows from a source, or to rows split from an element."""
    return set(map(type, entries)) <= _OF_OWN_ROWS


def source_ids(ids: RowIds, made_of: MadeOf | None) -> RowIds:
    """Return the ids of the source rows from which one element was made.

    Args:
        ids: Id of the element (one row).
        made_of: ``made_of`` entry of the element.
    """
    if made_of is None or is_single(made_of):
        return ids
    if not isinstance(made_of, Lineage):
        return made_of
    if isinstance(made_of, Beside):
        return source_ids(made_of.ids, made_of.of(0))
    if made_of.made_of is None or are_own_rows(made_of.made_of):
        return made_of.ids
    return RowIds.concat([source_ids(made_of.ids.row(row), made_of.of(row)) for row in range(len(made_of))])


def ids_of_split(ids: RowIds, made_of: MadeOf | None, size: int) -> RowIds:
    """Return the ids of the ``size`` rows that one element splits into.

    If the element combines exactly ``size`` rows, return the ids of these rows. Otherwise repeat the id of the element
    ``size`` times.

    Args:
        ids: Id of the element (one row).
        made_of: ``made_of`` entry of the element.
        size: Number of rows.
    """
    if made_of is None or isinstance(made_of, CutFrom):
        return ids.repeat(size)
    if isinstance(made_of, Beside):
        return _beside_each(ids, made_of, size)
    rows = made_of.ids if isinstance(made_of, Lineage) else made_of
    if len(rows) == size:
        return rows
    sources = source_ids(ids, made_of)
    return sources if len(sources) == size else ids.repeat(size)


def _beside_each(ids: RowIds, made_of: Beside, size: int) -> RowIds:
    """Return the ids of the rows that the first part splits into, each joined with the ids of the other parts.

    Without the other parts, rows of inner datasets would have the same ids for all outer rows.
    """
    others: list[RowIds] = []
    for _ in range(len(made_of.made_of or ()) - 1):
        ids, other = ids.split()
        others.append(other)
    found = ids_of_split(made_of.ids, made_of.of(0), size)
    for other in reversed(others):
        found = found.join(other.repeat(size))
    return found


def ids_side_by_side(parts: Sequence[Lineage]) -> tuple[RowIds, list[MadeOf | None] | None]:
    """Join the ids of corresponding rows of all parts, as ``zip()`` does. Return the joined ids and the ``made_of``
    entries."""
    first = ids = parts[0].ids
    for part in parts[1:]:
        ids = ids.join(part.ids)
    if all(part.made_of is None for part in parts):
        return ids, None
    lists = zip(*(part.made_of or [None] * len(part) for part in parts), strict=True)
    return ids, [_beside(first, row, entries) for row, entries in enumerate(lists)]


def _beside(first: RowIds, row: int, entries: Sequence[MadeOf | None]) -> Beside | None:
    return None if all(entry is None for entry in entries) else Beside(first.row(row), entries)
