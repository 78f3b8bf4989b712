"""Names of rows as numbers that are the same in every run: what a hash of the stream is made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.origins import SPLIT_BITS, SPLIT_MASK, Origins
from aiostream_data.lineage import NO_PAIR, Ids

_PAIR = np.uint64(0xD6E8FEB86659FD93)
_SOURCE, _EPOCH, _WORD = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 2**64


class RowNames:
    """Names of the rows of one engine; see :class:`aiostream_data.metrics.stream_hash.Names`."""

    of_split = 0x9E3779B97F4A7C15

    def __init__(self, origins: Origins) -> None:
        self._origins = origins

    def salt_of(self, source: int) -> int:
        """Return a word for a run of a source: its place in the plan, and the epoch."""
        space = self._origins.namespace(source)
        return (space.source * _SOURCE + space.epoch * _EPOCH) % _WORD

    def salts_of(self, ids: Ids) -> NDArray[np.uint64]:
        """Return a word per row for everything in its id but the ordinal: source, epoch, split, and further pairs."""
        numbers = ids[:, 0] >> SPLIT_BITS
        splits = (ids[:, 0] & SPLIT_MASK).astype(np.uint64)
        found, which = np.unique(numbers, return_inverse=True)
        table = np.array([self.salt_of(number) for number in found.tolist()], np.uint64)
        salts: NDArray[np.uint64] = table[which.reshape(-1)] + splits * np.uint64(self.of_split)
        for column in range(3, ids.shape[1], 2):
            pairs = salts * _PAIR + ids[:, column].astype(np.uint64)
            salts = np.where(ids[:, column - 1] == NO_PAIR, salts, pairs)
        return salts
