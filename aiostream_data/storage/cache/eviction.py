"""Which pieces to give up for new ones: those of the objects that were used longest ago; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from aiostream_data.storage.cache.piece_file import disk_nbytes
from aiostream_data.storage.cache.spans import Span


@dataclass(frozen=True, slots=True)
class Held:
    """What a cache holds of one object.

    Attributes:
        used: Greater than that of objects used before.
        spans: Its pieces, ascending.
    """

    key: str
    used: int
    spans: tuple[Span, ...]

    @property
    def nbytes(self) -> int:
        return sum(map(disk_nbytes, self.spans))


def victims(objects: Iterable[Held], need: int, pinned: Collection[str]) -> list[tuple[str, Span]] | None:
    """Return pieces whose removal frees ``need`` bytes; None, and so nothing is removed, when that cannot be had.

    Args:
        objects: Everything that is held.
        need: Bytes; none are removed for 0 or less.
        pinned: Keys of objects that are being read now.
    """
    chosen: list[tuple[str, Span]] = []
    if need <= 0:
        return chosen
    for held in sorted(objects, key=lambda held: (held.used, held.key)):
        if held.key in pinned:
            continue
        for span in held.spans:
            chosen.append((held.key, span))
            need -= disk_nbytes(span)
            if need <= 0:
                return chosen
    return None
