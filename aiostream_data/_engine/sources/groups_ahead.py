"""Choose the number of groups of small shards that are read ahead, and the number of shards of a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from aiostream_data._engine.sources.group_limits import (
    GROUP_NBYTES,
    GROUP_SHARDS,
    REQUESTS_OF_A_GROUP,
    SEPARATE_REMOTE_GROWTH,
    GroupSize,
)
from aiostream_data._engine.sources.small_shards import LOCAL, scheme_of
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.bytes_ahead import MOST
from aiostream_data.storage.lanes import Lane
from aiostream_data.storage.read_ahead import ReadAhead
from aiostream_data.storage.read_hops import HOPS_AT_ONCE

FIRST: Final = GroupSize(shards=4, nbytes=GROUP_NBYTES)
"""Maximum size of the first group, so that the first rows arrive early."""

GROUPS_AHEAD: Final = 16
"""Maximum number of groups of objects in a store that are being read."""

EARLY_GROUPS: Final = 2
"""Groups of objects that are being read or have arrived, as a multiple of the groups that may be read."""

REQUESTS_AHEAD: Final = 2
"""No further group of objects is read ahead if other groups than the last have this multiple of the requests that may
be in flight. More requests would only wait, but need memory."""

LOCAL_GROUPS_AHEAD: Final = HOPS_AT_ONCE
"""Maximum number of groups of local files that are read ahead: one for each thread that reads files."""

LOCAL_NBYTES_AHEAD: Final = 32 << 20
"""No further group of local files is read ahead if groups take this number of bytes.

With more, the bytes would leave the processor's cache before they are used, and new memory causes page faults.
"""

GROUPS_OF_A_LANE: Final = 4
"""Minimum number of groups for the bytes that are read ahead from one store."""

QUICK_S: Final = 0.02
"""Groups of local files grow while reading one takes less than this time, in seconds."""

SLOW_S: Final = 0.1
"""Groups of local files shrink if reading one takes more than this time, in seconds."""


@dataclass
class GroupsAhead:
    """Read-ahead of the groups of one source. For one event loop.

    Attributes:
        crowd: Number of sources that are read side by side.
        size: Maximum size of the next group, if the store does not limit it.
    """

    crowd: int = 1
    size: GroupSize = FIRST
    _held: int = 0  # groups that are being read, or wait for their turn
    _held_nbytes: int = 0
    _reading: int = 0
    _reading_shards: int = 0
    _last_shards: int = 0  # shards of the group that began last
    _one_was_read: asyncio.Event = field(default_factory=asyncio.Event)
    _reads: ReadAhead = field(default_factory=ReadAhead)

    def may_begin(self, first: ShardRef, lane: Lane | None = None, *, is_needed: bool = False) -> bool:
        """Return True if another group, which begins with the shard ``first``, may be read ahead.

        Groups of objects that arrived before their turn do not count, up to a limit. Otherwise one late group would
        stop all requests.

        Args:
            lane: Request limiter of the store, if its requests are limited.
            is_needed: True if the merge needs the group now. The sources of a large mixture read no group before.
        """
        most = min(self._reads.reads, self._most(is_local=False))
        is_local = scheme_of(first) == LOCAL
        if self._held and self._held_nbytes >= _nbytes_ahead(lane, is_local=is_local):
            return False
        if self._held and lane is not None and self._requests_ahead >= REQUESTS_AHEAD * lane.limit:
            return False
        if self._held < max(most, is_needed):
            return True
        has_room = self._reading < most and self._held < EARLY_GROUPS * most and self.crowd == 1
        return has_room and not is_local

    def next_size(self, lane: Lane | None) -> GroupSize:
        """Return the maximum size of the next group. ``lane`` is as in :meth:`may_begin`."""
        most = self.size.nbytes if lane is None else lane.nbytes_ahead // GROUPS_OF_A_LANE
        return GroupSize(self.size.shards, min(self.size.nbytes, most))

    @property
    def _requests_ahead(self) -> int:
        """Number of shards that are being read, less the shards of the last group."""
        return self._reading_shards - self._last_shards

    def begun(self, rows: asyncio.Task[Any], shards: int, nbytes: int) -> None:
        """Count a group of this number of shards and bytes, which the task ``rows`` reads."""
        self._held += 1
        self._held_nbytes += nbytes
        self._reading += 1
        self._reading_shards += shards
        self._last_shards = shards
        rows.add_done_callback(partial(self._was_read, shards))

    async def until_read(self, rows: asyncio.Task[Any], open_more: Callable[[], None]) -> None:
        """Wait until a group was read. Call ``open_more`` whenever any group was read."""
        while not rows.done():
            self._one_was_read.clear()
            open_more()
            await self._one_was_read.wait()

    def needs(self, rows: asyncio.Task[Any], *, is_local: bool) -> None:
        """Record that the merge needs a group now."""
        self._reads.took(self._most(is_local=is_local), was_there=rows.done())

    def took(self, shards: int, nbytes: int, read_s: float | None, *, is_local: bool) -> None:
        """Record that the merge took a group.

        Args:
            shards, nbytes: Number of shards of the group, and its bytes as in :meth:`begun`.
            read_s: Seconds that reading the group took; None for the rest of a group.
        """
        self._held -= 1
        self._held_nbytes -= nbytes
        # If the group was much smaller, other limits than its size ended it.
        if read_s is not None and (shards * 2 > self.size.shards or nbytes * 2 > self.size.nbytes):
            self.size = adapted_size(self.size, read_s, is_local=is_local)

    def _was_read(self, shards: int, _: asyncio.Task[Any]) -> None:
        self._reading -= 1
        self._reading_shards -= shards
        self._one_was_read.set()

    def _most(self, *, is_local: bool) -> int:
        return min(LOCAL_GROUPS_AHEAD if is_local else GROUPS_AHEAD, GROUPS_AHEAD // self.crowd)


def _nbytes_ahead(lane: Lane | None, *, is_local: bool) -> int:
    if is_local:
        return LOCAL_NBYTES_AHEAD
    return MOST if lane is None else lane.nbytes_ahead


def adapted_size(size: GroupSize, read_s: float, *, is_local: bool) -> GroupSize:
    """Return the maximum size of the next groups, after a group of the maximum ``size``.

    A group delivers its first row after its last shard was read. Local files are read one after another, so groups stay
    small on slow file systems. Objects in a store are requested at the same time.
    """
    most = GroupSize(GROUP_SHARDS if is_local else REQUESTS_OF_A_GROUP, SEPARATE_REMOTE_GROWTH * FIRST.nbytes)
    if not is_local or read_s < QUICK_S:
        return GroupSize(min(2 * size.shards, most.shards), min(2 * size.nbytes, most.nbytes))
    if read_s < SLOW_S:
        return size
    return GroupSize(max(size.shards // 2, FIRST.shards), max(size.nbytes // 2, FIRST.nbytes))
