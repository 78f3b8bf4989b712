"""Choose cached pieces to evict: at random, but preferably from objects that were not used for a long time.

If an epoch is larger than the cache, strict LRU eviction would produce no hits: each object would be evicted just
before its next read. So objects are drawn at random, with a probability that grows with the time since their last use.
Part of a data set that is read in every epoch stays cached, and unused objects are soon evicted.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from aiostream_data.storage.cache.piece_file import disk_nbytes
from aiostream_data.storage.cache.spans import ByteSpan


@dataclass(frozen=True, slots=True)
class HeldPiece:
    """Cached pieces of one object.

    Attributes:
        key: Cache key of the object.
        age: Time since the object was last used, in any unit.
        spans: Byte ranges of the pieces, ascending.
    """

    key: str
    age: float
    spans: tuple[ByteSpan, ...]

    @property
    def nbytes(self) -> int:
        return sum(map(disk_nbytes, self.spans))


def victims(
    objects: Iterable[HeldPiece], need: int, pinned: Collection[str], draw: Callable[[], float] = random.random
) -> list[tuple[str, ByteSpan]] | None:
    """Choose pieces whose removal frees ``need`` bytes. Return None if all unpinned pieces together are too small.

    Args:
        objects: All cached objects.
        need: Bytes to free. If ``need`` is 0 or less, no piece is chosen.
        pinned: Keys of objects that are being read and must not be evicted.
        draw: Function that returns random numbers, uniform in [0, 1). The random numbers do not affect rows, so they
            need no seed.
    """
    chosen: list[tuple[str, ByteSpan]] = []
    if need <= 0:
        return chosen
    # Weighted sampling without replacement: order objects by exponential random times whose rate is their age.
    due = {held: -math.log(1 - draw()) / max(1.0, held.age) for held in objects if held.key not in pinned}
    for held in sorted(due, key=lambda held: (due[held], held.key)):
        for span in held.spans:
            chosen.append((held.key, span))
            need -= disk_nbytes(span)
            if need <= 0:
                return chosen
    return None
