"""Patterns over S3 and Google: all pages, level by level, through failing pages, and in few requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

import aiostream_data as asd
from aiostream_data.errors import ObjectNotFoundError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import key_search
from aiostream_data.storage.memory import MemoryStore
from aiostream_data.storage.registry import register_store
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import Fault, Rule

FOLDERS = ("a-odd name", "a1", "a2", "b1")
FILES = [f"x-{number}" for number in range(9)] + ["sub/x-0"]


@pytest.fixture(params=["s3", "gcs"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    monkeypatch.setattr(key_search, "PAGE_KEYS", 4)
    with fault_server(request.param) as server:
        for folder in FOLDERS:
            for name in FILES:
                server.put(f"bucket/d/{folder}/{name}", name.encode())
        server.clear_log()
        yield server


def found(server: FaultServer, pattern: str, **options: object) -> list[str]:
    """Return what matches below ``d/``; retries are quick."""

    async def main() -> list[str]:
        stores = StoreSet({**server.storage_options, **options}, asyncio.to_thread)
        try:
            shards = await stores.glob(server.url(f"bucket/d/{pattern}"))
        finally:
            await stores.aclose()
        assert all(shard.nbytes and shard.version for shard in shards)
        return [shard.url.partition("/d/")[2] for shard in shards]

    return asyncio.run(main())


def lists(server: FaultServer) -> int:
    return sum(request.kind == "list" for request in server.log())


@pytest.mark.parametrize(
    ("pattern", "matching", "most_lists"),
    [
        ("a1/x-*", [f"a1/x-{number}" for number in range(9)], 3),
        ("a1/x-[0-2]", ["a1/x-0", "a1/x-1", "a1/x-2"], 3),
        ("a*/x-8", ["a-odd name/x-8", "a1/x-8", "a2/x-8"], 5),
        ("a*/x-[78]", [f"{folder}/x-{n}" for folder in FOLDERS[:3] for n in (7, 8)], 2 + 3 * 2),
        ("**/x-0", sorted(f"{folder}/{name}x-0" for folder in FOLDERS for name in ("", "sub/")), 10),
        ("*/*/x-?", sorted(f"{folder}/sub/x-0" for folder in FOLDERS), 30),
    ],
)
def test_every_match_is_found_over_pages_and_levels(
    server: FaultServer, pattern: str, matching: list[str], most_lists: int
) -> None:
    assert found(server, pattern) == matching
    assert lists(server) <= most_lists


def test_a_long_listing_ends_although_pages_fail(server: FaultServer) -> None:
    server.set_rules(Rule(Fault(status=503), kind="list", every=4))
    pages = 10  # 40 keys, 4 a page
    assert len(found(server, "**", retry_attempts=pages + 3)) == len(FOLDERS) * len(FILES)
    assert pages < lists(server) <= 2 * pages


def test_r48_an_index_takes_the_place_of_all_listings(server: FaultServer, tmp_path: Path) -> None:
    options = server.storage_options
    assert asd.write_index(server.url("bucket/d/a*/x-*"), tmp_path / "index.jsonl", storage_options=options) == 27
    server.clear_log()
    by_index = asd.Dataset.from_files(index=tmp_path / "index.jsonl", storage_options={**options, "hedge": False})
    assert sorted(element["data"] for element in by_index) == sorted(3 * [name.encode() for name in FILES[:-1]])
    assert {request.kind for request in server.log()} == {"get"}
    assert len(server.log()) == 27


class ReversedStore(MemoryStore):
    """Store of missing objects, which answers the last of ``count`` requests first."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._answered = [asyncio.Event() for _ in range(count)]
        self._answered.append(asyncio.Event())
        self._answered[-1].set()

    async def glob(self, pattern: str) -> list[ShardRef]:
        number = int(pattern[-1])
        await self._answered[number + 1].wait()
        self._answered[number].set()
        raise ObjectNotFoundError(pattern, "no such object")


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_the_error_of_a_listing_is_that_of_the_first_pattern_that_failed(on_error: Literal["raise", "skip"]) -> None:
    register_store("reversed", lambda options, run_blocking: ReversedStore(3))
    urls = [f"reversed://bucket/{number}" for number in range(3)]
    try:
        with pytest.raises(ObjectNotFoundError, match="bucket/0"):
            list(asd.Dataset.from_files(urls, on_error=on_error))
    finally:
        register_store("reversed", None)
