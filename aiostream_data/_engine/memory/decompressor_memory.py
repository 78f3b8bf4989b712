"""Memory reservation for the decompressor of one shard. Most of the memory is the window of a zstd frame.

Another shard can claim the memory of the decompressor.

How this works. A decompressor's memory is reserved before its allocation. A shard that is opened before its rows are
needed waits while decompressors use more than a quarter of the memory limit. The shard whose rows come next in the
order does not wait for the decompressors of other shards. If all decompressors together do not fit, other shards
discard their decompressors. The shard that received memory last discards first. A shard never discards its decompressor
while the order of rows requires this shard next. A shard without its decompressor is later read again from the start,
and the rows already emitted are skipped. Discarding a decompressor does not change the order of rows and cannot cause a
deadlock between shards. A decompressor that does not fit into memory next to any other decompressor runs alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

from aiostream_data._engine.memory.budget import FILLED, FLOW, WINDOWS, Budget
from aiostream_data.metrics.sizes import as_size

AHEAD_SHARE: Final = 0.25
"""Fraction of the memory limit that decompressors may use before a shard that is opened in advance must wait."""

TOGETHER_SHARE: Final = 0.5
"""Fraction of the memory limit that all decompressors together may use.

The shard needed next may use a larger decompressor.
"""

SMALL_NBYTES: Final = 256 << 10
"""Maximum size in bytes of a small decompressor, which is never discarded and never displaces another one."""


class DecompressorTaken(Exception):
    """Exception: the shard's decompressor was discarded to free memory for another shard."""


class DecompressorMemory:
    """Memory reservation for the decompressor of one shard reader. Loop thread only.

    Args:
        is_wanted: Function that returns True if the order of rows requires this shard next.
    """

    def __init__(self, budget: Budget, is_wanted: Callable[[], bool]) -> None:
        self._budget = budget
        self._charge = budget.charge(0, WINDOWS)
        self._discard: Callable[[], None] = _nothing
        self._is_used = False
        self._has_to_go = False
        self._is_taken = False
        self.is_wanted = is_wanted

    @property
    def nbytes(self) -> int:
        """Number of reserved bytes."""
        return self._charge.nbytes

    async def until_it_may_begin(self) -> None:
        """Wait while decompressors use more than AHEAD_SHARE of the limit, unless the order needs this shard next."""
        if not self._budget.windows_fit(AHEAD_SHARE):
            await self._budget.until(lambda: self._budget.windows_fit(AHEAD_SHARE) or self.is_wanted())

    async def reserve(self, nbytes: int, discard: Callable[[], None]) -> None:
        """Wait for room for a decompressor of ``nbytes`` bytes in total, then reserve these bytes.

        Args:
            discard: Frees the decompressor.

        Raises:
            DecompressorTaken: The decompressor was discarded before or during the wait for room.
        """
        if not self._is_taken and nbytes > self.nbytes:
            self._discard = discard
            await self._budget.until(lambda: self._is_taken or self._may_hold(nbytes))
        if self._is_taken:
            raise DecompressorTaken
        if nbytes > self.nbytes:
            self._charge.resize(nbytes)
            self._budget.warn_of(nbytes)
            self._leave_line()
            if nbytes > SMALL_NBYTES:
                self._budget.in_line.append(self)

    async def used_by(self, hop: Callable[..., Any], function: Callable[..., Any], *args: Any) -> Any:
        """Run a function that uses the decompressor in one call on a worker (hop).

        The decompressor is not discarded while the function runs.

        Raises:
            DecompressorTaken: The decompressor was discarded earlier.
        """
        if self._is_taken:
            raise DecompressorTaken
        self._is_used = True
        try:
            return await hop(function, *args)
        finally:
            self._is_used = False
            if self._has_to_go:
                self._go()

    def release(self) -> None:
        """Release the memory. After the release, the shard's reader can reserve memory again."""
        self._leave_line()
        self._charge.end()
        self._discard = _nothing
        self._has_to_go = self._is_taken = False

    def make_way(self) -> None:
        """Discard the decompressor, immediately or at the end of the call (hop) that uses it."""
        self._has_to_go = True
        if not self._is_used:
            self._go()

    def _go(self) -> None:
        self._discard()
        self.release()
        self._is_taken = True

    def _leave_line(self) -> None:
        if self in self._budget.in_line:
            self._budget.in_line.remove(self)

    def _may_hold(self, nbytes: int) -> bool:
        budget, more = self._budget, nbytes - self.nbytes
        held = budget.windows_nbytes + more
        if held <= AHEAD_SHARE * budget.limit and (nbytes <= SMALL_NBYTES or budget.may_begin(more)):
            return True
        if not self.is_wanted():
            return False
        return nbytes <= SMALL_NBYTES or self._others_made_way(more)

    def _others_made_way(self, more: int) -> bool:
        """Discard other decompressors until ``more`` bytes fit into the memory limit.

        Return True if the bytes fit or if no other decompressor is left.
        """
        others = [each for each in reversed(self._budget.in_line) if each is not self and not each.is_wanted()]
        over = self._over(more)
        for other in others:
            if over <= 0:
                break
            _warn(self._budget)
            over -= other.nbytes
            other.make_way()
        return self._over(more) <= 0 or not any(other.nbytes for other in others)

    def _over(self, more: int) -> int:
        """Return by how many bytes decompressors would exceed their limit if this one used ``more`` additional bytes.

        Decompressors may hold half of the memory limit, or less if much data is in flight.
        """
        limit, flowing = self._budget.limit, self._budget.flowing
        together = min(TOGETHER_SHARE * limit, FILLED * limit - flowing)
        ahead = min(AHEAD_SHARE * limit, (1 - FLOW) * limit - flowing)
        return self._budget.windows_nbytes + more - int(max(together, ahead))


def _warn(budget: Budget) -> None:
    if budget.has_warned_of_windows:
        return
    budget.has_warned_of_windows = True
    warnings.warn(
        "cannot keep the decompressors of all open files: with the windows of their zstd frames, they take more than "
        f"the memory limit of {as_size(budget.limit)} allows. Files are decompressed again from the start in turn, "
        "which is slow. Use a smaller cycle_length, a larger memory_limit, or write the files with a smaller window.",
        RuntimeWarning,
        stacklevel=2,
    )


def _nothing() -> None:
    """Do nothing, because no decompressor is allocated."""
