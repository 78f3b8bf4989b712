"""Buffer for rows of a stream, which are retrieved by row number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.records import Chunk, gather, same_layout

Numbers = NDArray[np.int64]


@dataclass(slots=True)
class _Part:
    """Chunk with the ascending numbers of its rows. ``is_own`` is True if the buffer owns the memory of the chunk."""

    chunk: Chunk
    numbers: Numbers
    is_own: bool

    def positions(self, numbers: Numbers) -> Numbers:
        return np.searchsorted(self.numbers, numbers)


class HeldRows:
    """Buffer of rows, which are numbered in order of arrival. Not thread-safe.

    The buffer only borrows pushed chunks. :meth:`keep` copies the rows to keep and drops all references to the chunks.
    After :meth:`keep`, memory use is proportional to the number of kept rows.

    Args:
        first: Number of the first row in the buffer.
    """

    def __init__(self, first: int = 0) -> None:
        self._parts: list[_Part] = []
        self._next = first
        self._nbytes = 0

    def __len__(self) -> int:
        return sum(len(part.numbers) for part in self._parts)

    @property
    def nbytes(self) -> int:
        """Total size of the kept rows in bytes. The size of list elements in these rows is an estimate."""
        return self._nbytes

    def push(self, chunk: Chunk) -> None:
        """Add the rows of ``chunk`` to the buffer.

        The buffer references the chunk until the next call of :meth:`keep`.
        """
        if len(chunk):
            self._parts.append(_Part(chunk, np.arange(self._next, self._next + len(chunk)), False))
            self._next += len(chunk)

    def take(self, numbers: Numbers) -> Chunk:
        """Return the rows with these numbers, in the order of the numbers. All requested rows must be in the buffer.

        Dense columns are copied. Variable-length columns of the result can share the memory of a borrowed chunk.
        """
        last = np.array([part.numbers[-1] for part in self._parts])
        which = np.searchsorted(last, numbers)
        used, which = np.unique(which, return_inverse=True)
        parts = [self._parts[k] for k in used.tolist()]
        if len(parts) == 1:
            lone: Chunk = parts[0].chunk
            return lone.take(parts[0].positions(numbers))
        rows = np.empty(len(numbers), np.int64)
        for k, part in enumerate(parts):
            mine = which == k
            rows[mine] = part.positions(numbers[mine])
        return gather([part.chunk for part in parts], which.astype(np.int32), rows)

    def keep(self, numbers: Numbers) -> None:
        """Discard all buffered rows except those with these ascending numbers.

        Kept rows are copied if their chunk is only borrowed.
        """
        kept = (_kept(part, _inside(numbers, part)) for part in self._parts)
        self._parts = _merged([part for part in kept if part is not None])
        self._nbytes = sum(part.chunk.nbytes for part in self._parts)


def _inside(numbers: Numbers, part: _Part) -> Numbers:
    start, stop = np.searchsorted(numbers, (part.numbers[0], part.numbers[-1] + 1))
    return numbers[start:stop]


def _kept(part: _Part, numbers: Numbers) -> _Part | None:
    """Reduce a part of the buffer to the rows with these numbers.

    Return None if ``numbers`` is empty. Return the complete part if the buffer owns its memory and most of its rows are
    kept.
    """
    if not len(numbers):
        return None
    if part.is_own and 2 * len(numbers) > len(part.numbers):
        return part
    return _copied([part], numbers)


def _merged(parts: Sequence[_Part]) -> list[_Part]:
    """Merge small adjacent parts of one layout until each part has more than twice as many rows as the next part."""
    merged: list[_Part] = []
    for part in parts:
        merged.append(part)
        while len(merged) > 1 and len(merged[-2].numbers) <= 2 * len(merged[-1].numbers):
            if not same_layout([merged[-2].chunk, merged[-1].chunk]):
                break
            both = merged[-2:]
            merged[-2:] = [_copied(both, np.concatenate([one.numbers for one in both]))]
    return merged


def _copied(parts: Sequence[_Part], numbers: Numbers) -> _Part:
    which = np.searchsorted([part.numbers[-1] for part in parts], numbers)
    rows = np.concatenate([part.positions(_inside(numbers, part)) for part in parts])
    return _Part(gather([part.chunk for part in parts], which.astype(np.int32), rows), numbers, True)
