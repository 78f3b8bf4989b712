"""Names of rows as numbers that are the same in every run: what a hash of the stream is made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.origins import SPLIT_BITS, SPLIT_MASK, Origins
from aiostream_data.lineage import NO_PAIR, Ids

_SPLIT = np.uint64(0x9E3779B97F4A7C15)
_PAIR = np.uint64(0xD6E8FEB86659FD93)
_SOURCE, _EPOCH, _WORD = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 2**64


def salts_of(origins: Origins, ids: Ids) -> NDArray[np.uint64]:
    """Return a number per row for everything in its id but the ordinal: source, epoch, split, and further pairs."""
    numbers = ids[:, 0] >> SPLIT_BITS
    splits = (ids[:, 0] & SPLIT_MASK).astype(np.uint64)
    if len(ids) and (numbers == numbers[0]).all():
        salts = np.uint64(_source_salt(origins, int(numbers[0]))) + splits * _SPLIT
    else:
        found, which = np.unique(numbers, return_inverse=True)
        table = np.array([_source_salt(origins, number) for number in found.tolist()], np.uint64)
        salts = table[which.reshape(-1)] + splits * _SPLIT
    for column in range(3, ids.shape[1], 2):
        pairs = salts * _PAIR + ids[:, column].astype(np.uint64)
        salts = np.where(ids[:, column - 1] == NO_PAIR, salts, pairs)
    return salts


def _source_salt(origins: Origins, number: int) -> int:
    space = origins.namespace(number)
    return (space.source * _SOURCE + space.epoch * _EPOCH) % _WORD
