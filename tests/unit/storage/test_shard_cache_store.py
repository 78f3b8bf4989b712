"""A store with a cache answers as it would without, asks for each byte once, and never fails because of the cache."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from leaks import leaves_nothing

import aiostream_data as asd
from aiostream_data import Dataset, ShardCache
from aiostream_data.endpoints import endpoint_of
from aiostream_data.errors import PlanError, ShardCacheError, StoreBusyError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import memory
from aiostream_data.storage.base import Store
from aiostream_data.storage.cache.counters import CacheCounters
from aiostream_data.storage.cache.memory import PieceMemory
from aiostream_data.storage.cache.options import LEAST_LIMIT
from aiostream_data.storage.cache.piece_file import disk_nbytes
from aiostream_data.storage.cache.spans import ByteSpan, Missing
from aiostream_data.storage.cache.store import CachingStore, with_cache
from aiostream_data.storage.memory import MemoryStore
from aiostream_data.storage.registry import register_store
from aiostream_data.testing.conformance import ListingConformance, read_range
from aiostream_data.testing.latency_store import LatencyStore

CONTENT = random.Random(1).randbytes(200_000)
URL = "memory://data/one"


@pytest.fixture(params=["disk", "memory"])
def cache(request: pytest.FixtureRequest, tmp_path: Path, memory_objects: None) -> ShardCache:
    """A cache of either kind, and an object to read."""
    memory.put(URL, CONTENT)
    return ShardCache(tmp_path / "cache" if request.param == "disk" else None, limit=LEAST_LIMIT)


class Recording(MemoryStore):
    """Notes what was asked for, and fails when told to."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, int]] = []
        self.failure: Exception | None = None

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        self.reads.append((start, start + len(buffer)))
        await asyncio.sleep(0)
        if self.failure is not None:
            buffer[:] = b"\xee" * len(buffer)
            raise self.failure
        await super().read_into(shard, start, buffer)


