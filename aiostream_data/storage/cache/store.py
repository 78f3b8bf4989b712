"""Store wrapper that requests only uncached bytes from the wrapped store and caches the received bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiostream_data.endpoints import endpoint_of
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.base import RunBlocking, Store, StoreOptions
from aiostream_data.storage.blocking_calls import run_to_end
from aiostream_data.storage.cache.base import PieceStore
from aiostream_data.storage.cache.names import key_of
from aiostream_data.storage.cache.options import ShardCache
from aiostream_data.storage.cache.spans import ByteSpan, Missing
from aiostream_data.storage.counters import StorageCounters


def with_cache(
    store: Store,
    cache: ShardCache | None,
    scheme: str,
    options: StoreOptions,
    run_blocking: RunBlocking,
    counters: StorageCounters | None = None,
) -> Store:
    """Wrap ``store`` with the cache if URLs with ``scheme`` are cached, else return ``store``. Does no I/O."""
    if cache is None or (scheme == "file" and not cache.local):
        return store
    return CachingStore(store, cache, endpoint_of(scheme, options), run_blocking, counters)


class CachingStore:
    """Store wrapper with a cache. The wrapper closes ``inner``. Several stores can share the cache.

    If the cache fails during a read, ``inner`` serves the bytes, and no error is raised.

    Args:
        inner: Store that serves uncached bytes.
        cache: The shared cache.
        place: Endpoint of the store, which is part of the cache key.
        run_blocking: Function that runs blocking calls on a worker thread.
        counters: Counters of the store, to which cache hits, misses and evictions are added.

    Raises:
        ShardCacheError: Raised by every method if the cache folder cannot be used.
    """

    def __init__(
        self,
        inner: Store,
        cache: ShardCache,
        place: str,
        run_blocking: RunBlocking,
        counters: StorageCounters | None = None,
    ) -> None:
        self._inner = inner
        self._place = place
        self._run_blocking = run_blocking
        self._trust = cache.trust
        self._counters = cache.counters()
        self._of_store = StorageCounters() if counters is None else counters
        self._lease = cache.lease()
        self._pieces: PieceStore | None = None

    async def info(self, url: str) -> ShardRef:
        await self._opened()  # open the cache early to report an unusable folder before the first read
        return await self._inner.info(url)

    async def glob(self, pattern: str) -> Sequence[ShardRef]:
        await self._opened()
        return await self._inner.glob(pattern)

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        if not self._is_known(shard, start, len(buffer)):
            await self._inner.read_into(shard, start, buffer)
            return
        pieces = await self._opened()
        key = key_of(self._place, shard)
        with pieces.pinned(key):
            await self._read(pieces, key, shard, ByteSpan(start, start + len(buffer)), buffer)

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        finally:
            self._pieces = None
            self._lease.close()  # safe on the event loop: closing removes at most one file

    async def _read(self, pieces: PieceStore, key: str, shard: ShardRef, wanted: ByteSpan, buffer: memoryview) -> None:
        missing: Missing = await run_to_end(self._run_blocking, pieces.read, key, wanted, buffer)
        fetched = sum(span.nbytes for span in missing.fetches)
        self._counters.add(nbytes=wanted.nbytes - fetched, **{"misses" if fetched else "hits": 1})
        self._of_store.cache_nbytes += wanted.nbytes - fetched
        self._of_store.cache_hits += not fetched
        self._of_store.cache_misses += bool(fetched)
        for span in missing.fetches:
            await self._inner.read_into(shard, span.start, _part(buffer, wanted, span))
        if missing.gaps:
            made = await run_to_end(self._run_blocking, self._keep, pieces, key, wanted, missing, buffer)
            self._of_store.cache_kept_nbytes += made["kept_nbytes"]
            self._of_store.cache_evictions += made["evictions"]

    def _keep(
        self, pieces: PieceStore, key: str, wanted: ByteSpan, missing: Missing, buffer: memoryview
    ) -> Mapping[str, int]:
        """Store the fetched bytes in the cache and return the changes of the cache counters.

        This method runs on a worker thread.
        """
        with self._counters.overheard() as counted:
            for gap in missing.gaps:
                pieces.write(key, gap, _part(buffer, wanted, gap))
        return counted

    def _is_known(self, shard: ShardRef, start: int, nbytes: int) -> bool:
        """Return True if a read can be cached: its range lies within the object, and the object's version is known."""
        if shard.nbytes is None or not nbytes or not 0 <= start <= start + nbytes <= shard.nbytes:
            return False
        if not shard.version and not self._trust:
            self._counters.add(unversioned=1)
            return False
        return True

    async def _opened(self) -> PieceStore:
        if self._pieces is None:
            self._pieces = await run_to_end(self._run_blocking, self._lease.open)
        return self._pieces


def _part(buffer: memoryview, whole: ByteSpan, part: ByteSpan) -> memoryview:
    return buffer[part.start - whole.start : part.stop - whole.start]
