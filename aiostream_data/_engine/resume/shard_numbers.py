"""Shard numbers of a source in epochs that began before the shard list changed.

How this works. Positions, row ids and random draws identify a shard by its number, which is its position in the shard
list. If the shard list changes during an epoch, old shards keep their numbers in this epoch. The numbers of removed
shards remain unused, and new shards get the next numbers. The shards that one change of the list adds are called an
*era*. Eras are read one after another, and each era has its own order of shards. In later epochs, the number of a shard
is its position in the new list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, pairwise
from typing import Any, Final

import numpy as np

from aiostream_data.plan.shard_match import GONE, ShardMatch
from aiostream_data.rows.records import ShardRef
from aiostream_data.state_fields import Part
from aiostream_data.transforms.packed_ids import pack, unpack

MAX_CHANGES: Final = 1 << 12
"""Maximum number of eras in an epoch, and maximum number of epochs with separate shard numbers."""

MAX_PLACES: Final = 1 << 16
"""A saved state lists at most this many shard numbers one by one."""


@dataclass(frozen=True)
class Era:
    """Era: the shards that one change of the shard list added to an epoch in progress.

    Attributes:
        number: Number of the era; 0 for the shards that were listed when the epoch began.
        first, count: First shard number of the era, and total number of shards in the era. ``count`` includes missing
            shards.
    """

    number: int
    first: int
    count: int

    @property
    def names(self) -> tuple[int, ...]:
        """Additional names for the random key that determines the era's shard order; empty for the first era."""
        return (self.number,) if self.number else ()


@dataclass(frozen=True)
class ShardNumbers:
    """Shard numbers of one source for a range of epochs.

    Attributes:
        epoch: The last epoch of the range.
        sizes: Number of shards in each era.
        places: Positions in the current list for the first shard numbers. ``GONE`` means that the shard is missing. The
            other shard numbers refer, in order, to the positions that ``places`` does not contain.
        changed: Numbers of shards whose content changed after their rows were read. A saved state does not contain this
            set.
    """

    epoch: int
    sizes: tuple[int, ...]
    places: tuple[int, ...] = ()
    changed: frozenset[int] = frozenset()

    @property
    def eras(self) -> list[Era]:
        """Eras in reading order."""
        sizes = zip(self.sizes, accumulate(self.sizes), strict=True)
        return [Era(number, stop - size, size) for number, (size, stop) in enumerate(sizes)]

    @property
    def total(self) -> int:
        """Total number of shard numbers, including the numbers of missing shards."""
        return sum(self.sizes)

    def listed(self, shards: Sequence[ShardRef]) -> list[ShardRef | None]:
        """Return one entry per shard number: the shard from the current list, or None if the shard is missing."""
        return [None if place == GONE else shards[place] for place in self.all_places(len(shards))]

    def all_places(self, count: int) -> list[int]:
        """Return one entry per shard number: the position in the current list of ``count`` shards, or ``GONE``."""
        named = set(self.places)
        others = (place for place in range(count) if place not in named)
        return [*self.places, *islice(others, self.total - len(self.places))]

    def after(self, match: ShardMatch, count: int) -> ShardNumbers:
        """Return the shard numbers after a change of the shard list.

        ``count`` is the number of shards in the old list.
        """
        fresh = (match.fresh,) if match.fresh else ()
        if match.places is None:
            return replace(self, sizes=(*self.sizes, *fresh))
        places = tuple(place if place == GONE else match.place(place) for place in self.all_places(count))
        plain = places == tuple(range(len(places)))
        return replace(self, sizes=(*self.sizes, *fresh), places=() if plain else places)

    def as_state(self) -> list[Any]:
        """Serialize to JSON-compatible data."""
        packed = pack(np.array(self.places, np.int64)[:, None]) if self.places else None
        return [self.epoch, list(self.sizes), packed]


def numbers_in(part: Part, count: int) -> list[ShardNumbers]:
    """Read the shard numbers of a source from a saved state, earliest epoch first.

    Args:
        count: Number of shards in the saved shard list.

    Raises:
        DamagedStateError: A value in the state is of the wrong type or out of range.
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
            raise packed.refused(f"must be indices of shards ({error})") from None
        alive = [place for place in places if place != GONE]
        if len(set(alive)) < len(alive) or not all(0 <= place < count for place in alive):
            raise packed.refused(f"must be different indices of {count} shards")
        numbers = replace(numbers, places=tuple(places))
    if not 0 <= numbers.total - len(numbers.places) <= count - sum(place != GONE for place in numbers.places):
        raise sizes.refused(f"must not number more than {count} shards")
    return numbers
