"""Local files: what is cached is read at once, many reads share a hop, and no read mixes two files."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from aiostream_data.errors import ObjectChangedError, ObjectNotFoundError, PlanError, ShortReadError, StorageError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import direct_reads, file_reads
from aiostream_data.storage.file_reads import FileRead, FileReader
from aiostream_data.storage.local import INLINE_NBYTES_PER_STEP, LocalStore
from aiostream_data.storage.read_hops import HOPS_AT_ONCE
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.conformance import read_range

BLOCK = 100_000


def use(case: Callable[[LocalStore, list[int]], Awaitable[Any]], **options: Any) -> Any:
    """Run a case with a store, and a list to which every hop adds how many reads it carries out."""
    hops: list[int] = []

    async def counting(function: Callable[..., Any], *args: Any) -> Any:
        hops.append(len(args[0]) if isinstance(args[0], list) else 1)
        return await asyncio.to_thread(function, *args)

    async def main() -> Any:
        store = LocalStore(counting, **options)
        try:
            return await case(store, hops)
        finally:
            await store.aclose()

    return asyncio.run(main())


def write_blocks(folder: Path, count: int, nbytes: int = BLOCK) -> list[ShardRef]:
    for number in range(count):
        (folder / f"{number:03}").write_bytes(bytes([number % 256]) * nbytes)
    return [ShardRef(str(folder / f"{number:03}"), nbytes) for number in range(count)]


async def read_all(store: LocalStore, shards: Sequence[ShardRef]) -> list[bytes]:
    return list(await asyncio.gather(*(read_range(store, shard, 0, shard.nbytes or 0) for shard in shards)))


# -- how reads reach the disk -----------------------------------------------------------------


def test_reads_asked_for_together_share_hops_and_arrive_whole(tmp_path: Path) -> None:
    shards = write_blocks(tmp_path, 40, 1000)

    async def case(store: LocalStore, hops: list[int]) -> None:
        found = await read_all(store, shards)
        assert found == [bytes([number]) * 1000 for number in range(40)]
        assert sum(hops) == 40
        assert len(hops) == HOPS_AT_ONCE

    use(case)


def test_large_reads_have_a_hop_each(tmp_path: Path) -> None:
    shards = write_blocks(tmp_path, 8, 700_000)

    async def case(store: LocalStore, hops: list[int]) -> None:
        await read_all(store, shards)
        assert hops == [1] * 8

    use(case)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system cannot ask for what is cached alone")
def test_what_is_open_and_cached_needs_no_hop(tmp_path: Path) -> None:
    shards = write_blocks(tmp_path, 1)

    async def case(store: LocalStore, hops: list[int]) -> None:
        for start in range(0, 50_000, 10_000):
            assert await read_range(store, shards[0], start, start + 10_000) == bytes(10_000)
        assert sum(hops) <= 1 + 4  # the first opens it; tmp_path may be on a file system that always refuses
        if _can_read_cached(shards[0].url):
            assert sum(hops) == 1

    use(case)


def test_cached_reads_do_not_hold_the_loop_up(tmp_path: Path) -> None:
    shards = write_blocks(tmp_path, 1, 200_000)

    async def case(store: LocalStore, hops: list[int]) -> None:
        await read_range(store, shards[0], 0, 1)
        hops.clear()
        count = 3 * INLINE_NBYTES_PER_STEP // 200_000
        await asyncio.gather(*(read_range(store, shards[0], 0, 200_000) for _ in range(count)))
        assert sum(hops) >= count - INLINE_NBYTES_PER_STEP // 200_000

    use(case)


def test_a_failure_is_raised_by_the_read_that_failed_alone(tmp_path: Path) -> None:
    shards = write_blocks(tmp_path, 6, 1000)
    os.unlink(shards[2].url)

    async def case(store: LocalStore, hops: list[int]) -> None:
        results = await asyncio.gather(*(read_range(store, shard, 0, 1000) for shard in shards), return_exceptions=True)
        assert isinstance(results[2], ObjectNotFoundError)
        assert [result for result in results if not isinstance(result, bytes)] == [results[2]]

    use(case)


def test_a_read_that_is_cancelled_while_all_threads_are_busy_is_not_carried_out(tmp_path: Path) -> None:
    shards = write_blocks(tmp_path, HOPS_AT_ONCE + 1, 1000)
    carried_out: list[FileRead] = []

    async def main() -> None:
        all_busy, may_go_on = asyncio.Event(), asyncio.Event()

        async def gated(function: Callable[..., Any], reads: list[FileRead]) -> Any:
            carried_out.extend(reads)
            if len(carried_out) == HOPS_AT_ONCE:
                all_busy.set()
            await may_go_on.wait()
            return function(reads)

        store = LocalStore(gated)
        busy = [asyncio.ensure_future(read_range(store, shard, 0, 1000)) for shard in shards[:-1]]
        await all_busy.wait()
        late = asyncio.ensure_future(read_range(store, shards[-1], 0, 1000))
        await asyncio.sleep(0)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        may_go_on.set()
        assert len(await asyncio.gather(*busy)) == HOPS_AT_ONCE
        await store.aclose()

    asyncio.run(main())
    assert [read.path for read in carried_out] == [shard.url for shard in shards[:-1]]


def test_a_cancelled_read_lets_go_of_its_buffer_before_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = write_blocks(tmp_path, 1, 1000)
    begun, may_go_on, ended = threading.Event(), threading.Event(), threading.Event()
    fill = file_reads._fill

    def slow_fill(*args: Any) -> None:
        begun.set()
        assert may_go_on.wait(20)
        fill(*args)
        ended.set()

    monkeypatch.setattr(file_reads, "_fill", slow_fill)

    async def case(store: LocalStore, hops: list[int]) -> None:
        read = asyncio.ensure_future(read_range(store, shards[0], 0, 1000))
        assert await asyncio.to_thread(begun.wait, 20)
        read.cancel()
        await asyncio.sleep(0)
        read.cancel()  # impatience does not help
        await asyncio.sleep(0)
        assert not read.done()
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await read
        assert ended.is_set()

    use(case)


def test_a_hop_that_cannot_begin_fails_its_reads(tmp_path: Path) -> None:
    async def refuse(function: Callable[..., Any], *args: Any) -> Any:
        raise RuntimeError("executor is closed")

    async def main() -> None:
        store = LocalStore(refuse)
        with pytest.raises(StorageError, match="RuntimeError"):
            await read_range(store, ShardRef(str(tmp_path / "x")), 0, 1)
        await store.aclose()

    asyncio.run(main())


# -- files that are not what they were --------------------------------------------------------


def test_another_file_of_the_same_time_and_size_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old" * 1000)
    times = os.stat(path)

    async def case(store: LocalStore, hops: list[int]) -> None:
        shard = await store.info(str(path))
        await read_range(store, shard, 0, 3)
        store._reader._descriptors.forget(str(path))  # as when many files were opened since
        (tmp_path / "y").write_bytes(b"new" * 1000)
        os.utime(tmp_path / "y", ns=(times.st_atime_ns, times.st_mtime_ns))
        os.replace(tmp_path / "y", path)
        with pytest.raises(ObjectChangedError, match="replaced"):
            await read_range(store, shard, 3, 6)

    use(case)


def test_a_file_that_is_kept_open_is_read_to_its_end_after_it_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old" * 1000)

    async def case(store: LocalStore, hops: list[int]) -> None:
        shard = await store.info(str(path))
        await read_range(store, shard, 0, 3)
        (tmp_path / "y").write_bytes(b"newer" * 1000)
        os.replace(tmp_path / "y", path)
        assert await read_range(store, shard, 3, 6) == b"old"
        listed_anew = await store.info(str(path))
        assert await read_range(store, listed_anew, 0, 5) == b"newer"

    use(case)


def test_a_file_of_another_size_than_listed_is_noticed_without_a_version(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(10))
    with pytest.raises(ObjectChangedError, match="had 9 bytes"):
        use(lambda store, hops: read_range(store, ShardRef(str(tmp_path / "x"), 9), 0, 9))


@pytest.mark.parametrize("start", [-1, 11, 1 << 62, 1 << 70])
def test_offsets_beyond_the_file_are_short_reads_whether_it_is_open_or_not(tmp_path: Path, start: int) -> None:
    (tmp_path / "x").write_bytes(bytes(10))
    shard = ShardRef(str(tmp_path / "x"))

    async def case(store: LocalStore, hops: list[int]) -> None:
        for _ in range(2):
            several = (store.read_into(shard, start, memoryview(bytearray(1))) for _ in range(HOPS_AT_ONCE + 2))
            failures = await asyncio.gather(*several, return_exceptions=True)
            assert {type(failure) for failure in failures} == {ShortReadError}

    use(case)


def test_a_file_that_shrinks_while_it_is_read_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(10_000))
    fill = file_reads._fill

    def cut_then_fill(*args: Any) -> None:
        os.truncate(path, 5_000)
        fill(*args)

    monkeypatch.setattr(file_reads, "_fill", cut_then_fill)
    with pytest.raises(ShortReadError, match="truncated to 5000 bytes"):
        use(lambda store, hops: read_range(store, ShardRef(str(path)), 0, 10_000))


def test_a_file_that_is_written_to_while_it_is_read_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(10_000))
    fill = file_reads._fill

    def fill_then_write(*args: Any) -> None:
        fill(*args)
        os.utime(path, ns=(1, 1))

    monkeypatch.setattr(file_reads, "_fill", fill_then_write)
    with pytest.raises(ObjectChangedError):
        use(lambda store, hops: read_range(store, ShardRef(str(path)), 0, 10_000))


def test_short_reads_of_the_kernel_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(bytes(range(256)) * 40)
    preadv = os.preadv

    def short(descriptor: int, buffers: Any, offset: int, *flags: int) -> int:
        return preadv(descriptor, [buffers[0][:7]], offset, *flags)

    monkeypatch.setattr(os, "preadv", short)
    found = use(lambda store, hops: read_range(store, ShardRef(str(tmp_path / "x")), 5, 1000))
    assert found == (bytes(range(256)) * 40)[5:1000]


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EMFILE])
def test_what_the_disk_says_is_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    (tmp_path / "x").write_bytes(b"1")

    def fail(*args: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(StorageError, match=os.strerror(code)) as caught:
        use(lambda store, hops: read_range(store, ShardRef(str(tmp_path / "x")), 0, 1))
    assert caught.value.url == str(tmp_path / "x")


def test_a_stale_handle_is_opened_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b"1")
    preadv, failures = os.preadv, [errno.ESTALE]

    def fail_once(*args: Any) -> int:
        if failures:
            raise OSError(failures.pop(), "Stale file handle")
        return preadv(*args)

    monkeypatch.setattr(os, "preadv", fail_once)
    assert use(lambda store, hops: read_range(store, ShardRef(str(tmp_path / "x")), 0, 1)) == b"1"


# -- what is no file, and odd files -----------------------------------------------------------


def test_a_pipe_is_refused_at_once_when_it_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ObjectNotFoundError, match="regular"):
        use(lambda store, hops: read_range(store, ShardRef(str(tmp_path / "pipe")), 0, 1))


def test_a_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match="regular"):
        use(lambda store, hops: read_range(store, ShardRef("/dev/zero"), 0, 1))


def test_names_that_are_no_text_are_found_and_read(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"odd-\xff\xfe.bin")).write_bytes(b"odd")

    async def case(store: LocalStore, hops: list[int]) -> None:
        (shard,) = await store.glob(f"{tmp_path}/odd-*.bin")
        assert await read_range(store, shard, 0, 3) == b"odd"
        assert json.loads(json.dumps(shard.url)) == shard.url  # states are JSON
        os.unlink(shard.url)
        with pytest.raises(ObjectNotFoundError) as caught:
            await store.info(shard.url)
        str(caught.value).encode("utf-8", "backslashreplace")

    use(case)


def test_holes_of_a_file_are_zeros(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(1 << 20)
        file.seek((1 << 20) - 3)
        file.write(b"end")
    for options in ({}, {"direct": True}):
        found = use(lambda store, hops: read_range(store, ShardRef(str(tmp_path / "x")), 0, 1 << 20), **options)
        assert found == bytes((1 << 20) - 3) + b"end"


# -- past the page cache ----------------------------------------------------------------------


@pytest.mark.parametrize(("start", "count"), [(0, 1), (1, 4095), (4095, 2), (0, 5_000_000), (2_097_151, 2_097_155)])
def test_direct_reads_give_the_same_bytes_at_any_offset(tmp_path: Path, start: int, count: int) -> None:
    content = os.urandom(5_000_000)
    (tmp_path / "x").write_bytes(content)
    shard = ShardRef(str(tmp_path / "x"), len(content))
    found = use(lambda store, hops: read_range(store, shard, start, start + count), direct=True)
    assert found == content[start : start + count]


def test_a_file_system_that_refuses_direct_reads_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shards = write_blocks(tmp_path, 3)

    def refuse(self: object, *args: Any) -> bool:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(direct_reads.DirectReads, "_fill", refuse)
    monkeypatch.setattr(direct_reads, "_is_direct", lambda descriptor: True)
    with caplog.at_level(logging.WARNING, "aiostream_data"):
        found = use(lambda store, hops: read_all(store, shards), direct=True)
    assert found == [bytes([number]) * BLOCK for number in range(3)]
    assert len(caplog.records) == 1


def test_a_file_that_ends_early_is_noticed_by_direct_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(bytes(10))
    reader = FileReader(direct=True)
    read = FileRead(ShardRef(str(tmp_path / "x")), str(tmp_path / "x"), 5, memoryview(bytearray(6)))
    try:
        with pytest.raises(ShortReadError):
            reader.read(read)
    finally:
        reader.close()


def test_direct_is_an_option_of_the_store() -> None:
    async def case(direct: object) -> None:
        stores = StoreSet({"file://": {"direct": direct}}, asyncio.to_thread)
        try:
            await stores.info(__file__)
        finally:
            await stores.aclose()

    asyncio.run(case(True))
    with pytest.raises(PlanError, match="direct must be True or False"):
        asyncio.run(case("yes"))


def _can_read_cached(path: str) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(descriptor, [bytearray(10)], 0, os.RWF_NOWAIT) == 10
    except OSError:
        return False
    finally:
        os.close(descriptor)


def test_reads_of_a_hop_are_announced_to_the_disk_unless_they_are_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = write_blocks(tmp_path, 3, 1000)
    reads = [FileRead(shard, shard.url, 0, memoryview(bytearray(1000))) for shard in shards]
    announced: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *args: announced.append(args[2]), raising=False)
    reader = FileReader()
    try:
        assert reader.read_all(reads) == [None] * 3
        assert announced == ([] if _can_read_cached(shards[0].url) else [1000, 1000])
        announced.clear()
        monkeypatch.setattr(file_reads, "_AT_ONCE", None)
        assert reader.read_all(reads) == [None] * 3
        assert announced == [1000, 1000]
    finally:
        reader.close()
    assert [bytes(read.buffer) for read in reads] == [bytes([number]) * 1000 for number in range(3)]
