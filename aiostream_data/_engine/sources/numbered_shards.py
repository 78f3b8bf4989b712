"""The shards of one run of a source, by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from aiostream_data._engine.resume.shard_numbers import Era, ShardNumbers
from aiostream_data.errors import ShardGoneError, StateMismatchError
from aiostream_data.rows.records import ShardRef
from aiostream_data.safe_url import safe_url


@dataclass(frozen=True)
class NumberedShards:
    """The shards of one run of a source.

    Attributes:
        by_number: None for a shard that is gone.
        eras: In the order in which they are read.
        changed: Shards whose content changed after their rows were read.
        has_gaps: Some shards may be gone.
    """

    by_number: Sequence[ShardRef | None]
    eras: Sequence[Era]
    changed: frozenset[int] = frozenset()
    has_gaps: bool = False

    @classmethod
    def of(cls, shards: Sequence[ShardRef], numbers: ShardNumbers | None) -> NumberedShards:
        """Number the shards of the current list.

        Args:
            numbers: Of the epoch; None if they are the places in the list.
        """
        if numbers is None:
            return cls(shards, [Era(0, 0, len(shards))])
        return cls(numbers.listed(shards), numbers.eras, numbers.changed, bool(numbers.places))

    def __len__(self) -> int:
        return len(self.by_number)

    @property
    def present(self) -> Sequence[ShardRef]:
        """The shards that are not gone."""
        if not self.has_gaps:
            return cast(Sequence[ShardRef], self.by_number)
        return [shard for shard in self.by_number if shard is not None]

    def name(self, number: int) -> str:
        """Return the URL of a shard, or what is known of one that is gone."""
        shard = self.by_number[number]
        return f"<shard {number}, which is no longer listed>" if shard is None else shard.url

    def read_before(self, number: int) -> ShardRef:
        """Return a shard of which a state names rows.

        Raises:
            ShardGoneError: It is no longer in the list.
            StateMismatchError: It was replaced, or there is no such number.
        """
        if not 0 <= number < len(self.by_number):
            raise StateMismatchError([f"the state has rows of shard number {number}, and there are {len(self)}"])
        shard = self.by_number[number]
        if shard is None:
            raise ShardGoneError(
                [f"the state holds rows of {self._described(number)}, which is no longer listed"], _BACK
            )
        if number in self.changed:
            raise StateMismatchError(
                [f"the state holds rows of {safe_url(shard.url)}, which was changed after rows of it had been read"],
                _RESTORE,
            )
        return shard

    def _described(self, number: int) -> str:
        """Describe a shard that is gone: a state has no names of shards."""
        before = [shard for shard in self.by_number[:number] if shard is not None]
        behind = [shard for shard in self.by_number[number:] if shard is not None]
        if before:
            return f"the shard that was listed behind {safe_url(before[-1].url)} (number {number})"
        return f"the shard that was listed before {safe_url(behind[0].url)}" if behind else f"shard number {number}"


_BACK = "Put the shard back until these rows were delivered, or resume from a state that holds none of them."
_RESTORE = "Restore the old content until these rows were delivered, or give the new content another name."
