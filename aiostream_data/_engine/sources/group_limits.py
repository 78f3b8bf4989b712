"""Limit the size of groups of small shards, and of their rows, by the memory limit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from aiostream_data._engine.flow.step_sizes import ROW_NBYTES

GROUP_NBYTES: Final = 4 << 20
"""Maximum bytes of a group of local files that are read into one block, and of decompressed shards."""

REMOTE_GROWTH: Final = 2
"""A group of objects in a store may take this multiple of ``GROUP_NBYTES``. Its objects arrive side by side."""

SEPARATE_REMOTE_GROWTH: Final = 8
LOCAL_GROWTH: Final = 4
"""A group may take this multiple of ``GROUP_NBYTES`` if its shards are read into separate objects.

The event loop and the threads need a millisecond for each group, in which they could copy several mebibytes. Other
groups are read into one block, which the pool of blocks reuses sooner if it is small."""

ONE_REQUEST_GROWTH: Final = 2
"""A shard is small up to this multiple of ``GROUP_NBYTES`` if it is read into a separate object.

A larger one is read with several requests at once, by a :class:`.ShardReader`."""

ROWS_GROWTH: Final = 8
"""The index, ids and decoded values of the rows of a group may take this multiple of the bytes of a group."""

GROUP_SHARE: Final = 64
"""A group may take this fraction (1/64) of the memory limit."""

CROWD_SHARE: Final = 4
"""The groups of all sources that share the memory limit may together take this fraction (1/4) of it.

A group has at least one shard, so the groups of a large mixture can take more."""

ROWS_SHARE: Final = 2
"""The rows of these groups may together take this fraction (1/2) of the memory limit."""

GROUP_SHARDS: Final = 512
"""Maximum number of shards of a group on this machine."""

REQUESTS_OF_A_GROUP: Final = 64
"""Maximum number of shards of a group in a remote store. They are requested at once."""


class GroupSize(NamedTuple):
    """Maximum number of shards and bytes of a group."""

    shards: int
    nbytes: int


@dataclass(frozen=True)
class GroupLimits:
    """Limits of the groups of one run of a source.

    Attributes:
        memory_limit: Memory limit of the loader in bytes.
        crowd: Number of sources that are read side by side.
        open_at_once: Number of shards that are open at the same time, in all sources that share the memory limit.
    """

    memory_limit: int
    crowd: int
    open_at_once: int

    @cached_property
    def most_nbytes(self) -> int:
        """Maximum bytes of a group of local files in one block; 0 if no groups are possible."""
        return min(GROUP_NBYTES, self.memory_limit // GROUP_SHARE)

    @cached_property
    def most_small_nbytes(self) -> int:
        """Maximum bytes of a small shard. The groups of all open shards must fit into memory."""
        return min(self.most_nbytes, self.memory_limit // (CROWD_SHARE * self.open_at_once))

    @cached_property
    def most_separate_nbytes(self) -> int:
        """Maximum bytes of a small shard that is read into a separate object."""
        return min(ONE_REQUEST_GROWTH * GROUP_NBYTES, self.memory_limit // GROUP_SHARE)

    @cached_property
    def most_rows_nbytes(self) -> int:
        """Maximum bytes of the rows of a group, besides the bytes of its shards."""
        share = self.memory_limit // (ROWS_SHARE * self.open_at_once)
        return max(ROW_NBYTES, min(ROWS_GROWTH * self.most_nbytes, share))

    @cached_property
    def crowd_nbytes(self) -> int:
        """Maximum bytes of a group beside the groups of the other sources of a mixture."""
        return self.memory_limit // (CROWD_SHARE * self.crowd)

    def most_nbytes_of(self, *, is_local: bool, is_separate: bool) -> int:
        """Return the maximum bytes of a group.

        Args:
            is_separate: True if the shards are read into separate objects.
        """
        if is_separate:
            growth = LOCAL_GROWTH if is_local else SEPARATE_REMOTE_GROWTH
        else:
            growth = 1 if is_local else REMOTE_GROWTH
        return min(growth * GROUP_NBYTES, self.memory_limit // GROUP_SHARE)

    def rows_nbytes(self, nbytes: int, shards: int) -> int:
        """Return the maximum bytes of the rows of shards that have ``nbytes`` bytes and are not compressed."""
        return min(self.most_rows_nbytes, ROW_NBYTES * (nbytes + shards))
