"""Build ragged leaves without copying their values. The consumer copies the values to their destination."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.parts import Parts, may_be_in_parts
from aiostream_data.rows.ragged import RaggedArray, trusted_ragged

PIECE_NBYTES: Final = 4 << 10
"""Minimum mean size of a piece in bytes for building a leaf from pieces.

For smaller pieces, the overhead of pieces exceeds the cost of one copy.
"""


def ragged_in_parts(columns: Sequence[VarColumn]) -> RaggedArray | None:
    """Combine columns of kind ``array`` into one ragged array whose values are :class:`Parts`.

    Adjacent rows in memory form one piece. The ragged array keeps the memory of the columns alive.

    Returns:
        The ragged array, or None if the pieces would be smaller than :data:`PIECE_NBYTES` on average, or of a type that
        devices do not store.
    """
    if not may_be_in_parts(columns[0].values.dtype, for_device=True):
        return None
    runs = [_runs(column) for column in columns]
    count = sum(len(firsts) for firsts, _ in runs)
    row_nbytes = columns[0].values.itemsize * int(np.prod(columns[0].values.shape[1:], dtype=np.int64))
    lengths = np.concatenate([column.lengths for column in columns])
    if count > 1 and int(lengths.sum()) * row_nbytes < count * PIECE_NBYTES:
        return None
    splits = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    pieces = tuple(piece for pair in zip(columns, runs, strict=True) for piece in _pieces(*pair))
    values: Any = Parts(pieces or (columns[0].values[:0],))
    return trusted_ragged(values, splits)


def _runs(column: VarColumn) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the start and stop positions of runs of rows whose values are adjacent in memory.

    Empty rows are skipped.
    """
    some = column.lengths > 0
    starts = column.starts[some]
    stops = starts + column.lengths[some]
    breaks = np.flatnonzero(starts[1:] != stops[:-1])
    firsts = np.concatenate([starts[:1], starts[1:][breaks]])
    return firsts, np.concatenate([stops[:-1][breaks], stops[-1:]])


def _pieces(column: VarColumn, runs: tuple[NDArray[np.int64], NDArray[np.int64]]) -> Iterator[NDArray[Any]]:
    for start, stop in zip(runs[0].tolist(), runs[1].tolist(), strict=True):
        yield column.values[start:stop]
