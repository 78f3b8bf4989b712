"""The fault store fails as its rules say, with the errors and bytes that a real store would give."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from aiostream_data import Dataset
from aiostream_data.errors import (
    AccessDeniedError,
    CredentialsError,
    ObjectChangedError,
    ObjectNotFoundError,
    StorageError,
    StoreBusyError,
    StoreTimeoutError,
    StoreUnreachableError,
)
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import memory
from aiostream_data.storage.memory import MemoryStore
from aiostream_data.storage.registry import register_store
from aiostream_data.storage.retry import RetryingStore, RetryPolicy
from aiostream_data.testing.conformance import read_range
from aiostream_data.testing.fault_catalogue import chaos
from aiostream_data.testing.fault_store import FaultStore
from aiostream_data.testing.faults import Fault, Rule

CONTENT = bytes(range(200))
INVERTED = bytes(255 - byte for byte in CONTENT)
URL = "faulty://folder/x"


@pytest.fixture(autouse=True)
def _objects(memory_objects: None) -> None:
    memory.put("memory://folder/x", CONTENT)


def read_with(fault: Fault, *, read_timeout_s: float | None = 30.0, version: str = "") -> bytes:
    store = FaultStore(MemoryStore(), [Rule(fault)], read_timeout_s=read_timeout_s)
    return asyncio.run(read_range(store, ShardRef(URL, None, version), 0, 200))


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(status=503), StoreBusyError),
        (Fault(status=429), StoreBusyError),
        (Fault(status=404), ObjectNotFoundError),
        (Fault(status=200, code="InternalError"), StoreBusyError),
        (Fault(refuse="denied"), AccessDeniedError),
        (Fault(refuse="expired"), CredentialsError),
        (Fault(redirect="http://elsewhere"), StorageError),
        (Fault(reset_at="start"), StoreUnreachableError),
        (Fault(truncate_at="middle"), StoreUnreachableError),
        (Fault(end_early_at="last"), StoreUnreachableError),
        (Fault(raw=b"?"), StoreUnreachableError),
    ],
)
def test_a_fault_becomes_the_error_of_a_store(fault: Fault, kind: type[StorageError]) -> None:
    with pytest.raises(kind, match="faulty://folder/x"):
        read_with(fault)


def test_expired_credentials_are_called_so() -> None:
    with pytest.raises(CredentialsError, match="expired"):
        read_with(Fault(refuse="expired"))


def test_a_broken_body_fills_the_buffer_so_far_and_says_so() -> None:
    async def read() -> tuple[bytes, int, str]:
        store = FaultStore(MemoryStore(), [Rule(Fault(reset_at=50), kind="get")])
        shard, buffer = await store.info(URL), bytearray(200)
        with pytest.raises(StoreUnreachableError, match="after 50 of 200 bytes") as caught:
            await store.read_into(shard, 0, memoryview(buffer))
        assert caught.value.version == shard.version
        return bytes(buffer), caught.value.received, caught.value.version

    data, received, _ = asyncio.run(read())
    assert (data, received) == (CONTENT[:50] + bytes(150), 50)


def test_a_corrupt_byte_is_not_noticed() -> None:
    data = read_with(Fault(corrupt_at=7))
    assert [place for place in range(200) if data[place] != CONTENT[place]] == [7]


def test_a_changed_object_is_an_error_for_who_knew_it_and_other_bytes_for_who_did_not() -> None:
    async def read() -> None:
        store = FaultStore(MemoryStore())
        known = await store.info(URL)
        store.set_rules(Rule(Fault(change="before"), times=1))
        with pytest.raises(ObjectChangedError):
            await read_range(store, known, 0, 200)
        assert await read_range(store, ShardRef(URL), 0, 200) == INVERTED
        assert (await store.info(URL)).version != known.version
        store.set_rules(Rule(Fault(change="middle"), kind="get", times=1))
        assert await read_range(store, await store.info(URL), 0, 200) == INVERTED[:100] + CONTENT[100:]
        assert await read_range(store, ShardRef(URL), 0, 200) == CONTENT

    asyncio.run(read())


def test_a_stall_ends_by_itself_or_with_the_time_out() -> None:
    assert read_with(Fault(stall_at="middle", stall_s=0.01)) == CONTENT
    started_s = time.monotonic()
    with pytest.raises(StoreTimeoutError, match=r"0\.05 s"):
        read_with(Fault(stall_at="start"), read_timeout_s=0.05)
    assert time.monotonic() - started_s >= 0.05


def test_looking_up_and_listing_fail_too() -> None:
    async def ask() -> None:
        store = FaultStore(MemoryStore(), [Rule(Fault(status=503), times=1), Rule(Fault(reset_at="middle"), times=1)])
        with pytest.raises(StoreBusyError):
            await store.info(URL)
        with pytest.raises(StoreUnreachableError):
            await store.glob("faulty://folder/*")
        assert [shard.url for shard in await store.glob("faulty://folder/*")] == [URL]
        assert [request.kind for request in store.requests] == ["head", "list", "list"]
        await store.aclose()

    asyncio.run(ask())


@pytest.fixture
def faulty_scheme() -> Iterator[list[FaultStore]]:
    made: list[FaultStore] = []

    def make(*_: object) -> FaultStore:
        made.append(FaultStore(MemoryStore(), [Rule(Fault(reset_at="middle"), kind="get", per="key", times=1)]))
        return made[-1]

    register_store("faulty", make)
    yield made
    register_store("faulty", None)


def test_a_data_set_reads_through_faults(faulty_scheme: list[FaultStore]) -> None:
    for number in range(5):
        memory.put(f"memory://lines/{number}.txt", f"{number}a\n{number}b\n".encode())
    with Dataset.from_text("faulty://lines/*.txt").open() as loader:
        assert list(loader) == [f"{number}{letter}" for number in range(5) for letter in "ab"]
    assert sum(request.fault is not None for store in faulty_scheme for request in store.requests) == 5


def test_a_thousand_ranges_come_through_chaos_unharmed() -> None:
    content = bytes(range(256)) * 64
    memory.put("memory://folder/long", content)

    async def read_all() -> list[bytes]:
        store = FaultStore(MemoryStore(), [chaos(0.3)], seed=5)
        retrying = RetryingStore(store, RetryPolicy(base_s=0.0))
        shard = await store.info("faulty://folder/long")
        found = [await read_range(retrying, shard, start, start + 16) for start in range(0, len(content), 16)]
        assert sum(request.fault is not None for request in store.requests) > 200
        return found

    assert b"".join(asyncio.run(read_all())) == content
