"""Numbers of a source's shards in epochs that began before its list of shards changed.

How this works. Positions, row ids and random draws refer to a shard by its number, which is its place in the list. If
the list changes during an epoch, that epoch keeps its numbers: old shards keep theirs, shards that are gone leave a
gap, and new shards get the next numbers. The shards that came with one change are an *era*. Eras are read one after
another, each in an order of its own. Later epochs number the shards by their places in the new list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, pairwise
from typing import Any, Final

import numpy as np

from aiostream_data.plan.shard_match import GONE, ShardMatch
from aiostream_data.rows.records import ShardRef
from aiostream_data.state_parts import Part
from aiostream_data.transforms.packed_ids import pack, unpack

MAX_CHANGES: Final = 1 << 12
"""Most eras of an epoch, and most epochs with numbers of their own."""

MAX_PLACES: Final = 1 << 16
"""Most shards that are numbered one by one."""


@dataclass(frozen=True)
class Era:
    """The shards that came with one change of the list.

    Attributes:
        number: 0 for those that were there when the epoch began.
        first, count: Their numbers; those of shards that are gone included.
    """

    number: int
    first: int
    count: int

    @property
    def names(self) -> tuple[int, ...]:
        """What the random key of the era's order has besides that of the first one's."""
        return (self.number,) if self.number else ()


@dataclass(frozen=True)
class ShardNumbers:
    """Numbers of one source's shards in some epochs.

    Attributes:
        epoch: The last of these epochs.
        sizes: Number of shards of each era.
        places: Place in the current list of each of the first numbers, or ``GONE``; the other numbers stand for the
            other places, in order.
        changed: Shards whose content changed after their rows were read; not saved.
    """

    epoch: int
    sizes: tuple[int, ...]
    places: tuple[int, ...] = ()
    changed: frozenset[int] = frozenset()

    @property
    def eras(self) -> list[Era]:
        """The eras, in the order in which they are read."""
        sizes = zip(self.sizes, accumulate(self.sizes), strict=True)
        return [Era(number, stop - size, size) for number, (size, stop) in enumerate(sizes)]

    @property
    def total(self) -> int:
        """How many numbers there are."""
        return sum(self.sizes)

    def listed(self, shards: Sequence[ShardRef]) -> list[ShardRef | None]:
        """Return the shard of every number, of the current list; None for one that is gone."""
        return [None if place == GONE else shards[place] for place in self.all_places(len(shards))]

    def all_places(self, count: int) -> list[int]:
        """Return the place of every number in the current list, which has ``count`` shards."""
        named = set(self.places)
        others = (place for place in range(count) if place not in named)
        return [*self.places, *islice(others, self.total - len(self.places))]

    def after(self, match: ShardMatch, count: int) -> ShardNumbers:
        """Return the numbers after a change of the list, which had ``count`` shards before."""
        fresh = (match.fresh,) if match.fresh else ()
        if match.places is None:
            return replace(self, sizes=(*self.sizes, *fresh))
        places = tuple(place if place == GONE else match.place(place) for place in self.all_places(count))
        plain = places == tuple(range(len(places)))
        return replace(self, sizes=(*self.sizes, *fresh), places=() if plain else places)

    def as_state(self) -> list[Any]:
        """Return the numbers as plain data."""
        packed = pack(np.array(self.places, np.int64)[:, None]) if self.places else None
        return [self.epoch, list(self.sizes), packed]


def numbers_in(part: Part, count: int) -> list[ShardNumbers]:
    """Return the numbers that a state has for a source, of the earliest epochs first.

    Args:
        count: Number of shards of the state's list.

    Raises:
        DamagedStateError: A value is of another type, or out of its range.
    """
    found = [_read(each, count) for each in part.items(most=MAX_CHANGES)]
    if any(later.epoch <= numbers.epoch for numbers, later in pairwise(found)):
        raise part.refused("must be in the order of epochs")
    return found


def _read(part: Part, count: int) -> ShardNumbers:
    epoch, sizes, packed = part.items(3, 3)
    numbers = ShardNumbers(epoch.epoch(), tuple(size.integer() for size in sizes.items(1, MAX_CHANGES)))
    if packed.value is not None:
        try:
            places = unpack(packed.value, columns=1, max_values=MAX_PLACES)[:, 0].tolist()
        except ValueError as error:
            raise packed.refused(f"must be places of shards ({error})") from None
        alive = [place for place in places if place != GONE]
        if len(set(alive)) < len(alive) or not all(0 <= place < count for place in alive):
            raise packed.refused(f"must be different places of {count} shards")
        numbers = replace(numbers, places=tuple(places))
    if not 0 <= numbers.total - len(numbers.places) <= count - sum(place != GONE for place in numbers.places):
        raise sizes.refused(f"must not number more than {count} shards")
    return numbers
