"""Hold what was read in one piece against what its store said of it, on the event loop only where that is quick."""

from __future__ import annotations

from dataclasses import dataclass

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.base import RunBlocking, Store
from aiostream_data.storage.blocking import run_to_end
from aiostream_data.storage.checksums import Checksums, RunningCheck, check_whole
from aiostream_data.storage.counters import StorageCounters


@dataclass(frozen=True, slots=True)
class Verifier:
    """For one store, on one event loop.

    Attributes:
        checksums: What the store said; empty for one that says nothing, or is not to be asked.
        counters: Where it is counted.
        run_blocking: Runs blocking calls on a worker thread.
    """

    checksums: Checksums
    counters: StorageCounters
    run_blocking: RunBlocking

    async def check(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        """Check bytes that are a whole object; others are believed.

        Raises:
            ChecksumError: They are not those of the object.
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
        """Return a check for an object that is read in several ranges."""
        return RunningCheck(shard, self.checksums, self.counters)


def checksums_of(store: Store) -> Checksums:
    """Return what a store was told of its objects, or is going to be."""
    found = getattr(store, "checksums", None)
    return found if isinstance(found, Checksums) else Checksums()


def counters_of(store: Store) -> StorageCounters | None:
    """Return the counters of a store that counts its requests by itself."""
    found = getattr(store, "counters", None)
    return found if isinstance(found, StorageCounters) else None
