"""Known byte offsets of records in their shards. With these offsets, a reader can start in the middle of a shard."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.resume.origins import Hint


class ShardOffsets:
    """Table of record numbers and byte offsets for the shards of one source.

    Safe from any thread. The table uses 16 bytes per chunk read. The table has no entries for compressed shards,
    because a reader must decompress a compressed shard from its start.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[array[int], array[int]]] = {}
        self._starts = bytearray()  # by split: 1 if the first record is known to begin at byte 0
        self._checked: set[tuple[int, str]] = set()
        self._lock = Lock()

    def was_checked(self, split: int, version: str) -> bool:
        """Return True if all bytes of the given version of a shard passed verification."""
        return bool(version) and (split, version) in self._checked

    def note_checked(self, split: int, version: str) -> None:
        """Record that all bytes of the given version of a shard passed verification."""
        self._checked.add((split, version))

    def learn(self, split: int, ordinal: int, offset: int) -> None:
        """Store the byte offset at which record ``ordinal`` of a shard begins."""
        with self._lock:
            ordinals, offsets = self._known.setdefault(split, (array("q"), array("q")))
            place = bisect_right(ordinals, ordinal)
            if place and ordinals[place - 1] == ordinal:
                return
            ordinals.insert(place, ordinal)
            offsets.insert(place, offset)

    def learn_starts(self, splits: NDArray[np.int64]) -> None:
        """Record that these shards are uncompressed: their first records begin at byte 0. Takes one byte per shard."""
        with self._lock:
            missing = int(splits.max(initial=-1)) + 1 - len(self._starts)
            self._starts.extend(bytes(max(0, missing)))
            np.frombuffer(self._starts, np.uint8)[splits] = 1

    def learn_all(self, hints: Iterable[Hint]) -> None:
        """Add all record offsets stored in a saved state to the table."""
        for hint in hints:
            self.learn(*hint)

    def before(self, split: int, ordinal: int) -> Hint:
        """Return the last known offset at or before record ``ordinal``, or the start of the shard."""
        with self._lock:
            ordinals, offsets = self._known.get(split, ((), ()))
            place = bisect_right(ordinals, ordinal) - 1
            return Hint(split, ordinals[place], offsets[place]) if place >= 0 else Hint(split, 0, 0)

    def behind(self, split: int, ordinal: int) -> Hint | None:
        """Return the first known byte offset of a record after record ``ordinal``, or None."""
        with self._lock:
            ordinals, offsets = self._known.get(split, ((), ()))
            place = bisect_right(ordinals, ordinal)
            return Hint(split, ordinals[place], offsets[place]) if place < len(ordinals) else None

    def locate(self, splits: NDArray[np.int64], ordinals: NDArray[np.int64]) -> Sequence[Hint]:
        """Return the last known offset at or before each given record, without duplicates."""
        found: list[Hint] = []
        for split, some in _by_split(splits, ordinals):
            with self._lock:
                known, offsets = self._known.get(split) or self._start_of(split)
                if len(known) == 1 and known[0] == 0:  # as for nearly all shards
                    found.append(Hint(split, 0, offsets[0]))
                    continue
                places = np.searchsorted(_as_array(known), some, side="right")
                is_needed = np.zeros(len(known) + 1, np.bool_)
                is_needed[places] = True
                needed = np.flatnonzero(is_needed[1:]).tolist()
                found += [Hint(split, known[place], offsets[place]) for place in needed]
        return found

    def _start_of(self, split: int) -> tuple[Sequence[int], Sequence[int]]:
        is_known = split < len(self._starts) and self._starts[split]
        return ((0,), (0,)) if is_known else ((), ())


def _by_split(splits: NDArray[np.int64], ordinals: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each split with the ordinals of its rows, in the order of the splits."""
    if not len(splits):
        return
    numbers = splits - splits.min()
    most = int(numbers.max())
    if most:  # NumPy sorts integers of 16 bits many times as fast as others
        order = np.argsort(numbers.astype(np.uint16) if most < 1 << 16 else numbers, kind="stable")
        splits, ordinals = splits[order], ordinals[order]
    bounds = [0, *(np.flatnonzero(np.diff(splits)) + 1).tolist(), len(splits)]
    for start, stop in pairwise(bounds):
        yield int(splits[start]), ordinals[start:stop]


def _as_array(ordinals: Sequence[int]) -> NDArray[np.int64]:
    """Return ordinals as an array. An ``array`` is not copied, and cannot grow while the result exists."""
    return (
        np.frombuffer(ordinals, np.int64) if isinstance(ordinals, array) and ordinals else np.array(ordinals, np.int64)
    )
