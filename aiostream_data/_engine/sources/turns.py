"""Shards of one era in the order in which a run opens them. Saved positions need nothing else of a finished run."""

from __future__ import annotations

from collections.abc import Sequence

from aiostream_data.rows.records import ShardRef


class Turns:
    """Shards of one era (shards that were listed together) that one run reads.

    Args:
        numbers: Shard numbers, in the order in which the source opens the shards.
        first: Number of shards of the era that come before the shards in ``numbers``.
        listed: Shards by number, if some of them may be missing. Missing shards have no turn.
    """

    __slots__ = ("_numbers", "_places", "first")

    def __init__(self, numbers: Sequence[int], first: int, listed: Sequence[ShardRef | None] | None = None) -> None:
        self._numbers = numbers
        self._places: Sequence[int] = range(len(numbers))
        if listed is not None:
            self._places = [place for place in self._places if listed[numbers[place]] is not None]
        self.first = first

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, turn: int) -> int:
        """Return the number of the shard that is opened at ``turn``."""
        return self._numbers[self._places[turn]]

    def next_after(self, given: int) -> int:
        """Return the position in the era's shard order after this run has opened ``given`` shards."""
        return self.first + (self._places[given - 1] + 1 if given else 0)

    def left(self, given: int) -> list[int]:
        """Return the shards that are still unopened after this run has opened ``given`` shards."""
        return [self._numbers[place] for place in self._places[given:]]
