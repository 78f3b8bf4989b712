"""Lineage: which rows an element was made of.

An id (:class:`~.row_ids.RowIds`) names a row of a source and what operators did to it. An element that was put together
from any number of rows, such as a batch, also has an entry in a :class:`Lineage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.row_ids import RowIds


@dataclass(frozen=True, slots=True)
class Lineage:
    """Some rows, and for those that were put together from others, of which.

    Attributes:
        ids: Of the rows.
        made_of: None, or for every row the rows that it was made of (None where its id is enough).
    """

    ids: RowIds
    made_of: Sequence[MadeOf | None] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def as_made_of(self) -> MadeOf:
        """Return the rows as an entry of another lineage, in its one form: ids where those are enough."""
        if self.made_of is None or all(entry is None for entry in self.made_of):
            return self.ids
        return self

    def of(self, row: int) -> MadeOf | None:
        return None if self.made_of is None else self.made_of[row]

    def slice(self, start: int, stop: int) -> Lineage:
        made_of = None if self.made_of is None else self.made_of[start:stop]
        return Lineage(self.ids.slice(start, stop), made_of)

    def take(self, rows: NDArray[np.int64]) -> Lineage:
        made_of = None if self.made_of is None else [self.made_of[row] for row in rows.tolist()]
        return Lineage(self.ids.take(rows), made_of)


def concat_lineages(parts: Sequence[Lineage]) -> Lineage:
    """Return the rows of all parts, one after another."""
    ids = RowIds.concat([part.ids for part in parts])
    if all(part.made_of is None for part in parts):
        return Lineage(ids)
    return Lineage(ids, [part.of(row) for part in parts for row in range(len(part))])


def rows_behind(parts: Sequence[Lineage], rows: int) -> Lineage:
    """Return all rows of the parts except the first ``rows``."""
    left = []
    for part in parts:
        cut = min(rows, len(part))
        rows -= cut
        left.append(part.slice(cut, len(part)))
    return concat_lineages(left) if left else Lineage(RowIds.none())


class CutFrom(Lineage):
    """The element (one row) that a row was cut out of, as by ``unbatch()``."""

    __slots__ = ()


class Beside(Lineage):
    """A row of ``zip()``: ``ids`` is the row of its first input, ``made_of`` the rows that each input's was made of."""

    __slots__ = ()


MadeOf: TypeAlias = RowIds | Lineage
"""Rows that an element was made of: their ids where those are enough, else a lineage."""


def is_single(made_of: MadeOf | None) -> bool:
    """Return whether an element is one row, not put together from several. ``zip()`` goes by its first input."""
    if isinstance(made_of, Beside):
        return is_single(made_of.of(0))
    return made_of is None or isinstance(made_of, CutFrom)


def source_ids(ids: RowIds, made_of: MadeOf | None) -> RowIds:
    """Return the ids of the rows that one element was made of.

    Args:
        ids: The element's own, of one row.
    """
    if made_of is None or is_single(made_of):
        return ids
    if not isinstance(made_of, Lineage):
        return made_of
    if isinstance(made_of, Beside):
        return source_ids(made_of.ids, made_of.of(0))
    if made_of.made_of is None:
        return made_of.ids
    return RowIds.concat([source_ids(made_of.ids.row(row), made_of.of(row)) for row in range(len(made_of))])


def ids_of_split(ids: RowIds, made_of: MadeOf | None, size: int) -> RowIds:
    """Return the ids of the ``size`` rows that one element splits into.

    Those of the rows that it was put together from if they are as many, whatever these were made of; else its own.

    Args:
        ids: The element's own, of one row.
    """
    if made_of is None or isinstance(made_of, CutFrom):
        return ids.repeat(size)
    if isinstance(made_of, Beside):
        return ids_of_split(made_of.ids, made_of.of(0), size)
    rows = made_of.ids if isinstance(made_of, Lineage) else made_of
    if len(rows) == size:
        return rows
    sources = source_ids(ids, made_of)
    return sources if len(sources) == size else ids.repeat(size)


def ids_side_by_side(parts: Sequence[Lineage]) -> tuple[RowIds, list[MadeOf | None] | None]:
    """Return the ids of rows that stand side by side, and what they were made of where one was made of several."""
    first = ids = parts[0].ids
    for part in parts[1:]:
        ids = ids.join(part.ids)
    if all(part.made_of is None for part in parts):
        return ids, None
    lists = zip(*(part.made_of or [None] * len(part) for part in parts), strict=True)
    return ids, [_beside(first, row, entries) for row, entries in enumerate(lists)]


def _beside(first: RowIds, row: int, entries: Sequence[MadeOf | None]) -> Beside | None:
    return None if all(entry is None for entry in entries) else Beside(first.row(row), entries)
