"""Shards that one run of a source reads, indexed by shard number."""

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
    """Shards of one run of a source, with the shard numbers of the saved state.

    Attributes:
        by_number: Shards by shard number; None for a shard that is no longer in the shard list.
        eras: Eras (groups of shards listed at the same time) of the epoch, in reading order.
        changed: Numbers of shards whose content changed after their rows were read.
        has_gaps: True if shards of the saved state may be missing from the shard list.
    """

    by_number: Sequence[ShardRef | None]
    eras: Sequence[Era]
    changed: frozenset[int] = frozenset()
    has_gaps: bool = False

    @classmethod
    def of(cls, shards: Sequence[ShardRef], numbers: ShardNumbers | None) -> NumberedShards:
        """Assign shard numbers to the shards of the current shard list.

        Args:
            numbers: Shard numbers of the epoch; None if these numbers equal the indices in the shard list.
        """
        if numbers is None:
            return cls(shards, [Era(0, 0, len(shards))])
        return cls(numbers.listed(shards), numbers.eras, numbers.changed, bool(numbers.places))

    def __len__(self) -> int:
        return len(self.by_number)

    @property
    def present(self) -> Sequence[ShardRef]:
        """Shards that the current shard list still contains."""
        if not self.has_gaps:
            return cast(Sequence[ShardRef], self.by_number)
        return [shard for shard in self.by_number if shard is not None]

    def name(self, number: int) -> str:
        """Return the URL of a shard, or a placeholder if the shard list no longer contains the shard."""
        shard = self.by_number[number]
        return f"<shard {number}, which is no longer listed>" if shard is None else shard.url

    def listed(self, number: int) -> ShardRef | None:
        """Return a shard, or None if the current shard list does not contain it."""
        return self.by_number[number] if 0 <= number < len(self.by_number) else None

    def read_before(self, number: int) -> ShardRef:
        """Return a shard from which the saved state contains rows.

        Raises:
            ShardGoneError: The shard is no longer in the shard list.
            StateMismatchError: The shard was replaced, or the shard number is out of range.
        """
        if not 0 <= number < len(self.by_number):
            raise StateMismatchError(
                [f"the state holds rows of shard number {number}, but the source has {len(self)} shards"], _RELIST
            )
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
        """Describe an unlisted shard by its neighbor in the shard list, because a saved state stores no shard names."""
        before = [shard for shard in self.by_number[:number] if shard is not None]
        behind = [shard for shard in self.by_number[number:] if shard is not None]
        if before:
            return f"the shard that was listed behind {safe_url(before[-1].url)} (number {number})"
        return f"the shard that was listed before {safe_url(behind[0].url)}" if behind else f"shard number {number}"


_BACK = "Put the shard back until these rows are delivered, or resume from a state that holds none of them."
_RELIST = "Restore the shards that the source had when the state was saved."
_RESTORE = "Restore the old content until these rows are delivered, or give the new content another name."
