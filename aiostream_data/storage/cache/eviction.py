"""Which pieces to give up for new ones: rather those of objects that were used long ago; pure.

A pass over more than the cache holds would find nothing at all if what was used longest ago went first: each object
would go just before it is read again. So objects are drawn, with chances that grow with the time since they were used.
What a pass reads again survives in part, and what nobody uses any more soon is the most likely to go.
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
    """What a cache holds of one object.

    Attributes:
        age: Time since it was used, in any unit.
        spans: Its pieces, ascending.
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
    """Return pieces whose removal frees ``need`` bytes; None, and so nothing is removed, when that cannot be had.

    Args:
        objects: Everything that is held.
        need: Bytes; none are removed for 0 or less.
        pinned: Keys of objects that are being read now.
        draw: Uniform in [0, 1). It decides nothing about rows, and so has no seed.
    """
    chosen: list[tuple[str, ByteSpan]] = []
    if need <= 0:
        return chosen
    # The first of several exponential times is each one's with the chance that its rate has among all of them.
    due = {held: -math.log(1 - draw()) / max(1.0, held.age) for held in objects if held.key not in pinned}
    for held in sorted(due, key=lambda held: (due[held], held.key)):
        for span in held.spans:
            chosen.append((held.key, span))
            need -= disk_nbytes(span)
            if need <= 0:
                return chosen
    return None
