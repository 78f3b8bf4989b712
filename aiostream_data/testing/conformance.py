"""Conformance tests for stores: subclass :class:`StoreConformance` in a test module and run pytest.

::

    class TestMyStore(StoreConformance):
        def make_store(self) -> Store: ...
        def put(self, name: str, data: bytes) -> str: ...
        def url(self, name: str) -> str: ...

The tests are plain methods, and each test runs a separate event loop. The conformance tests do not import pytest.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from typing import ClassVar, TypeVar

from aiostream_data.errors import NoMatchError, ObjectNotFoundError, ShortReadError, StorageError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.base import Store

T = TypeVar("T")

CONTENT = bytes(range(256)) * 257
ODD_NAMES = ("with space", "per%20cent", "plus+plus", "äö-日本", "a=b&c", "'quotes'", "hash#tag")


class ReadConformance(ABC):
    """Conformance tests that check how a store reads bytes.

    Use this class without :class:`StoreConformance` to test a second read path of a store.

    Attributes:
        ranges_at_once: Number of ranges that one test reads concurrently; reduce it for slow servers.
    """

    ranges_at_once: ClassVar[int] = 256

    @abstractmethod
    def make_store(self) -> Store:
        """Return a new store. The test calls this method while the event loop runs."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> str:
        """Store an object under ``name``, which may contain slashes, and return its URL."""

    @abstractmethod
    def url(self, name: str) -> str:
        """Return the URL of ``name``. The object may be missing, and ``name`` may be a pattern."""

    # -- ranges -------------------------------------------------------------------------------

    def test_ranges_are_exact_at_every_edge(self) -> None:
        url, size = self.put("ranges/x.bin", CONTENT), len(CONTENT)
        ranges = [(0, 1), (0, size), (1, size), (size - 1, size), (100, 100), (255, 257), (size // 2, size)]

        async def read(store: Store) -> list[bytes]:
            shard = await store.info(url)
            return [await read_range(store, shard, start, stop) for start, stop in ranges]

        assert self.run(read) == [CONTENT[start:stop] for start, stop in ranges]

    def test_only_the_buffer_is_written(self) -> None:
        url = self.put("ranges/y.bin", CONTENT)

        async def read(store: Store) -> bytes:
            memory = bytearray(b"\xee" * 100)
            await store.read_into(ShardRef(url), 10, memoryview(memory)[20:80])
            return bytes(memory)

        assert self.run(read) == b"\xee" * 20 + CONTENT[10:70] + b"\xee" * 20

    def test_an_empty_object_is_read_as_nothing(self) -> None:
        url = self.put("empty/x.bin", b"")

        async def read(store: Store) -> bytes:
            shard = await store.info(url)
            assert shard.nbytes == 0
            return await read_range(store, shard, 0, 0)

        assert self.run(read) == b""

    def test_reading_past_the_end_is_a_short_read(self) -> None:
        url = self.put("short/x.bin", b"0123456789")
        for start, stop in ((0, 11), (5, 20), (10, 11), (1000, 1001)):
            read = partial(read_range, shard=ShardRef(url), start=start, stop=stop)
            self.fails_with(ShortReadError, read)

    # -- concurrency and cancellation --------------------------------------------------------

    def test_many_ranges_at_once_do_not_mix(self) -> None:
        url, step = self.put("many/x.bin", CONTENT), len(CONTENT) // self.ranges_at_once

        async def read(store: Store) -> list[bytes]:
            shard, gate = await store.info(url), asyncio.Semaphore(32)

            async def read_one(number: int) -> bytes:
                async with gate:
                    return await read_range(store, shard, number * step, (number + 1) * step)

            return await asyncio.gather(*(read_one(number) for number in range(self.ranges_at_once)))

        assert b"".join(self.run(read)) == CONTENT[: self.ranges_at_once * step]

    def test_cancelling_reads_leaves_the_store_usable(self) -> None:
        url = self.put("cancel/x.bin", CONTENT)

        async def cancel_and_read(store: Store) -> bytes:
            shard = ShardRef(url)
            for turns in range(12):  # each round cancels one loop iteration later than the last
                reading = asyncio.ensure_future(read_range(store, shard, 0, len(CONTENT)))
                for _ in range(turns):
                    await asyncio.sleep(0)
                reading.cancel()
                await asyncio.wait([reading])
            return await read_range(store, shard, 0, len(CONTENT))

        assert self.run(cancel_and_read) == CONTENT

    def test_a_closed_store_leaves_no_file_or_socket_open(self) -> None:
        url = self.put("leak/x.bin", CONTENT)

        async def use(store: Store) -> bytes:
            return await read_range(store, await store.info(url), 0, len(CONTENT))

        self.run(use)  # the first run loads everything that is opened once per process
        before = _open_descriptors()
        assert self.run(use) == CONTENT
        deadline_s = time.monotonic() + 10.0
        while not _open_descriptors() <= before and time.monotonic() < deadline_s:
            time.sleep(0.005)  # a server in this process closes its end asynchronously
        assert _open_descriptors() <= before

    # -- running a case -----------------------------------------------------------------------

    def run(self, case: Callable[[Store], Awaitable[T]]) -> T:
        """Run the test ``case`` with a new store on a new event loop; fail on leaked tasks and on any warning."""

        async def main() -> T:
            store = self.make_store()
            try:
                async with asyncio.timeout(60):
                    return await case(store)
            finally:
                await store.aclose()
                await asyncio.sleep(0)
                assert asyncio.all_tasks() == {asyncio.current_task()}, "tasks leaked"

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = asyncio.run(main())
            gc.collect()  # triggers the warnings of unclosed sessions
        return result

    def fails_with(self, kind: type[StorageError], case: Callable[[Store], Awaitable[object]]) -> StorageError:
        """Run the test ``case``, which must raise ``kind``, and return the raised error."""
        try:
            self.run(case)
        except kind as error:
            return error
        raise AssertionError(f"{kind.__name__} was not raised")


class StoreConformance(ReadConformance):
    """Conformance tests for the contract of :class:`~aiostream_data.storage.base.Store`.

    Attributes:
        odd_names: Object names with special characters that this store supports.
    """

    odd_names: ClassVar[tuple[str, ...]] = ODD_NAMES

    def missing_container_url(self) -> str:
        """Return the URL of an object in a bucket or directory that does not exist."""
        return self.url("no-such-container/object")

    # -- sizes and names ----------------------------------------------------------------------

    def test_info_tells_the_size(self) -> None:
        url = self.put("info/one.bin", CONTENT)
        assert self.run(lambda store: store.info(url)).nbytes == len(CONTENT)

    def test_version_stays_while_the_object_does(self) -> None:
        url = self.put("info/two.bin", CONTENT)

        async def look_twice(store: Store) -> tuple[ShardRef, ShardRef]:
            return await store.info(url), await store.info(url)

        first, second = self.run(look_twice)
        assert first == second

    def test_a_name_without_wildcards_is_one_object(self) -> None:
        url = self.put("single/one.bin", CONTENT)
        (found,) = self.run(lambda store: store.glob(url))
        assert found.nbytes == len(CONTENT)

    def test_odd_names_are_read_as_they_are(self) -> None:
        urls = {self.put(f"odd/{name}", name.encode()): name for name in self.odd_names}

        async def read_all(store: Store) -> dict[str, bytes]:
            shards = [await store.info(url) for url in urls]
            return {shard.url: await read_range(store, shard, 0, shard.nbytes or 0) for shard in shards}

        assert sorted(self.run(read_all).values()) == sorted(name.encode() for name in self.odd_names)

    def test_a_missing_object_is_named_in_the_error(self) -> None:
        self.put("present/x.bin", b"1")
        url = self.url("present/missing.bin")
        for error in (
            self.fails_with(ObjectNotFoundError, lambda store: store.info(url)),
            self.fails_with(ObjectNotFoundError, lambda store: store.glob(url)),
            self.fails_with(ObjectNotFoundError, lambda store: read_range(store, ShardRef(url), 0, 1)),
        ):
            assert "missing.bin" in str(error)
            assert isinstance(error, FileNotFoundError)

    def test_an_object_in_a_missing_container_is_not_found(self) -> None:
        url = self.missing_container_url()
        self.fails_with(ObjectNotFoundError, lambda store: store.info(url))

    # -- closing ------------------------------------------------------------------------------------

    def test_closing_twice_does_nothing_more(self) -> None:
        url = self.put("close/x.bin", CONTENT)

        async def use_and_close(store: Store) -> None:
            await store.info(url)
            await store.aclose()
            await store.aclose()

        self.run(use_and_close)

    def test_closing_an_unused_store_does_nothing(self) -> None:
        async def close(store: Store) -> None:
            await store.aclose()

        self.run(close)


class ListingConformance(StoreConformance):
    """Conformance tests for a store that expands wildcards, in addition to :class:`StoreConformance`."""

    def test_glob_finds_one_level_sorted_with_sizes(self) -> None:
        for number in (2, 0, 1):
            self.put(f"glob/part-{number}.bin", bytes(number))
        self.put("glob/part-9.txt", b"no")
        self.put("glob/sub/part-3.bin", b"no")
        found = self.run(lambda store: store.glob(self.url("glob/part-*.bin")))
        assert [shard.url.rpartition("/")[2] for shard in found] == ["part-0.bin", "part-1.bin", "part-2.bin"]
        assert [shard.nbytes for shard in found] == [0, 1, 2]

    def test_glob_with_two_stars_finds_every_level(self) -> None:
        for name in ("deep/a.bin", "deep/x/b.bin", "deep/x/y/c.bin", "deep/x/y/d.txt"):
            self.put(name, b"1")
        found = self.run(lambda store: store.glob(self.url("deep/**/*.bin")))
        assert [shard.url.rpartition("/")[2] for shard in found] == ["a.bin", "b.bin", "c.bin"]

    def test_glob_knows_question_marks_and_sets(self) -> None:
        for name in ("set/a1", "set/b1", "set/c1", "set/a22"):
            self.put(name, b"1")
        found = self.run(lambda store: store.glob(self.url("set/[ab]?")))
        assert [shard.url.rpartition("/")[2] for shard in found] == ["a1", "b1"]

    def test_what_glob_finds_can_be_read(self) -> None:
        self.put("found/x.bin", CONTENT)

        async def read(store: Store) -> bytes:
            (shard,) = await store.glob(self.url("found/*.bin"))
            return await read_range(store, shard, 0, len(CONTENT))

        assert self.run(read) == CONTENT

    def test_a_pattern_that_matches_nothing_is_an_error(self) -> None:
        self.put("nothing/x.bin", b"1")
        self.fails_with(NoMatchError, lambda store: store.glob(self.url("nothing/*.tfrecord")))

    def test_a_missing_container_is_an_error_not_an_empty_listing(self) -> None:
        pattern = self.missing_container_url() + "*"
        error = self.fails_with(StorageError, lambda store: store.glob(pattern))
        assert isinstance(error, FileNotFoundError)


async def read_range(store: Store, shard: ShardRef, start: int, stop: int) -> bytes:
    """Read bytes ``start`` to ``stop`` of ``shard`` and return them as one ``bytes`` object."""
    buffer = bytearray(stop - start)
    await store.read_into(shard, start, memoryview(buffer))
    return bytes(buffer)


def _open_descriptors() -> set[str]:
    """Return the open file descriptors of this process, or an empty set on systems other than Linux."""
    folder = "/proc/self/fd"
    if not os.path.isdir(folder):
        return set()
    found = set()
    for name in os.listdir(folder):
        try:
            found.add(f"{name} {os.readlink(f'{folder}/{name}')}")
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
    return found
