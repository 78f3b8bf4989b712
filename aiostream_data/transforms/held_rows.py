"""Hold rows of a stream until they are asked for by their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.records import Chunk, gather, same_layout

Numbers = NDArray[np.int64]


@dataclass(slots=True)
class _Part:
    """Rows of a chunk that carry these ascending numbers; ``is_own`` when nobody else has their memory."""

    chunk: Chunk
    numbers: Numbers
    is_own: bool

    def positions(self, numbers: Numbers) -> Numbers:
        return np.searchsorted(self.numbers, numbers)


class HeldRows:
    """Rows numbered in the order in which they came. Not thread-safe.

    Between two pushes nothing of an incoming chunk is kept: :meth:`keep` copies what stays, and forgets
    the rest. What is held is in proportion to the rows that are kept.

    Args:
        first: Number of the row that comes first.
    """

    def __init__(self, first: int = 0) -> None:
        self._parts: list[_Part] = []
        self._next = first
        self._nbytes = 0

    def __len__(self) -> int:
        return sum(len(part.numbers) for part in self._parts)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that were kept; a list's elements are estimated."""
        return self._nbytes

    def push(self, chunk: Chunk) -> None:
        """Lend rows until the next :meth:`keep`."""
        if len(chunk):
            self._parts.append(_Part(chunk, np.arange(self._next, self._next + len(chunk)), False))
            self._next += len(chunk)

    def take(self, numbers: Numbers) -> Chunk:
        """Return these rows, in this order; all must be held.

        Dense columns are new memory; variable ones may share that of a lent chunk.
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
        """Forget all rows but these, ascending and all held; what is kept of lent chunks is copied."""
        kept = (_kept(part, _inside(numbers, part)) for part in self._parts)
        self._parts = _merged([part for part in kept if part is not None])
        self._nbytes = sum(part.chunk.nbytes for part in self._parts)


def _inside(numbers: Numbers, part: _Part) -> Numbers:
    start, stop = np.searchsorted(numbers, (part.numbers[0], part.numbers[-1] + 1))
    return numbers[start:stop]


def _kept(part: _Part, numbers: Numbers) -> _Part | None:
    """Return the part with these of its rows at least, or None when there are none."""
    if not len(numbers):
        return None
    if part.is_own and 2 * len(numbers) > len(part.numbers):
        return part
    return _copied([part], numbers)


def _merged(parts: Sequence[_Part]) -> list[_Part]:
    """Return the same rows in few parts: each of one layout has more than twice the rows of the next."""
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
