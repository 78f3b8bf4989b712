"""Remember small files whose read in a group failed. The next read of such a file also reads it whole.

A store reports a checksum of the complete object, which cannot verify a range. After a wrong checksum, the ranges of
the same object could therefore contain the wrong bytes.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from aiostream_data._engine.memory.budget import RANGES, Budget
from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data._engine.sources.cached_file import CachedFile, memory_for
from aiostream_data.plan.tables import FilesToken, TableFile
from aiostream_data.rows.records import ByteRange, ShardRef
from aiostream_data.storage.stores import StoreSet


class TablesReadAgain:
    """Files of each data set whose read in a group failed, with their sizes. A feature."""

    def __init__(self) -> None:
        self._sizes: WeakKeyDictionary[FilesToken, dict[str, int]] = WeakKeyDictionary()

    def add(self, file: TableFile, nbytes: int) -> None:
        """Note that reading all ``nbytes`` bytes of a file failed."""
        self._sizes.setdefault(file.files, {})[file.url] = nbytes

    def includes(self, file: TableFile, nbytes: int) -> bool:
        """Return True if reading a file of this size failed. A file of another size is another object."""
        return self._sizes.get(file.files, {}).get(file.url) == nbytes


async def read_whole(stores: StoreSet, shard: ShardRef, blocks: BlockPool, budget: Budget) -> CachedFile:
    """Read an object with one request, so that its checksum is verified.

    Raises:
        ChecksumError: The bytes do not match the checksum of the store.
        StorageError: The object cannot be read.
    """
    nbytes = shard.nbytes or 0
    charge = budget.charge(nbytes, RANGES)
    (content,) = memory_for([ByteRange(0, nbytes)], blocks)
    await stores.read_into(shard, 0, content)
    return CachedFile(stores, shard, blocks, None, content=content, lease=charge)
