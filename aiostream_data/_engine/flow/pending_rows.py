"""Rows that an order chose but that were not copied yet: small choices wait, so that one copy serves several.

Streams of equal chunks run out of rows one right after the other, and between two such moments the order
can give a row or two only. Each of these steps as a chunk of its own would cost every later stage a hop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.records import Chunk, gather
from aiostream_data.transforms.interleave import MergeStep

Choice = tuple[list[Chunk], list[NDArray[np.int32]], list[NDArray[np.int64]]]
"""Chunks; and for each step which of them, and which rows."""


class PickedRows:
    """Steps of an order over the chunks they choose from. Keeps those chunks, with their leases."""

    def __init__(self) -> None:
        self._count = 0
        self._chunks: list[Chunk] = []
        self._which: list[NDArray[np.int32]] = []
        self._rows: list[NDArray[np.int64]] = []

    def __len__(self) -> int:
        return self._count

    def add(self, step: MergeStep, current: Mapping[int, Chunk]) -> None:
        """Record a step; ``current`` has the chunk of each slot."""
        slots = np.flatnonzero(np.bincount(step.which)).tolist()
        table = np.zeros(slots[-1] + 1, np.int32)
        for slot in slots:
            table[slot] = self._number_of(current[slot])
        self._which.append(table[step.which])
        self._rows.append(step.rows)
        self._count += len(step)

    def _number_of(self, chunk: Chunk) -> int:
        for number, known in enumerate(self._chunks):
            if known is chunk:
                return number
        self._chunks.append(chunk)
        return len(self._chunks) - 1

    def taken(self) -> Choice:
        """Return everything that was added, and forget it; the chunks stay in memory with the choice."""
        choice = (self._chunks, self._which, self._rows)
        self._count, self._chunks, self._which, self._rows = 0, [], [], []
        return choice


def gathered(choice: Choice) -> Chunk:
    """Copy the chosen rows into one chunk; one unbroken run of one chunk needs no copy."""
    chunks, which, rows = choice[0], np.concatenate(choice[1]), np.concatenate(choice[2])
    run = unbroken_run(which, rows, chunks)
    return gather(chunks, which, rows) if run is None else run


def unbroken_run(
    which: NDArray[np.int32], rows: NDArray[np.int64], chunks: Mapping[int, Chunk] | Sequence[Chunk]
) -> Chunk | None:
    """Return the rows as a slice where all are of one chunk and follow one another, else None."""
    first, last = int(rows[0]), int(rows[-1])
    # Rows of one chunk ascend, so one chunk over the whole choice means one unbroken run.
    if last - first != len(rows) - 1 or not bool((which == which[0]).all()):
        return None
    return chunks[int(which[0])].slice(first, last + 1)
