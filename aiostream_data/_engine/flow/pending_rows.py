"""Rows that a merge has chosen but not yet copied. The merge collects small choices of rows and copies them together.

When several streams have chunks of equal length, these chunks run out of rows at almost the same time. While chunks run
out of rows, the merge can choose only one or two rows at a time. If each choice became a separate chunk, every later
stage would need a separate call on a worker for each chunk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.rows.lent_memory import LendsMemory
from aiostream_data.rows.records import Chunk, gather
from aiostream_data.transforms.interleave import MergeStep

Choice = tuple[list[Chunk], list[NDArray[np.int32]], list[NDArray[np.int64]]]
"""Rows that a merge has chosen: chunks and, for each step, the chunk numbers and the row numbers."""


class PickedRows:
    """Rows that a merge has chosen: the steps of the merge, and the chunks that contain the rows.

    The object keeps these chunks and their memory leases alive.
    """

    def __init__(self) -> None:
        self._count = 0
        self._chunks: list[Chunk] = []
        self._numbers: dict[int, int] = {}  # number of each chunk, by its identity
        self._which: list[NDArray[np.int32]] = []
        self._rows: list[NDArray[np.int64]] = []
        self._since = 0.0

    def __len__(self) -> int:
        return self._count

    def held_s(self) -> float:
        """Return the time in seconds since the first of the recorded steps; 0 if there are none."""
        return perf_counter() - self._since if self._count else 0.0

    def add(self, step: MergeStep, current: Mapping[int, Chunk]) -> None:
        """Record a step of the merge; ``current`` maps each input slot to its chunk."""
        if not self._count:
            self._since = perf_counter()
        slots = _native.distinct(step.which, max(current) + 1)
        table = np.zeros(slots[-1] + 1, np.int32)
        for slot in slots:
            table[slot] = self._number_of(current[slot])
        self._which.append(_native.renumbered(step.which, table))
        self._rows.append(step.rows)
        self._count += len(step)

    def _number_of(self, chunk: Chunk) -> int:
        number = self._numbers.setdefault(id(chunk), len(self._chunks))
        if number == len(self._chunks):
            self._chunks.append(chunk)
        return number

    def taken(self) -> Choice:
        """Return all recorded steps, and clear the record. The returned choice keeps the chunks in memory."""
        choice = (self._chunks, self._which, self._rows)
        self._count, self._chunks, self._which, self._rows = 0, [], [], []
        self._numbers = {}
        return choice


def gathered(choice: Choice, pool: LendsMemory | None = None) -> Chunk:
    """Copy all chosen rows into one chunk.

    If the rows are consecutive rows of one chunk, return a slice of that chunk without a copy.

    Args:
        pool: Pool of memory for large ``bytes`` rows; see :func:`.gather_column`.
    """
    chunks, which, rows = choice[0], np.concatenate(choice[1]), np.concatenate(choice[2])
    run = unbroken_run(which, rows, chunks)
    return gather(chunks, which, rows, pool) if run is None else run


def run_of(step: MergeStep, chunks: Mapping[int, Chunk]) -> Chunk | None:
    """Return a slice if the rows of a step are consecutive rows of one chunk, otherwise None."""
    if not step.is_run:
        return unbroken_run(step.which, step.rows, chunks)
    first = int(step.rows[0])
    return chunks[int(step.which[0])].slice(first, first + len(step))


def unbroken_run(
    which: NDArray[np.int32], rows: NDArray[np.int64], chunks: Mapping[int, Chunk] | Sequence[Chunk]
) -> Chunk | None:
    """Return a slice if the rows are consecutive rows of one chunk, otherwise None."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first != len(rows) - 1 or _native.first_breaks(which, rows, 1):
        return None
    return chunks[int(which[0])].slice(first, last + 1)
