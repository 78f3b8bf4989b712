"""Row ids: unique, reproducible identifiers of rows.

A row id is a sequence of pairs of int64 numbers, in postfix notation. The first pair is (split, ordinal) of a source
row. An operator that derives rows appends one pair: ``enumerate()`` appends the number of the row, ``unbatch()`` the
row's index in its element. ``zip()`` and ``interleave()`` append the complete id of the other row and a pair with the
width of this id.

**An id is canonical.** An id depends only on plan, seed and epoch. Chunk size, memory limit, concurrency, debug mode
and number of workers do not affect ids, and resuming a run does not change ids. The class :class:`RowIds` stores the
ids of many rows in one array and pads shorter ids on the right. Padding is not part of an id and is not copied to new
ids. The ids of consecutive rows stay a run (``id_runs.py``) until an operation needs the array. ``RowIds`` supports
neither indexing nor conversion to an array. ``docs/row_ids.md`` describes the format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.errors import StateMismatchError
from aiostream_data.rows.id_arrays import (
    SPLIT_BITS,
    SPLIT_MASK,
    UNUSED,
    Mask,
    Numbers,
    Pairs,
    alike,
    beside,
    joined_columns,
    pair_column,
    used,
    widened,
)
from aiostream_data.rows.id_runs import IdRun, gathered_ids, gathered_run, joined

CUT: Final = 1
"""Kind of the id pair that ``unbatch()`` appends: the row's index in its element."""
NUMBERED: Final = 2
"""Kind of the id pair that ``enumerate()`` appends: the number of the row."""
JOINED: Final = 3
"""Kind of the id pair that ``zip()`` and ``interleave()`` append: the width in columns of the other row's id."""
PADDING: Final = 4
"""Kind of the id pair of a padding row, which repeats another row to fill up a batch or rank."""
PIECE: Final = 5
"""Kind of the id pair that ``pack()`` appends: the number of the piece of the split row."""
CACHED: Final = 6
"""Kind of the id pair that a shared cache appends: the plan position of the node that reads the cache."""

OTHER_PIPELINE: Final = "Use the row ids with the pipeline that returned them."
"""Remedy of errors about row ids that do not fit the plan."""


