"""All stores of one loader, opened on first use of their URL scheme and closed together."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from aiostream_data.endpoints import endpoint_of
from aiostream_data.errors import (
    AiostreamError,
    ChecksumError,
    CloseError,
    LoaderClosedError,
    NoMatchError,
    PlanError,
    StorageError,
)
from aiostream_data.redaction import hiding, shown_option
from aiostream_data.rows.records import ByteRange, ShardRef
from aiostream_data.rows.shard_table import joined_tables, urls_of
from aiostream_data.storage.base import (
    ReadCached,
    RunBlocking,
    Store,
    StoreOptions,
    finds_many,
    reads_many,
    reads_pieces,
)
from aiostream_data.storage.cache.options import ShardCache
from aiostream_data.storage.cache.store import with_cache
from aiostream_data.storage.capped_store import CappedStore
from aiostream_data.storage.caps import has_rates, take_cap_options
from aiostream_data.storage.checksums import RunningCheck
from aiostream_data.storage.counters import StorageCounters
from aiostream_data.storage.hedging import Hedging
from aiostream_data.storage.hedging_store import HedgingStore, Room, any_room
from aiostream_data.storage.lanes import Lane, lane_of
from aiostream_data.storage.late_reads import LATE as LATE  # part of the result of read_objects()
from aiostream_data.storage.late_reads import outcomes_of
from aiostream_data.storage.patterns import escaped, finds_folders
from aiostream_data.storage.registry import open_store
from aiostream_data.storage.retry import RetryingStore, take_retry_options
from aiostream_data.storage.urls import Url, has_magic, safe_url, split_url
from aiostream_data.storage.verifying import Verifier, checksums_of, counters_of

T = TypeVar("T")

NEAR: Final = frozenset({"file", "memory"})
"""Schemes of stores on this machine. Reads of these stores are not hedged, as a second read would not be faster."""

GATED: Final = frozenset({"s3", "gs", "http", "https"})
"""Schemes of stores that measure latencies and limit their own requests with :mod:`.lanes` and :mod:`.meters`."""


_LIST_FOLDERS: Final = frozenset({"file", "s3", "gs"})
"""Schemes of stores whose patterns such as ``root/*/`` match folders."""


class StoreSet:
    """Store that forwards every call to a retrying store for the URL's scheme. Use each instance from one event loop.

    Args:
        options: ``storage_options`` for every store. ``retry_total_s``, ``retry_connect_total_s`` and
            ``retry_attempts`` configure the retries. Options for a single store are nested under its scheme:
            ``{"s3://": {"anon": True}, "https://": {...}}``.
        run_blocking: Function that runs blocking calls on a worker thread.
        cache: Shard cache, or None for no cache.
        room: Function that reserves memory for second requests for late ranges. With the option ``hedge=False``,
            ``room`` is not used.

    Raises:
        PlanError: A retry option is invalid.
    """

    def __init__(
        self,
        options: StoreOptions,
        run_blocking: RunBlocking,
        cache: ShardCache | None = None,
        room: Room = any_room,
    ) -> None:
        self._given = options
        self._policy, self._options = take_retry_options(options)
        self._endpoints: dict[str, str] = {}  # by scheme
        self._run_blocking = run_blocking
        self._cache = cache
        self._room = room
        self._verifiers: dict[str, Verifier] = {}
        self._stores: dict[str, Store] = {}
        self._closed = False

    @property
    def counters(self) -> StorageCounters:
        """Sum of the counters of all stores."""
        return sum((verifier.counters for verifier in list(self._verifiers.values())), StorageCounters())

    def counters_by_store(self) -> dict[str, dict[str, float]]:
        """Return the counters of each store, keyed by URL scheme. Thread-safe."""
        return {scheme: verifier.counters.as_dict() for scheme, verifier in list(self._verifiers.items())}

    async def check_parts(self, shard: ShardRef, buffer: memoryview, parts: Sequence[ByteRange]) -> None:
        """Verify the checksum of an object that was read in parts. An object read in one part was already verified.

        Raises:
            ChecksumError: The checksum of ``buffer`` differs from the reported checksum.
        """
        if len(parts) < 2:
            return
        self._store_of(shard.url)
        verifier = self._verifiers[split_url(shard.url).scheme]
        with self._hiding(shard.url):
            try:
                await verifier.check(shard, 0, buffer)
            except ChecksumError:
                verifier.counters.mismatches += 1
                raise

    def running_check(self, shard: ShardRef) -> RunningCheck:
        """Return an incremental checksum verification for an object that is read in ranges from its start."""
        self._store_of(shard.url)
        return self._verifiers[split_url(shard.url).scheme].running(shard)

    async def glob(self, pattern: Url | Sequence[Url]) -> Sequence[ShardRef]:
        """Return the objects matching one or more patterns, in the order of patterns. The matches of each pattern are
        sorted by URL.

        Raises:
            NoMatchError: A pattern matches no object.
            StorageError: The store did not answer.
        """
        if isinstance(pattern, (str, os.PathLike)):
            text = os.fspath(pattern)
            if finds_folders(text):
                raise NoMatchError(safe_url(text), "the pattern matches folders; add '*' to match the objects in them")
            with self._hiding(text):
                return await self._store_of(text).glob(text)
        return joined_tables([await self.glob(one) for one in pattern])

    async def folders(self, url: str) -> list[str]:
        """Return the names of the folders directly below a folder, sorted, without those that begin with a dot.

        Local disks, S3 and GCS list only the folders. Other stores list all files below them.

        Args:
            url: URL of the folder, which ends with ``/``. Its wildcards are part of the name.

        Raises:
            NoMatchError: The folder contains no folder.
            StorageError: The store did not answer.
        """
        lists_folders = split_url(url).scheme in _LIST_FOLDERS and not has_magic(url)
        pattern = escaped(url) + ("*/" if lists_folders else "*/**")
        with self._hiding(url):
            found = await self._store_of(url).glob(pattern)
        start = len(split_url(url).path)
        names = {split_url(each).path[start:].partition("/")[0] for each in urls_of(found)}
        return sorted(name for name in names if name and not name.startswith("."))

    async def info(self, url: Url) -> ShardRef:
        """Return the size and version of one object. Wildcards are not expanded.

        Raises:
            StorageError: The store did not answer, or did not report the object's size.
        """
        text = os.fspath(url)
        with self._hiding(text):
            found = await self._store_of(text).info(text)
        if found.nbytes is None:  # callers would treat it as an empty object
            reason = "the store did not report the object's size; serve it with a Content-Length, or copy it elsewhere"
            raise StorageError(safe_url(text), reason)
        return found

    async def infos(self, urls: Sequence[str]) -> list[ShardRef | Exception | None]:
        """Return the size and version of objects of one store, or the error of each object that failed.

        The result is None for an object that takes much longer than the others, and for a local file that
        :meth:`info` cannot find.
        """
        found: list[ShardRef | Exception | None] = [None] * len(urls)
        with suppress(AiostreamError):  # of an unknown store, which info() raises for each object
            store = self._store_of(urls[0])
            if finds_many(store):
                found[:] = await store.infos(urls)
            if split_url(urls[0]).scheme in NEAR:
                return found

        async def find(number: int) -> None:
            found[number] = await self.info(urls[number])

        unknown = {number: partial(find, number) for number, shard in enumerate(found) if shard is None}
        for number, failure in (await outcomes_of(unknown)).items():
            if failure is not LATE:
                found[number] = failure or found[number]
        return found

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` (contiguous bytes) from offset ``start``; see :class:`Store`."""
        with self._hiding(shard.url):
            await self._store_of(shard.url).read_into(shard, start, buffer)

    async def read_objects(self, shards: Sequence[ShardRef], places: Sequence[memoryview]) -> list[Exception | None]:
        """Read objects of one store whole, and return the error of each object that failed.

        Each object is read into its own buffer, which has the size of the object. The result of an object that takes
        much longer than the others is :data:`LATE`. The read of this object is cancelled.
        """
        store = self._store_of(shards[0].url)
        outcomes: dict[int, Exception | None] = {}
        if reads_many(store):
            with self._hiding(shards[0].url):
                outcomes = await store.read_objects(shards, places)
        if len(outcomes) == len(shards):
            return [outcomes[number] for number in range(len(shards))]
        reads = {
            number: partial(self.read_into, shards[number], 0, place)
            for number, place in enumerate(places)
            if number not in outcomes
        }
        outcomes |= await outcomes_of(reads)
        return [outcomes[number] for number in range(len(shards))]

    async def scan_cached(self, shard: ShardRef, scan: Callable[[int], T]) -> T | None:
        """Call ``scan(descriptor)`` for a local file. Return None for other objects. See :class:`.ReadsPieces`."""
        store = self._store_of(shard.url)
        return await store.scan_cached(shard, scan) if reads_pieces(store) else None

    def cached_reader(self, shard: ShardRef) -> ReadCached | None:
        """Return a reader of the page cache for a local file, or None for other objects. See :class:`.ReadsPieces`."""
        store = self._store_of(shard.url)
        return store.cached_reader(shard) if reads_pieces(store) else None

    def count_cached(self, shard: ShardRef, requests: int, nbytes: int) -> None:
        """Count reads of :meth:`cached_reader`. Call it on the event loop."""
        counters = self._verifiers[split_url(shard.url).scheme].counters
        counters.requests += requests
        counters.nbytes += nbytes

    async def read_pieces(self, shard: ShardRef, start: int, places: Sequence[memoryview]) -> bool:
        """Fill ``places`` with consecutive bytes of a file. See :class:`.ReadsPieces`."""
        store = self._store_of(shard.url)
        return reads_pieces(store) and await store.read_pieces(shard, start, places)

    def part_nbytes(self, url: str) -> int | None:
        """Return the recommended range size for an object, or None if unknown.

        The size is computed from recent responses of the object's host or bucket to all loaders of this process.
        """
        lane = self.lane(url)
        return None if lane is None else lane.parts.nbytes

    def lane(self, url: str) -> Lane | None:
        """Return the request limiter of an object's host or bucket, or None if its requests are not limited."""
        scheme = split_url(url).scheme
        if scheme not in GATED:
            return None
        if scheme not in self._endpoints:
            self._endpoints[scheme] = endpoint_of(scheme, options_of(scheme, self._options))
        return lane_of(url, self._endpoints[scheme])

    async def aclose(self) -> None:
        """Close every store, even if closing one of them fails. Idempotent.

        Raises:
            CloseError: One or more stores failed to close.
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
            raise CloseError("closing stores failed", failures)

    def _hiding(self, url: str) -> hiding:
        return hiding(self._given, url)

    def _store_of(self, url: str) -> Store:
        if self._closed:
            raise LoaderClosedError("the stores of this loader were closed")
        scheme = split_url(url).scheme
        if scheme not in self._stores:
            options = options_of(scheme, self._options)
            # Requests delayed by rate limits are not late: hedging them would only lengthen the queue.
            hedges = _take_hedge(options) and scheme not in NEAR and not has_rates(options)
            inner = self._open(scheme, options)
            counted = counters_of(inner)
            counters = StorageCounters() if counted is None else counted
            verifier = Verifier(checksums_of(inner), counters, self._run_blocking)
            if hedges:
                inner = HedgingStore(inner, Hedging(), self._room, counters)
            counts_kinds = counted is None and scheme not in NEAR
            retrying = RetryingStore(
                inner, self._policy, counters, counts_kinds, verifier.check, is_remote=scheme not in NEAR
            )
            cached = with_cache(retrying, self._cache, scheme, options, self._run_blocking, counters)
            self._stores[scheme], self._verifiers[scheme] = cached, verifier
        return self._stores[scheme]

    def _open(self, scheme: str, options: dict[str, Any]) -> Store:
        if scheme in GATED:
            return open_store(scheme, options, self._run_blocking)
        caps = take_cap_options(options)
        options.pop("max_connections", None)
        inner = open_store(scheme, options, self._run_blocking)
        return CappedStore(inner, caps, endpoint_of(scheme, options)) if caps else inner


def _take_hedge(options: dict[str, Any]) -> bool:
    """Remove ``hedge`` from the options. Return the option's value: True to send second requests for late ranges.

    Raises:
        PlanError: ``hedge`` is neither True nor False.
    """
    hedge = options.pop("hedge", True)
    if not isinstance(hedge, bool):
        raise PlanError(f"hedge must be True or False, got {shown_option(hedge)}")
    return hedge


def options_of(scheme: str, options: StoreOptions) -> dict[str, Any]:
    """Return the options for ``scheme``: the common options, overridden by options nested under the scheme."""
    common = {name: value for name, value in options.items() if not name.endswith("://")}
    own = [value for name, value in options.items() if name.endswith("://") and split_url(name).scheme == scheme]
    return {**common, **{name: value for part in own for name, value in part.items()}}
