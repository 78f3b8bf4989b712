"""Row ids: the names of rows, which say where a row came from and what was done to make it.

An id is a row of int64 numbers, two or more: (split, ordinal) of the row of the source, then to the right a pair
for every operator on the way that made rows out of others: the number that enumerate() gave, the row of the other
input of zip(), the outer row of flat_map(). Read from the right, they say how to make the row again. Rows with
fewer pairs than others in the same chunk are filled up with -1. What was put together from any number of rows, such
as a batch, says so in a :class:`Lineage` beside its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import StateMismatchError

Ids: TypeAlias = NDArray[np.int64]

NO_PAIR: Final = -1
CUT: Final = 1
"""First number of a pair that says: row so and so of the element, as unbatch() cut it."""
NUMBERED: Final = 2
"""First number of a pair that says: the number that enumerate() gave."""
JOINED: Final = 3
"""First number of a pair that says how many columns to its left zip() or interleave() joined to those before."""
PADDING: Final = 4
"""First number of a pair that says that the row only fills up, and repeats the row that the other pairs name."""
CACHED: Final = 6
"""First number of a pair that says which of the places where a cache is read gave the row."""
PIECE: Final = 5
"""First number of a pair that says: piece so and so of the row, as pack() split it."""


def run_of_ids(split: int, first: int, count: int) -> Ids:
    """Return the ids of ``count`` consecutive rows of one split, the first being ``first``."""
    ids = np.empty((count, 2), np.int64)
    ids[:, 0] = split
    ids[:, 1] = np.arange(first, first + count)
    return ids


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


def rows_behind(parts: Sequence[Lineage], rows: int) -> Lineage:
    """Return all rows of the parts but the first so many."""
    left = []
    for part in parts:
        cut = min(rows, len(part))
        rows -= cut
        left.append(part.slice(cut, len(part)))
    return concat_lineages(left) if left else Lineage(np.empty((0, 2), np.int64))


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
        StateMismatchError: They were not joined.
    """
    widths = last_ordinals(ids)
    whole = without_last_pair(ids)
    width = int(widths[0])
    end = 2 * (int(last_pairs(ids)[0]))
    if not 2 <= width <= end - 2 or bool((widths != width).any()) or bool((last_pairs(ids) * 2 != end).any()):
        raise StateMismatchError(["these ids are not of rows that were joined of two"])
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
