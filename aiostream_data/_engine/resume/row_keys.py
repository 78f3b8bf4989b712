"""Stable names of rows: row ids converted to numbers that are the same in every run of a plan.

Namespace numbers in row ids depend on the order in which source runs start. Instead of a namespace number, a stable
name contains the name of the source, the epoch and the split inside the source. Random draws and the stream hash depend
only on stable names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.resume.origins import Origins
from aiostream_data.rows.id_arrays import SPLIT_BITS, SPLIT_MASK
from aiostream_data.rows.row_ids import PADDING, RowIds
from aiostream_data.transforms.randomness import key_of

Stable = Callable[[int], tuple[int, int, int]]
"""Function that maps the split number of a row id to (source, epoch, split inside the source)."""

_PAIR = np.uint64(0xD6E8FEB86659FD93)
_KIND = np.uint64(0xA24BAED4963EE407)
_MOST_KNOWN = 4096
_FEW_ROWS = 64  # looking up the source of each row takes less time than finding the distinct ones
_SOURCE, _EPOCH, _WORD = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 2**64


def expression(numbers: Sequence[int], stable: Stable) -> Iterator[int]:
    """Yield the numbers that form the stable name of a row.

    A padding row has the same name as the row that it repeats, so functions draw equal random values for both rows.

    Args:
        numbers: Numbers of one row id, without padding; see :meth:`.RowIds.tolist`.
    """
    for split, ordinal in zip(numbers[::2], numbers[1::2], strict=True):
        if split >> SPLIT_BITS:
            yield from stable(split)
            yield ordinal
        elif split != PADDING:
            yield split
            yield ordinal


class StableTable(dict[int, tuple[int, int, int]]):
    """Table of stable names, for a process that has no :class:`~aiostream_data._engine.resume.origins.Origins`."""

    def __call__(self, split: int) -> tuple[int, int, int]:
        return self[split]


def stable_table(stable: Stable, ids: RowIds) -> StableTable:
    """Call ``stable`` for each split in ``ids`` and return a table of the results."""
    splits = {split for pair in ids.pairs() for split in np.unique(pair.splits).tolist()}
    return StableTable({split: stable(split) for split in splits if split >> SPLIT_BITS > 0})


class RngStream(NamedTuple):
    """Key and position of one row's random numbers; see :class:`.RecordGenerator`."""

    key: np.uint64
    split: int
    ordinal: int


def rng_names(numbers: Sequence[int], stable: Stable) -> tuple[tuple[int, ...], int, int]:
    """Return the part of the stable name that all rows of the split share, then the split, then the ordinal."""
    source, epoch, split = stable(numbers[0])
    return (source, epoch, *expression(numbers[2:], stable)), split, numbers[1]


def rng_stream(key: np.uint64, numbers: Sequence[int], stable: Stable) -> RngStream:
    """Return the random stream of one row for one user function; ``key`` is the random key of this function."""
    names, split, ordinal = rng_names(numbers, stable)
    return RngStream(key_of(int(key), *names), split, ordinal)


def _only(numbers: NDArray[np.int64]) -> int | None:
    """Return the number that all entries of an array are, or None if they differ or there are none."""
    return int(numbers[0]) if len(numbers) and (numbers == numbers[0]).all() else None


class RowNames:
    """Hash words for the stable names of an engine's rows; see :class:`aiostream_data.metrics.stream_hash.Names`."""

    of_split = 0x9E3779B97F4A7C15

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._known: dict[int, tuple[np.uint64, np.uint64]] = {}  # of the runs that are looked up again and again

    def salt_of(self, source: int) -> int:
        """Return a 64-bit hash word for a run of a source, computed from the source's name and the epoch."""
        name, epoch = self._origins.name_of_namespace(source)
        return (name * _SOURCE + epoch * _EPOCH) % _WORD

    def salts_of(self, ids: RowIds) -> NDArray[np.uint64]:
        """Return a 64-bit hash word for each row, computed from its stable name except the first ordinal."""
        if len(ids) > 1 and ids.run_of_split() is not None:
            return np.full(len(ids), self.salts_of(ids.row(0))[0])
        first, *others = ids.pairs()
        salts = self._words(first.splits)
        for pair in others:
            kind = _only(pair.splits)
            if kind is None:
                words = self._words(pair.splits) + pair.ordinals.astype(np.uint64)
                counts = pair.exists & (pair.splits != PADDING)
                salts = np.where(counts, salts * _PAIR + words, salts)
            elif kind >= 0 and kind != PADDING:
                salts *= _PAIR
                salts += pair.ordinals.view(np.uint64)
                salts += self._words(pair.splits[:1])
        return salts

    def _words(self, splits: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return a 64-bit hash word for each split, computed from the source's name or from the kind of operator."""
        if len(splits) > 1 and _only(splits) is not None:  # as those of one file
            return np.repeat(self._words(splits[:1]), len(splits))
        numbers = splits >> SPLIT_BITS
        inside = (splits & SPLIT_MASK).astype(np.uint64)
        if not len(numbers):
            return inside
        if (numbers == numbers[0]).all():  # as those of one source
            salt, factor = self._salt_and_factor(int(numbers[0]))
            return inside * factor + salt
        if len(numbers) <= _FEW_ROWS:
            found, which = numbers, np.arange(len(numbers))
        else:
            found, which = np.unique(numbers, return_inverse=True)
        pairs = [self._known.get(number) or self._salt_and_factor(number) for number in found.tolist()]
        table, factors = (np.array(column, np.uint64)[which.reshape(-1)] for column in zip(*pairs, strict=True))
        words: NDArray[np.uint64] = table + inside * factors
        return words

    def _salt_and_factor(self, number: int) -> tuple[np.uint64, np.uint64]:
        pair = (np.uint64(self.salt_of(number)), np.uint64(self.of_split)) if number > 0 else (np.uint64(0), _KIND)
        if len(self._known) == _MOST_KNOWN:
            self._known.clear()
        self._known[number] = pair
        return pair
