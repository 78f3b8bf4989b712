"""A set of stores routes by scheme, counts, and closes what it opened."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aiostream_data.errors import (
    LoaderClosedError,
    MissingExtraError,
    NoMatchError,
    ObjectChangedError,
    ObjectNotFoundError,
    PlanError,
)
from aiostream_data.storage import memory
from aiostream_data.storage.base import RunBlocking, StoreOptions
from aiostream_data.storage.memory import MemoryStore
from aiostream_data.storage.registry import open_store, register_store
from aiostream_data.storage.stores import StoreSet, options_of
from aiostream_data.testing.conformance import read_range
from aiostream_data.testing.latency_store import LatencyStore


def use(case: Callable[[StoreSet], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        stores = StoreSet(options, asyncio.to_thread)
        try:
            return await case(stores)
        finally:
            await stores.aclose()

    return asyncio.run(main())


class RecordingStore(MemoryStore):
    """Remembers its options, and whether it was closed."""

    def __init__(self, options: StoreOptions) -> None:
        self.options = options
        self.closed = 0

    async def aclose(self) -> None:
        self.closed += 1


class StuckStore(MemoryStore):
    async def aclose(self) -> None:
        raise ConnectionResetError


@pytest.fixture
def recorded(memory_objects: None) -> Iterator[list[RecordingStore]]:
    """The stores opened for ``recorded://``."""
    stores: list[RecordingStore] = []

    def factory(options: StoreOptions, run_blocking: RunBlocking) -> RecordingStore:
        stores.append(RecordingStore(options))
        return stores[-1]

    register_store("recorded", factory)
    yield stores
    register_store("recorded", None)


def test_each_scheme_is_opened_once_and_closed_once(recorded: list[RecordingStore], tmp_path: Path) -> None:
    memory.put("memory://a", b"12")
    (tmp_path / "b").write_bytes(b"345")

    async def case(stores: StoreSet) -> None:
        assert (await stores.info("recorded://a")).nbytes == 2
        assert (await stores.info("recorded://a")).url == "recorded://a"
        assert (await stores.info(tmp_path / "b")).nbytes == 3
        await stores.aclose()

    use(case)
    (store,) = recorded
    assert store.closed == 1


def test_stores_get_the_storage_options_without_those_for_retries(recorded: list[RecordingStore]) -> None:
    memory.put("memory://a", b"1")
    use(lambda stores: stores.info("recorded://a"), anon=True, retry_total_s=5)
    assert recorded[0].options == {"anon": True}


def test_options_under_a_scheme_are_for_its_store_alone() -> None:
    options = {"anon": True, "s3://": {"key": "a", "anon": False}, "gcs://": {"token": "anon"}}
    assert options_of("s3", options) == {"anon": False, "key": "a"}
    assert options_of("gs", options) == {"anon": True, "token": "anon"}
    assert options_of("http", options) == {"anon": True}


def test_several_patterns_keep_their_order(memory_objects: None) -> None:
    for name in ("b1", "b2", "a1"):
        memory.put(f"memory://{name}", b"")
    found = use(lambda stores: stores.glob(["memory://b*", "memory://a*"]))
    assert [shard.url for shard in found] == ["memory://b1", "memory://b2", "memory://a1"]


def test_one_pattern_without_a_match_fails_the_whole_list(memory_objects: None) -> None:
    memory.put("memory://a1", b"")
    with pytest.raises(NoMatchError, match=r"memory://b\*"):
        use(lambda stores: stores.glob(["memory://a*", "memory://b*"]))


def test_requests_and_bytes_are_counted(memory_objects: None) -> None:
    memory.put("memory://a", b"12345")

    async def case(stores: StoreSet) -> None:
        shard = await stores.info("memory://a")
        await read_range(stores, shard, 1, 4)
        with pytest.raises(ObjectNotFoundError):
            await stores.info("memory://missing")
        counters = stores.counters
        assert (counters.requests, counters.nbytes, counters.retries, counters.failures) == (3, 3, 0, 1)

    use(case)


def test_an_object_replaced_between_listing_and_reading_is_noticed(memory_objects: None) -> None:
    memory.put("memory://a", b"12345")

    async def case(stores: StoreSet) -> None:
        shard = await stores.info("memory://a")
        memory.put("memory://a", b"54321")
        with pytest.raises(ObjectChangedError):
            await read_range(stores, shard, 0, 1)

    use(case)


def test_nothing_is_opened_after_closing() -> None:
    async def case(stores: StoreSet) -> None:
        await stores.aclose()
        with pytest.raises(LoaderClosedError):
            await stores.info("memory://a")

    use(case)


def test_one_store_that_fails_to_close_does_not_keep_the_others_open(recorded: list[RecordingStore]) -> None:
    register_store("stuck", lambda options, run_blocking: StuckStore())
    memory.put("memory://a", b"1")

    async def case() -> None:
        stores = StoreSet({}, asyncio.to_thread)
        await stores.info("recorded://a")
        await stores.info("stuck://a")
        await stores.info("memory://a")
        with pytest.raises(ExceptionGroup) as caught:
            await stores.aclose()
        assert [type(error) for error in caught.value.exceptions] == [ConnectionResetError]

    asyncio.run(case())
    register_store("stuck", None)
    assert recorded[0].closed == 1


def test_an_unknown_scheme_is_a_mistake_in_the_plan() -> None:
    with pytest.raises(PlanError, match="nonsense://"):
        use(lambda stores: stores.info("nonsense://x"))


@pytest.mark.parametrize(
    ("scheme", "module", "extra"),
    [("s3", "s3fs", "s3"), ("gs", "gcsfs.core", "gcs"), ("http", "aiohttp", "http"), ("ftp", "fsspec", "fsspec")],
)
def test_a_missing_package_names_its_extra(
    scheme: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'aiostream-data\[{extra}\]'"):
        use(lambda stores: stores.info(f"{scheme}://bucket/x"), reader="library")


@pytest.mark.parametrize("scheme", ["S3", "", "1x", "ä"])
def test_a_scheme_that_no_url_can_have_is_refused(scheme: str) -> None:
    with pytest.raises(PlanError):
        register_store(scheme, lambda options, run_blocking: MemoryStore())


def test_opening_a_store_loads_no_cloud_package() -> None:
    code = (
        "import asyncio, sys\n"
        "from aiostream_data.storage.registry import open_store\n"
        "for scheme in ('s3', 'gs', 'http', 'hf', 'file', 'memory'):\n"
        "    open_store(scheme, {}, asyncio.to_thread)\n"
        "loaded = {'s3fs', 'gcsfs', 'aiohttp', 'fsspec', 'botocore', 'google'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )

    async def case() -> int:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        return await process.wait()

    assert asyncio.run(case()) == 0
    assert open_store("memory", {}, asyncio.to_thread) is not None


def test_a_latency_store_remembers_what_it_was_asked_for(memory_objects: None) -> None:
    memory.put("memory://a", bytes(100))
    slow = LatencyStore(MemoryStore())
    register_store("slow", lambda options, run_blocking: slow)

    async def case(stores: StoreSet) -> None:
        (shard,) = await stores.glob("slow://*")
        await asyncio.gather(*(read_range(stores, shard, start, start + 10) for start in range(0, 50, 10)))

    use(case)
    register_store("slow", None)
    assert sorted(slow.ranges) == [("slow://a", start, start + 10) for start in range(0, 50, 10)]
    assert (slow.requests, slow.in_flight, slow.max_in_flight) == (6, 0, 5)
