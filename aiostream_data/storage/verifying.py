"""Verify checksums of objects that were read in one piece. Large objects are hashed on a worker thread."""

from __future__ import annotations

from dataclasses import dataclass

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.base import RunBlocking, Store
from aiostream_data.storage.blocking_calls import run_to_end
from aiostream_data.storage.checksums import Checksums, RunningCheck, check_whole
from aiostream_data.storage.counters import StorageCounters


@dataclass(frozen=True, slots=True)
class Verifier:
    """Verifier for the checksums of one store, used on one event loop.

    Attributes:
        checksums: Checksums reported by the store. Empty if the store reports no checksums or verification is disabled.
        counters: Counters of the store, to which verified objects are added.
        run_blocking: Function that runs blocking calls on a worker thread.
    """

    checksums: Checksums
    counters: StorageCounters
    run_blocking: RunBlocking

    async def check(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        """Verify the bytes of a complete object. Ranges of an object are accepted without verification.

        Raises:
            ChecksumError: The checksum of ``buffer`` differs from the reported checksum.
        """
        told = self.checksums.of(shard) if start == 0 and len(buffer) == shard.nbytes else None
        if told is None:
            return
        if len(buffer) <= told.inline_nbytes:
            check_whole(shard, told, buffer)
        else:
            await run_to_end(self.run_blocking, check_whole, shard, told, buffer)
        self.counters.verified += 1

    def running(self, shard: ShardRef) -> RunningCheck:
        """Return an incremental checksum verification for an object that is read in several ranges."""
        return RunningCheck(shard, self.checksums, self.counters)


def checksums_of(store: Store) -> Checksums:
    """Return the checksums recorded by a store, or an empty collection if the store records none."""
    found = getattr(store, "checksums", None)
    return found if isinstance(found, Checksums) else Checksums()


def counters_of(store: Store) -> StorageCounters | None:
    """Return the counters of a store that counts its own requests, else None."""
    found = getattr(store, "counters", None)
    return found if isinstance(found, StorageCounters) else None
