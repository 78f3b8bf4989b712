"""Many files found or read with one call: each has the result that it would have alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from aiostream_data.errors import ObjectNotFoundError, PlanError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import memory
from aiostream_data.storage.local import LocalStore
from aiostream_data.storage.memory import MemoryStore
from aiostream_data.storage.registry import register_store
from aiostream_data.storage.stores import StoreSet


def use(case: Callable[[Any], Awaitable[Any]], make: Callable[..., Any] = LocalStore) -> Any:
    async def main() -> Any:
        store = make(asyncio.to_thread)
        try:
            return await case(store)
        finally:
            await store.aclose()

    return asyncio.run(main())


def stores(run_blocking: Any) -> StoreSet:
    return StoreSet({"retry_attempts": 1}, run_blocking)


def test_files_are_found_with_their_sizes_and_versions_and_others_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    names = ["a", "missing", "folder", "pipe", "nul\0", "a"]
    urls = [str(tmp_path / name) for name in names]

    async def case(store: LocalStore) -> tuple[Any, ShardRef]:
        return await store.infos(urls), await store.info(urls[0])

    found, alone = use(case)
    assert found == [alone, None, None, None, None, alone]
    assert use(lambda each: each.infos(urls), stores) == found


async def read(store: Any, shards: list[ShardRef]) -> tuple[list[bool], bytes]:
    buffers = [bytearray(shard.nbytes or 0) for shard in shards]
    outcomes = await store.read_objects(shards, [memoryview(buffer) for buffer in buffers])
    assert not any(outcomes.values())
    return [number in outcomes for number in range(len(shards))], b"".join(buffers)


def test_files_without_a_version_are_read_while_they_are_the_files_of_their_first_read(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).write_bytes(name.encode() * 3)
    shards = [ShardRef(str(tmp_path / name), 3) for name in "abcd"]

    async def case(store: LocalStore) -> None:
        assert await read(store, shards) == ([True] * 4, b"aaabbbcccddd")
        (tmp_path / "a").write_bytes(b"longer")
        (tmp_path / "b").unlink()
        os.utime(tmp_path / "c", ns=(1, 1))
        assert (await read(store, shards))[0] == [False, False, False, True]

    use(case)


@pytest.fixture
def remote(memory_objects: None) -> Any:
    memory.put("memory://set/a", b"abc")
    register_store("elsewhere", lambda options, run_blocking: MemoryStore())
    yield
    register_store("elsewhere", None)


def test_objects_are_found_at_the_same_time_and_each_failure_is_its_own(remote: None) -> None:
    found = use(lambda each: each.infos([f"elsewhere://set/{name}" for name in ("a", "missing", "a")]), stores)
    assert [getattr(shard, "nbytes", None) for shard in found] == [3, None, 3]
    assert isinstance(found[1], ObjectNotFoundError)


def test_objects_of_an_unknown_store_fail_one_by_one() -> None:
    found = use(lambda each: each.infos(["nowhere://set/a", "nowhere://set/b"]), stores)
    assert len(found) == 2
    assert all(isinstance(error, PlanError) for error in found)