class RowIds:
    """Ids of a sequence of rows. Immutable.

    Create an instance with :meth:`run`, :meth:`of_source`, :meth:`from_padded` or :meth:`concat`.
    """

    __slots__ = ("_array", "_run")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, pairs: Numbers | IdRun) -> None:
        self._run = pairs if isinstance(pairs, IdRun) else None
        self._array = None if isinstance(pairs, IdRun) else pairs

    @property
    def _pairs(self) -> Numbers:
        if self._array is None:
            self._array = self._run.array()  # type: ignore[union-attr]
        return self._array

    def __reduce__(self) -> tuple[type[RowIds], tuple[Numbers]]:
        return RowIds, (self._pairs,)

    # -- making ids

    @staticmethod
    def run(split: int, first: int, count: int) -> RowIds:
        """Return the ids of ``count`` consecutive source rows of one split, starting with ordinal ``first``."""
        return RowIds(IdRun((split, first), (0, 1), count))

    @staticmethod
    def of_source(splits: Numbers | int, ordinals: Sequence[int] | Numbers) -> RowIds:
        """Return the ids of source rows with the given splits and ordinals."""
        return RowIds(pair_column(len(ordinals), splits, ordinals))

    @staticmethod
    def none() -> RowIds:
        """Return an empty sequence of ids."""
        return RowIds(np.empty((0, 2), np.int64))

    @staticmethod
    def from_padded(columns: Numbers) -> RowIds:
        """Create ids from the result of :meth:`padded`, which may come from another process.

        Raises:
            ValueError: The array is not int64 with an even number of columns (2 or more), or an id has padding before a
                pair.
        """
        if columns.ndim != 2 or columns.shape[1] < 2 or columns.shape[1] % 2 or columns.dtype != np.int64:
            raise ValueError(f"row ids must be int64 of shape (rows, 2 or more), got {columns.dtype}{columns.shape}")
        used = columns[:, ::2] >= 0
        if not used[:, 0].all() or (used[:, 1:] & ~used[:, :-1]).any():
            raise ValueError("row ids must begin with a source and must not have gaps")
        return RowIds(columns)

    @staticmethod
    def concat(parts: Sequence[RowIds]) -> RowIds:
        """Concatenate ids. If ``parts`` has one entry, this entry is returned without a copy."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return RowIds.none()
        runs = [part._run for part in parts if part._run is not None]
        run = joined(runs) if len(runs) == len(parts) else None
        return RowIds(np.concatenate(alike([part._pairs for part in parts]))) if run is None else RowIds(run)

    @staticmethod
    def firsts(parts: Sequence[RowIds]) -> RowIds:
        """Return the id of the first row of each part."""
        numbers = [part._numbers(0) if part._run is None else part._run.first for part in parts if len(part)]
        if len(numbers) == len(parts) and len(set(map(len, numbers))) == 1:
            return RowIds(np.array(numbers, np.int64))
        return RowIds.concat([part.slice(0, 1) for part in parts])

    @staticmethod
    def gather(parts: Sequence[RowIds], which: NDArray[np.int32], rows: Numbers) -> RowIds:
        """Copy the id of row ``rows[i]`` of ``parts[which[i]]`` for each i."""
        runs = [part._run for part in parts if part._run is not None]
        if parts and len(runs) == len(parts):
            found = gathered_run(runs, which, rows) or gathered_ids(runs, which, rows)
            if found is not None:
                return RowIds(found)
        return RowIds(_native.take_rows_many(alike([part._pairs for part in parts]), which, rows))

    # -- selecting rows

    def __len__(self) -> int:
        return len(self._array) if self._run is None else self._run.rows  # type: ignore[arg-type]

    @property
    def nbytes(self) -> int:
        """Size of the ids as an array, in bytes."""
        return self._pairs.nbytes if self._run is None else self._run.nbytes

    def slice(self, start: int, stop: int) -> RowIds:
        """Return the ids of rows ``start`` to ``stop`` (exclusive), as a view of the same memory."""
        return RowIds(self._pairs[start:stop] if self._run is None else self._run.slice(start, stop))

    def cut(self, bounds: Sequence[tuple[int, int]]) -> list[RowIds]:
        """Return :meth:`slice` of each pair of ``bounds``, whose numbers are row numbers."""
        if self._run is not None:
            return list(map(RowIds, self._run.cut(bounds)))
        return [self.slice(start, stop) for start, stop in bounds]

    def row(self, row: int) -> RowIds:
        """Return the id of one row."""
        return self.slice(row, row + 1)

    def take(self, rows: Numbers | Sequence[int]) -> RowIds:
        """Return the ids of the rows at the indices ``rows``, in this order."""
        rows = np.asarray(rows, np.int64)
        if self._array is None and len(rows) and rows.min() >= 0 and rows.max() < len(self):
            return RowIds(self._run.at(rows))  # type: ignore[union-attr]
        return RowIds(_native.take_rows(self._pairs, rows))

    def keep(self, mask: Mask) -> RowIds:
        """Return the ids of the rows for which ``mask`` is True."""
        return RowIds(self._pairs[mask])

    def repeat(self, times: int) -> RowIds:
        """Repeat each id ``times`` times in succession."""
        return RowIds(np.repeat(self._pairs, times, axis=0))

    def copy(self) -> RowIds:
        """Return a copy of the ids that has its own memory."""
        return RowIds(self._pairs.copy() if self._run is None else self._run)

    # -- comparing ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowIds) and self.keys() == other.keys()

    def __repr__(self) -> str:
        return f"RowIds({self.tolist()})"

    def keys(self) -> list[bytes]:
        """Return a hashable key for each row; equal ids have equal keys."""
        whole = np.ascontiguousarray(self._pairs)
        if whole.shape[1] == 2:
            return [row.tobytes() for row in whole]
        return [row[:width].tobytes() for row, width in zip(whole, self._widths().tolist(), strict=True)]

    def tolist(self) -> list[list[int]]:
        """Return each id as a list of its numbers, without padding."""
        widths = self._widths().tolist()
        return [row[:width] for row, width in zip(self._pairs.tolist(), widths, strict=True)]

    def unique(self) -> tuple[RowIds, Numbers]:
        """Return the distinct ids in sorted order, and for each row the index of its id in this sequence."""
        found, places = np.unique(self._pairs, axis=0, return_inverse=True)
        return RowIds(found), places.reshape(-1)

    def order(self) -> Numbers:
        """Return the row numbers that sort the rows by id."""
        return np.lexsort(self._pairs.T[::-1])

    # -- reading ids

    @property
    def splits(self) -> Numbers:
        """Split number of the source row of each id, int64 of shape (rows,)."""
        return self._column(0)

    @property
    def ordinals(self) -> Numbers:
        """Ordinal number of the source row of each id, int64 of shape (rows,)."""
        return self._column(1)

    def pairs(self) -> Iterator[Pairs]:
        """Yield the first id pairs of all rows, then the second id pairs of all rows, and so on."""
        for column in range(0, self._columns, 2):
            splits = self._column(column)
            yield Pairs(splits, self._column(column + 1), splits != UNUSED)

    def pairs_of(self, row: int) -> list[tuple[int, int]]:
        """Return the pairs of the id of one row."""
        numbers = self._numbers(row)
        return [(a, b) for a, b in zip(numbers[::2], numbers[1::2], strict=True) if a != UNUSED]

    def source_pairs(self) -> Numbers | None:
        """Return (split, ordinal) of each row, int64 of shape (rows, 2), or None if :meth:`are_sources` is False."""
        return self._pairs if self.are_sources() else None

    def are_sources(self) -> bool:
        """Return True if the ids have room for one pair only, so that all rows are rows of sources."""
        return self._columns == 2

    def run_of_split(self) -> tuple[int, tuple[int, ...]] | None:
        """Return the first ordinal of consecutive rows of one split, and the other numbers, which all ids share.

        Return None if ids differ in another number than the ordinal of their source row, or if it is not known.
        """
        run = self._run
        return (run.first[1], run.first[:1] + run.first[2:]) if run is not None and run.counts_ordinals() else None

    def padded(self, min_width: int = 2) -> Numbers:
        """Return the ids as one int64 array, padded with -1 on the right to ``min_width`` or the widest id."""
        columns = self._pairs.shape[1]
        width = min_width if columns <= min_width else max(min_width, int(self._widths().max(initial=2)))
        return self._pairs[:, :width] if width <= columns else widened(self._pairs, width)

    def namespaces(self) -> list[int]:
        """Return the distinct namespace numbers in the ids, ascending."""
        some = self._pairs if self._run is None or any(self._run.steps[::2]) else self._run.slice(0, 1).array()
        found = np.unique(some[:, ::2] >> SPLIT_BITS)
        return [number for number in found.tolist() if number > 0]

    def renamed(self, base_of: Callable[[int], int]) -> RowIds:
        """Return the ids with their namespaces replaced.

        Args:
            base_of: Function from a namespace number to the base split number of the new namespace.
        """
        renamed = self._pairs.copy()
        splits = renamed[:, ::2]
        numbers = splits >> SPLIT_BITS
        for number in self.namespaces():
            places = numbers == number
            splits[places] = base_of(number) | (splits[places] & SPLIT_MASK)
        return RowIds(renamed)

    # -- appending pairs, and removing them

    def with_pair(self, kind: int, ordinals: Numbers | int, where: Mask | None = None) -> RowIds:
        """Append a pair to each id, or only to the ids of rows where ``where`` is True. Return the new ids."""
        if where is None and self._run is not None and isinstance(ordinals, int):
            return RowIds(self._run.with_constants((kind, ordinals)))
        if where is None and self._is_filled():
            return RowIds(beside(self._pairs, pair_column(len(self), kind, ordinals)))
        widths = self._widths()
        wide = widened(self._pairs, int(widths.max(initial=2)) + 2)
        rows = np.arange(len(self)) if where is None else np.flatnonzero(where)
        wide[rows, widths[rows]] = kind
        wide[rows, widths[rows] + 1] = ordinals if where is None or isinstance(ordinals, int) else ordinals[rows]
        return RowIds(wide)

    def without_pair(self, where: Mask | None = None) -> RowIds:
        """Remove the last pair from each id, or only from the ids of rows where ``where`` is True. Return the new ids.

        Raises:
            StateMismatchError: An id has only one pair, the pair of the source row.
        """
        shorter = self._pairs.copy()
        rows = np.arange(len(self)) if where is None else np.flatnonzero(where)
        last = self._widths()[rows] - 2
        if (last <= 0).any():
            raise StateMismatchError(["a row id lacks the pair that an operator of this plan appends"], OTHER_PIPELINE)
        shorter[rows, last] = shorter[rows, last + 1] = UNUSED
        return RowIds(shorter if where is not None else shorter[:, : int(last.max(initial=2))])

    def ends_with(self, kind: int) -> Mask:
        """Return a mask of the rows whose last id pair was appended by an operator and is of kind ``kind``."""
        if self._columns == 2:
            return np.zeros(len(self), np.bool_)
        if self._run is not None and not self._run.steps[-2]:
            return np.full(len(self), self._run.first[-2] == kind)
        if self._is_filled():
            return np.asarray(self._pairs[:, -2] == kind)
        last = self._widths() - 2
        found: Mask = (self._pairs[np.arange(len(self)), last] == kind) & (last > 0)
        return found

    def any_ends_with(self, kind: int) -> bool:
        """Return True if :meth:`ends_with` is True for any row. Ids of consecutive rows need no mask for this."""
        if self._columns == 2:
            return False
        if self._run is not None and not self._run.steps[-2]:
            return self._run.first[-2] == kind and len(self) > 0
        return bool(self.ends_with(kind).any())

    def last_ordinals(self) -> Numbers:
        """Return the second number of the last id pair of each row."""
        return self._pairs[np.arange(len(self)), self._widths() - 1]

    def join(self, right: RowIds) -> RowIds:
        """Combine each id of ``self`` with the corresponding id of ``right`` into one id."""
        if self._run is not None and right._run is not None:
            return RowIds(self._run.beside(right._run).with_constants((JOINED, right._columns)))
        if self._is_filled() and right._is_filled():
            return RowIds(joined_columns(self._pairs, right._pairs, JOINED))
        left_widths, right_widths = self._widths(), right._widths()
        ends = left_widths + right_widths
        joined = np.full((len(self), int(ends.max(initial=4)) + 2), UNUSED, np.int64)
        columns = np.arange(joined.shape[1])
        is_left = columns < left_widths[:, None]
        joined[is_left] = self._pairs[used(self._pairs, left_widths)]
        joined[~is_left & (columns < ends[:, None])] = right._pairs[used(right._pairs, right_widths)]
        rows = np.arange(len(self))
        joined[rows, ends], joined[rows, ends + 1] = JOINED, right_widths
        return RowIds(joined)

    def join_one(self, right: RowIds) -> RowIds:
        """Combine each id of ``self`` with the only id of ``right``. See :meth:`join`."""
        if self._run is not None and right._is_filled():
            return RowIds(self._run.with_constants((*right._numbers(0), JOINED, right._columns)))
        if self._is_filled() and right._is_filled():
            return RowIds(joined_columns(self._pairs, right._pairs, JOINED))
        return self.join(right.take(np.zeros(len(self), np.int64)))

    def split(self) -> tuple[RowIds, RowIds]:
        """Undo :meth:`join`: return the left ids and the right ids.

        Raises:
            StateMismatchError: An id is not the result of :meth:`join`.
        """
        widths, right_widths = self._widths(), self.last_ordinals()
        ends = widths - 2
        starts = ends - right_widths
        if not self.ends_with(JOINED).all() or ((right_widths < 2) | (right_widths % 2 == 1) | (starts < 2)).any():
            raise StateMismatchError(["a row id does not combine two rows, as this plan requires"], OTHER_PIPELINE)
        columns = np.arange(self._pairs.shape[1])
        left = np.where(columns < starts[:, None], self._pairs, UNUSED)
        right = np.full((len(self), int(right_widths.max(initial=2))), UNUSED, np.int64)
        is_right = (columns >= starts[:, None]) & (columns < ends[:, None])
        right[used(right, right_widths)] = self._pairs[is_right]
        return RowIds(left[:, : int(starts.max(initial=2))]), RowIds(right)

    def _widths(self) -> Numbers:
        """Return the number of array columns that the id of each row uses."""
        if self._is_filled():
            return np.full(len(self), self._columns, np.int64)
        widths: Numbers = 2 * (self._pairs[:, ::2] != UNUSED).sum(axis=1)
        return widths

    def _is_filled(self) -> bool:
        """Return True if the array of ids contains no padding."""
        return self._columns == 2 or self._run is not None or bool((self._pairs[:, -2] != UNUSED).all())

    @property
    def _columns(self) -> int:
        return self._pairs.shape[1] if self._run is None else len(self._run.first)

    def _numbers(self, row: int) -> Sequence[int]:
        """Return the numbers of one row, with padding."""
        return self._run.at_row(row) if self._array is None else self._array[row].tolist()  # type: ignore[union-attr]

    def _column(self, column: int) -> Numbers:
        return self._pairs[:, column] if self._array is not None else self._run.column(column)  # type: ignore[union-attr]
