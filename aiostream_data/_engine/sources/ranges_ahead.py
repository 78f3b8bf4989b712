"""Distribute the concurrent range requests of one source among its shards.

All shards of a source share one window of ranges (:class:`.ReadWindow`). The shards whose rows are merged now get equal
parts of the window. If these shards have no more ranges to request, the following shards use the rest of the window,
in reading order. If all open shards are requested completely, the source opens another shard. So read-ahead continues
in the following shards, although each shard may have only a few ranges.

Shards that are opened early only request ranges. A shard decompresses and splits its ranges when it is near its turn,
because this needs memory for each shard.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from aiostream_data.plan.sources import ReadFiles
from aiostream_data.storage.read_ahead import LEAST
from aiostream_data.storage.read_window import ReadWindow

MOST_SHARDS_AHEAD = 64
"""Maximum number of shards that are opened only to continue the read-ahead."""

SHARDS_OF_A_CPU = 2
"""Number of shards for each CPU that are decompressed and split before their turn.

Only one thread at a time can decompress a shard. Without these shards, the other threads would wait."""

CUT_NBYTES = 64 << 20
"""Part of the memory limit, in bytes, that is necessary for each shard that is split before its turn."""

FULL_WINDOW = 1 << 30
"""Window that never limits."""


class RequestsRanges(Protocol):
    """A shard that requests ranges.

    Attributes:
        held: Number of ranges that are in flight, or waiting to be processed, or being processed.
        is_planned: False until the size of the shard is known.
        has_more: True if the shard has ranges that were not requested yet.
        is_current: True if the rows of the shard are merged now.
        may_cut: Set when the shard may decompress and split its ranges.
    """

    held: int
    is_planned: bool
    has_more: bool
    is_current: bool
    may_cut: asyncio.Event

    def begin(self) -> None:
        """Request the next range."""


class RangesAhead:
    """Distributor of the range requests of one source. For one event loop.

    Args:
        window: Number of concurrent ranges.
        current: Number of shards that are merged at the same time.
        near: Number of shards that request their first range in any case.
        cutting: Number of shards that may decompress and split their ranges.
        sharers: Number of sources that share the memory limit, each with a window of its own.
    """

    def __init__(self, window: ReadWindow, current: int, near: int, cutting: int, sharers: int) -> None:
        self.window = window
        self.sharers = sharers
        self._current = current
        self._near = near
        self._cutting = cutting
        self._shards: list[RequestsRanges] = []  # in reading order
        self._sent: deque[int] = deque()  # ranges of the shards that have sent all rows, but whose rows wait
        self._open_more: Callable[[], None] = _nothing
        self._has_unopened: Callable[[], bool] = _never

    def opens_shards_with(self, open_more: Callable[[], None], has_unopened: Callable[[], bool]) -> None:
        """Set the functions of the shard list.

        Args:
            open_more: Opens another shard if :attr:`wants_shards` is True.
            has_unopened: Returns True if some shards were not opened yet.
        """
        self._open_more, self._has_unopened = open_more, has_unopened

    def opens_no_more(self) -> None:
        """Release the functions of the shard list."""
        self._open_more, self._has_unopened = _nothing, _never

    @property
    def opens_shards(self) -> bool:
        """True if the source may open more shards than its options say."""
        return self._open_more is not _nothing

    @property
    def least(self) -> int:
        """Minimum number of ranges of all open shards together."""
        return LEAST * min(self._current, len(self._shards))

    def is_last(self, shard: RequestsRanges) -> bool:
        """Return True if no shard follows, so that the read-ahead cannot continue in another shard."""
        return bool(self._shards) and self._shards[-1] is shard and not self._has_unopened()

    @property
    def wants_shards(self) -> bool:
        """True if all open shards were requested completely and the window has room."""
        held = sum(self._sent)
        for shard in self._shards:
            if shard.has_more:
                return False
            held += shard.held + (not shard.is_planned)
        return held < self.window.ranges and len(self._shards) < self._near + MOST_SHARDS_AHEAD

    def add(self, shard: RequestsRanges) -> None:
        """Add a shard behind all others."""
        self._shards.append(shard)
        self._note_turns()

    def has_sent(self, shard: RequestsRanges, waiting: int) -> None:
        """Remove a shard that has sent all its rows or has failed.

        Args:
            waiting: Number of ranges whose rows may still wait for the merge. They count until :meth:`was_merged`.
        """
        self._shards.remove(shard)
        self._sent.append(waiting)

    def was_merged(self) -> None:
        """Record that all rows of one shard were merged, so that the following shards are nearer to their turn."""
        self._sent.popleft()
        self._note_turns()
        self.fill()

    def is_awaited(self, shard: RequestsRanges) -> None:
        """Prefer a shard, because the merge waits for its rows."""
        if not shard.is_current:
            shard.is_current = True
            shard.may_cut.set()
            self.fill()

    def fill(self) -> None:
        """Request ranges until the window is full or all shards were requested completely."""
        total = sum(self._sent)
        unfinished = []
        for place, shard in enumerate(self._shards, len(self._sent)):
            if shard.has_more:
                least = LEAST if shard.is_current else int(place < self._near)
                while shard.held < least and shard.has_more:
                    shard.begin()
                unfinished.append(shard)
            total += shard.held
        share = max(LEAST, self.window.ranges // max(1, min(self._current, len(self._shards))))
        for shard in unfinished:
            most = share if shard.is_current else FULL_WINDOW
            while total < self.window.ranges and shard.held < most and shard.has_more:
                total -= shard.held
                shard.begin()
                total += shard.held
        if total < self.window.ranges and self.wants_shards:
            self._open_more()

    def _note_turns(self) -> None:
        for place, shard in enumerate(self._shards, len(self._sent)):
            if place >= max(self._current, self._cutting):
                return
            shard.is_current = place < self._current
            if place < self._cutting:
                shard.may_cut.set()


def most_open(node: ReadFiles) -> int:
    """Return the number of shards that are open at the same time and share the memory limit.

    More shards can be open, but they only request ranges.
    """
    ahead = node.read_ahead if isinstance(node.read_ahead, int) else max(1, node.cycle_length // 4)
    return node.cycle_length + ahead


def shards_cut_ahead(memory_limit: int, cpus: int, crowd: int) -> int:
    """Return how many of the shards after the open ones may be decompressed and split before their turn.

    Args:
        memory_limit: Memory limit in bytes.
        crowd: Number of sources that are read side by side.
    """
    return min(SHARDS_OF_A_CPU * cpus, memory_limit // CUT_NBYTES) if crowd == 1 else 0


def _nothing() -> None:
    """Open no shard."""


def _never() -> bool:
    return False