def use(cache: ShardCache, case: Callable[[CachingStore, Recording], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        inner = Recording()
        store = CachingStore(inner, cache, "", asyncio.to_thread)
        try:
            return await case(store, inner)
        finally:
            await store.aclose()

    return asyncio.run(main())


async def read(store: Store, start: int, stop: int) -> bytes:
    return await read_range(store, await store.info(URL), start, stop)


# -- what is asked for


def test_what_one_loader_has_read_costs_the_next_no_request(cache: ShardCache) -> None:
    async def case(store: CachingStore, inner: Recording) -> list[tuple[int, int]]:
        assert await read(store, 0, 150_000) == CONTENT[:150_000]
        assert await read(store, 50_000, 60_000) == CONTENT[50_000:60_000]
        return inner.reads

    assert use(cache, case) == [(0, 150_000)]
    if cache.path is not None:
        cache = ShardCache(cache.path, limit=cache.limit)  # as another process would open it
    assert use(cache, case) == []
    assert cache.stats().hits >= 2


def test_only_what_is_missing_is_asked_for(cache: ShardCache) -> None:
    async def case(store: CachingStore, inner: Recording) -> list[tuple[int, int]]:
        await read(store, 10_000, 20_000)
        assert await read(store, 5_000, 30_000) == CONTENT[5_000:30_000]
        assert await read(store, 0, 30_000) == CONTENT[:30_000]
        assert await read(store, 0, 30_000) == CONTENT[:30_000]
        return inner.reads

    assert use(cache, case) == [(10_000, 20_000), (5_000, 30_000), (0, 5_000)]
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.kept_nbytes, stats.nbytes) == (1, 3, 30_000, 55_000)


def test_an_object_that_was_replaced_is_read_anew(cache: ShardCache) -> None:
    other = CONTENT[::-1]

    async def case(store: CachingStore, inner: Recording) -> None:
        await read(store, 0, 1000)
        memory.put(URL, other)
        assert await read(store, 0, 1000) == other[:1000]

    use(cache, case)
    assert cache.stats().misses == 2


def test_an_object_without_a_version_is_kept_only_on_trust(cache: ShardCache) -> None:
    trusting = ShardCache(cache.path, limit=cache.limit, trust=True)

    async def case(store: CachingStore, inner: Recording) -> int:
        for _ in range(2):
            assert await read_range(store, ShardRef(URL, len(CONTENT)), 0, 1000) == CONTENT[:1000]
        return len(inner.reads)

    assert use(cache, case) == 2
    assert cache.stats().unversioned == 2
    assert use(trusting, case) == 1


def test_what_a_failed_read_left_in_the_buffer_is_not_kept(cache: ShardCache) -> None:
    async def case(store: CachingStore, inner: Recording) -> None:
        inner.failure = StoreBusyError(URL, "busy")
        with pytest.raises(StoreBusyError):
            await read(store, 0, 1000)
        inner.failure = None
        assert await read(store, 0, 1000) == CONTENT[:1000]

    use(cache, case)
    assert cache.stats().kept_nbytes == 1000


def test_a_cancelled_read_writes_nothing_into_the_buffer_afterwards(cache: ShardCache) -> None:
    gate = threading.Event()
    entered = threading.Event()

    async def held(function: Callable[..., Any], *args: Any) -> Any:
        def slowly() -> Any:
            entered.set()
            gate.wait(10)
            return function(*args)

        return await asyncio.to_thread(slowly)

    async def main() -> None:
        store = CachingStore(MemoryStore(), cache, "", held)
        shard = ShardRef(URL, len(CONTENT), (await MemoryStore().info(URL)).version)
        buffer = bytearray(1000)
        reading = asyncio.ensure_future(store.read_into(shard, 0, memoryview(buffer)))
        await asyncio.to_thread(entered.wait, 10)
        reading.cancel()
        await asyncio.sleep(0)
        assert not reading.done()
        gate.set()
        await asyncio.wait([reading])
        assert reading.cancelled()
        await store.aclose()

    with leaves_nothing():
        asyncio.run(main())


def test_the_same_url_at_another_endpoint_is_another_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    assert endpoint_of("s3", {}) == ""
    assert endpoint_of("s3", {"key": "k", "secret": "s"}) == ""
    assert endpoint_of("s3", {"endpoint_url": "http://a"}) == "http://a"
    assert endpoint_of("s3", {"client_kwargs": {"endpoint_url": "http://a"}}) == "http://a"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://b")
    assert endpoint_of("s3", {}) == "http://b"
    assert endpoint_of("s3", {"endpoint_url": "http://a"}) == "http://a"
    assert endpoint_of("https", {}) == ""


def test_local_files_pass_by_unless_asked_for(tmp_path: Path) -> None:
    store = MemoryStore()
    near, far = ShardCache(tmp_path), ShardCache(tmp_path, local=True)
    assert with_cache(store, near, "file", {}, asyncio.to_thread) is store
    assert with_cache(store, None, "s3", {}, asyncio.to_thread) is store
    assert isinstance(with_cache(store, far, "file", {}, asyncio.to_thread), CachingStore)
    assert isinstance(with_cache(store, near, "s3", {}, asyncio.to_thread), CachingStore)


class TestCachingStoreOnDisk(ListingConformance):
    @pytest.fixture(autouse=True)
    def _cache(self, memory_objects: None, tmp_path: Path) -> None:
        self.cache = ShardCache(tmp_path, limit=LEAST_LIMIT, trust=True)

    def make_store(self) -> Store:
        return CachingStore(MemoryStore(), self.cache, "", asyncio.to_thread)

    def put(self, name: str, data: bytes) -> str:
        memory.put(self.url(name), data)
        return self.url(name)

    def url(self, name: str) -> str:
        return f"memory://{name}"


class TestCachingStoreInMemory(TestCachingStoreOnDisk):
    @pytest.fixture(autouse=True)
    def _cache(self, memory_objects: None) -> None:
        self.cache = ShardCache(limit=LEAST_LIMIT)


# -- in memory


def test_memory_keeps_to_its_limit_and_gives_up_what_was_used_longest_ago() -> None:
    room = disk_nbytes(ByteSpan(0, 8192))
    counters = CacheCounters()
    pieces = PieceMemory(3 * room, counters, 8192, lambda: 0.5)
    a, b, c, d = (letter * 40 for letter in "abcd")
    data = memoryview(CONTENT)[:8192]
    for key in (a, b, c):
        pieces.write(key, ByteSpan(0, 8192), data)
    assert pieces.read(a, ByteSpan(0, 8192), memoryview(bytearray(8192))) == Missing()
    pieces.write(d, ByteSpan(0, 8192), data)
    assert pieces.nbytes == 3 * room
    assert pieces.read(b, ByteSpan(0, 10), memoryview(bytearray(10))).gaps == (ByteSpan(0, 10),)
    assert all(pieces.read(key, ByteSpan(0, 10), memoryview(bytearray(10))) == Missing() for key in (a, c, d))
    with pieces.pinned(a), pieces.pinned(c), pieces.pinned(d):
        pieces.write(b, ByteSpan(0, 8192), data)
    assert (counters.stats().evictions, counters.stats().passed) == (1, 1)
    pieces.write(b, ByteSpan(0, 8192 * 3), memoryview(CONTENT)[: 8192 * 3])
    assert pieces.nbytes == 3 * room


def test_what_memory_keeps_does_not_change_with_the_readers_buffer() -> None:
    pieces = PieceMemory(1 << 20, CacheCounters())
    buffer = bytearray(CONTENT[:100])
    pieces.write("a" * 40, ByteSpan(0, 100), memoryview(buffer))
    buffer[:] = bytes(100)
    again = bytearray(100)
    assert pieces.read("a" * 40, ByteSpan(0, 100), memoryview(again)) == Missing()
    assert again == CONTENT[:100]


# -- what users write


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limit": None}, "a shard cache in memory needs a limit"),
        ({"limit": -1}, "must be at least 1 byte, got -1"),
        ({"limit": 0}, "must be at least 1 byte, got 0"),
        ({"limit": "lots"}, "must be a number of bytes, or a string such as '256MB', got 'lots'"),
        ({"limit": "nan"}, "got 'nan'"),
        ({"limit": "infGB"}, "got 'infGB'"),
        ({"limit": True}, "got True"),
        ({"limit": "1MB"}, "must be at least 16 MiB, got '1MB'"),
        ({"path": ""}, "must be a folder or None, got ''"),
    ],
)
def test_a_cache_that_makes_no_sense_is_refused_where_it_is_written(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        ShardCache(**arguments)


@pytest.mark.parametrize("wrong", [5, True, b"x", ["/tmp"]])
def test_an_argument_that_is_no_cache_is_refused(wrong: Any) -> None:
    with pytest.raises(PlanError, match="a ShardCache or the path of a folder"):
        Dataset.range(3).open(shard_cache=wrong)


def test_a_cache_pickles_without_what_is_open(tmp_path: Path) -> None:
    cache = ShardCache(tmp_path, limit="1GB", trust=True, local=True)
    lease = cache.lease()
    lease.open()
    copy = pickle.loads(pickle.dumps(cache))
    assert (copy.path, copy.limit, copy.trust, copy.local) == (tmp_path, "1GB", True, True)
    lease.close()
    lease.close()


# -- through a loader


@pytest.fixture
def shards(memory_objects: None, tmp_path: Path) -> Iterator[list[LatencyStore]]:
    """Three shards under ``slow://``; the stores that were opened for them."""
    opened: list[LatencyStore] = []

    def make(options: Any, run_blocking: Any) -> Store:
        opened.append(LatencyStore(MemoryStore()))
        return opened[-1]

    for number in range(3):
        path = tmp_path / "shard"
        with asd.TFRecordWriter(path) as writer:
            for row in range(500):
                writer.write(f"{number} {row} ".encode() * 50)
        memory.put(f"memory://data/{number}.tfrecord", path.read_bytes())
    register_store("slow", make)
    yield opened
    register_store("slow", None)


@pytest.mark.parametrize("kind", ["path", "disk", "memory"])
@pytest.mark.parametrize("debug", [False, True])
def test_a_second_pass_reads_nothing_from_the_store(
    shards: list[LatencyStore], tmp_path: Path, kind: str, debug: bool
) -> None:
    given: Any = {
        "path": str(tmp_path / "cache"),
        "disk": ShardCache(tmp_path / "cache", limit="64MB"),
        "memory": ShardCache(limit="64MB"),
    }[kind]
    dataset = Dataset.from_tfrecord("slow://data/*.tfrecord")
    with leaves_nothing():
        passes = []
        for _ in range(2):
            with dataset.open(shard_cache=given, debug=debug) as loader:
                passes.append(list(loader))
    assert passes[0] == passes[1]
    assert len(passes[0]) == 1500
    assert [len(store.ranges) for store in shards] == [3, 0]


def test_processes_of_a_plan_share_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("\n".join(map(str, range(1000))))
    cache = ShardCache(tmp_path / "cache", limit="64MB", local=True)
    hosted = Dataset.from_text(str(path)).in_subprocess()
    with hosted.open(shard_cache=cache) as loader:
        assert list(loader) == [str(number) for number in range(1000)]
    with Dataset.from_text(str(path)).open(shard_cache=cache) as loader:
        assert len(list(loader)) == 1000
    assert (cache.stats().hits, cache.stats().misses) == (1, 0)


def test_a_folder_that_cannot_be_used_is_an_error_of_open(shards: list[LatencyStore], tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"mine")
    with leaves_nothing(), pytest.raises(ShardCacheError, match="is a file, not a folder"):
        Dataset.from_tfrecord("slow://data/*.tfrecord").open(shard_cache=tmp_path / "cache")
    assert (tmp_path / "cache").read_bytes() == b"mine"


def test_a_forked_child_opens_the_cache_anew(tmp_path: Path) -> None:
    cache = ShardCache(tmp_path, limit="64MB")
    lease = cache.lease()
    lease.open()
    before = sorted(os.listdir(tmp_path))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            own = cache.lease()
            own.open()
            own.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(os.listdir(tmp_path)) == before
    lease.close()
