"""All stores of one loader: opened by the first URL that needs one, closed together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from aiostream_data.errors import LoaderClosedError
from aiostream_data.records import ShardRef
from aiostream_data.storage.base import RunBlocking, Store, StoreOptions
from aiostream_data.storage.cache.options import ShardCache
from aiostream_data.storage.cache.store import with_cache
from aiostream_data.storage.hedging import Hedging
from aiostream_data.storage.hedging_store import HedgingStore
from aiostream_data.storage.registry import open_store
from aiostream_data.storage.retry import RetryingStore, StorageCounters, take_retry_options
from aiostream_data.storage.urls import Url, split_url

NEAR: Final = frozenset({"file", "memory"})
"""Stores that are no farther than this machine: asking twice would not be any sooner."""


class StoreSet:
    """One retrying store per scheme. Itself a store, which routes every URL by its scheme.

    Used from one event loop.

    Args:
        options: ``storage_options`` for every store; the keys ``retry_total_s``,
            ``retry_connect_total_s`` and ``retry_attempts`` are taken out for the retries. Options for
            one store alone stand under its scheme: ``{"s3://": {"anon": True}, "https://": {...}}``.
        run_blocking: Runs blocking calls on a worker thread.
        cache: Where pieces of shards are kept; None for nowhere.

    Attributes:
        counters: Requests, bytes and retries of all stores together.
        hedging: What was asked for twice; never with ``hedge=False`` among the options.

    Raises:
        PlanError: A retry option makes no sense.
    """

    def __init__(self, options: StoreOptions, run_blocking: RunBlocking, cache: ShardCache | None = None) -> None:
        self.counters = StorageCounters()
        self.hedging = Hedging()
        self._policy, self._options = take_retry_options(options)
        self._run_blocking = run_blocking
        self._cache = cache
        self._stores: dict[str, Store] = {}
        self._closed = False

    async def glob(self, pattern: Url | Sequence[Url]) -> list[ShardRef]:
        """Return the objects matching a pattern, or several in the order given, each sorted by URL.

        Raises:
            NoMatchError: One of the patterns matches nothing.
            StorageError: The store did not answer.
        """
        if isinstance(pattern, (str, os.PathLike)):
            text = os.fspath(pattern)
            return await self._store_of(text).glob(text)
        return [shard for one in pattern for shard in await self.glob(one)]

    async def info(self, url: Url) -> ShardRef:
        """Return size and version of one object; wildcards have no meaning here."""
        text = os.fspath(url)
        return await self._store_of(text).info(text)

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` (contiguous, bytes) from offset ``start``; see :class:`Store`."""
        await self._store_of(shard.url).read_into(shard, start, buffer)

    async def aclose(self) -> None:
        """Close every store, also when closing one of them fails. Idempotent.

        Raises:
            ExceptionGroup: Stores failed to close.
        """
        self._closed = True
        failures: list[Exception] = []
        while self._stores:
            _, store = self._stores.popitem()
            try:
                await store.aclose()
            except Exception as error:  # noqa: BLE001 - raised below, after the others were closed
                failures.append(error)
        if failures:
            raise ExceptionGroup("closing stores failed", failures)

    def _store_of(self, url: str) -> Store:
        if self._closed:
            raise LoaderClosedError("the stores of this loader were closed")
        scheme = split_url(url).scheme
        if scheme not in self._stores:
            options = options_of(scheme, self._options)
            hedges = bool(options.pop("hedge", True)) and scheme not in NEAR
            inner = open_store(scheme, options, self._run_blocking)
            if hedges:
                inner = HedgingStore(inner, self.hedging)
            retrying = RetryingStore(inner, self._policy, self.counters)
            self._stores[scheme] = with_cache(retrying, self._cache, scheme, options, self._run_blocking)
        return self._stores[scheme]


def options_of(scheme: str, options: StoreOptions) -> dict[str, Any]:
    """Return the options meant for ``scheme``: those for every store, overridden by those for it alone."""
    common = {name: value for name, value in options.items() if not name.endswith("://")}
    own = [value for name, value in options.items() if name.endswith("://") and split_url(name).scheme == scheme]
    return {**common, **{name: value for part in own for name, value in part.items()}}
