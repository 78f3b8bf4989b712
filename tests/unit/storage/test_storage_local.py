"""Local files: one hop per read, few files open, typed errors."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest

from aiostream_data.errors import (
    AccessDeniedError,
    NoMatchError,
    ObjectChangedError,
    ObjectNotFoundError,
    ShortReadError,
)
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import local_listing
from aiostream_data.storage.blocking_calls import run_to_end
from aiostream_data.storage.descriptors import DescriptorCache
from aiostream_data.storage.local import LocalStore
from aiostream_data.testing.conformance import read_range


def use(case: Callable[[LocalStore], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        store = LocalStore(asyncio.to_thread)
        try:
            return await case(store)
        finally:
            await store.aclose()

    return asyncio.run(main())


def test_a_read_takes_one_hop_to_a_thread(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    hops: list[object] = []

    async def counting(function: Callable[..., Any], *args: Any) -> Any:
        hops.append(function)
        return await asyncio.to_thread(function, *args)

    async def case() -> bytes:
        store = LocalStore(counting)
        try:
            return await read_range(store, ShardRef(str(tmp_path / "x")), 2, 5)
        finally:
            await store.aclose()

    assert asyncio.run(case()) == b"234"
    assert len(hops) == 1


def test_file_urls_and_relative_paths_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x.bin").write_bytes(b"abc")
    monkeypatch.chdir(tmp_path)
    for pattern in ("sub/*.bin", "sub/x.bin", "s*/x.bin", "**/*.bin"):
        assert [shard.url for shard in use(methodcaller("glob", pattern))] == ["sub/x.bin"]
    (found,) = use(lambda store: store.glob(f"file://{tmp_path}/sub/*"))
    assert found.url == f"{tmp_path}/sub/x.bin"


def test_hidden_files_and_folders_are_not_matched(tmp_path: Path) -> None:
    for name in (".hidden", ".git/x", "x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
    assert [shard.url for shard in use(lambda store: store.glob(f"{tmp_path}/**"))] == [f"{tmp_path}/x"]


def test_links_in_a_circle_do_not_trap_the_search(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "up").symlink_to(tmp_path)
    (tmp_path / "sub" / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "sub" / "x").write_bytes(b"1")
    assert [shard.url for shard in use(lambda store: store.glob(f"{tmp_path}/**"))] == [f"{tmp_path}/sub/x"]


def missing(tmp_path: Path, name: str) -> str:
    """Return the part of the error that lists the files of the folder."""
    with pytest.raises((ObjectNotFoundError, NoMatchError)) as caught:
        use(lambda store: store.glob(f"{tmp_path}/{name}"))
    return str(caught.value).partition("; the folder contains ")[2]


@pytest.mark.parametrize("name", ["t-9.tfrecord", "t-?9.tfrecord", "T-9.tfrecord"])
def test_the_error_of_a_missing_name_shows_the_nearest_names_first_and_counts_the_others(
    tmp_path: Path, name: str
) -> None:
    near = [f"t-{number}.tfrecord" for number in range(4)]
    for other in (*near, "tar.txt", "text.tfrecord.gz", *(f"image-{number}.png" for number in range(20))):
        (tmp_path / other).touch()
    assert missing(tmp_path, name) == f"{', '.join(map(repr, [*near, 'text.tfrecord.gz']))} and 21 more"


def test_the_nearest_names_are_found_among_thousands(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"data-{number:05}.bin").touch()
    (tmp_path / "train-00.txt").touch()
    assert missing(tmp_path, "trian-00.txt").startswith("'train-00.txt', 'data-")
    assert missing(tmp_path, "trian-00.txt").endswith(" and 2,996 more")


def test_of_a_folder_with_very_many_files_only_some_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_listing, "LISTED_FILES", 8)
    for number in range(30):
        (tmp_path / f"x{number}").touch()
    assert missing(tmp_path, "y*").endswith(" and at least 3 more")


def test_a_folder_is_shown_to_a_pattern_that_may_lack_a_level(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.jpeg").touch()
    (tmp_path / "validation").mkdir()
    assert missing(tmp_path, "*.jpg").endswith(", 'validation/' and 5 more")


def test_a_folder_is_not_an_object(tmp_path: Path) -> None:
    for case in (
        lambda store: store.info(str(tmp_path)),
        lambda store: store.glob(str(tmp_path)),
        lambda store: read_range(store, ShardRef(str(tmp_path)), 0, 1),
    ):
        with pytest.raises(ObjectNotFoundError, match="directory"):
            use(case)


def test_a_pipe_is_not_an_object(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ObjectNotFoundError, match="regular"):
        use(lambda store: store.info(str(tmp_path / "pipe")))


def test_a_missing_file_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match=r"gone\.bin"):
        use(lambda store: store.info(str(tmp_path / "gone.bin")))
    with pytest.raises(NoMatchError, match=r"gone/\*.bin"):
        use(lambda store: store.glob(str(tmp_path / "gone" / "*.bin")))


def test_an_unreadable_file_is_access_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b"1")

    def refuse(path: str, *args: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", path)  # the superuser would not be refused

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(AccessDeniedError):
        use(lambda store: read_range(store, ShardRef(str(tmp_path / "x")), 0, 1))


def test_a_file_written_to_since_it_was_listed_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")

    async def case(store: LocalStore) -> None:
        shard = await store.info(str(path))
        assert await read_range(store, shard, 0, 1) == b"0"
        path.write_bytes(b"shorter")
        with pytest.raises(ObjectChangedError):
            await read_range(store, shard, 0, 1)

    use(case)


def test_negative_offsets_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    with pytest.raises(ShortReadError):
        use(lambda store: store.read_into(ShardRef(str(tmp_path / "x")), -1, memoryview(bytearray(1))))


def test_at_most_so_many_files_stay_open(tmp_path: Path) -> None:
    cache = DescriptorCache(max_open=2)
    seen = []
    for number in range(5):
        (tmp_path / str(number)).write_bytes(b"1")
        with cache.borrow(str(tmp_path / str(number))) as descriptor:
            seen.append(descriptor)
    still_open = [descriptor for descriptor in set(seen) if _is_open(descriptor)]
    assert len(still_open) == 2
    cache.close()
    assert not any(map(_is_open, seen))


def test_a_file_evicted_while_borrowed_is_closed_by_its_borrower(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode())
    cache = DescriptorCache(max_open=1)
    with cache.borrow(str(tmp_path / "a")) as first:
        with cache.borrow(str(tmp_path / "b")):
            assert os.pread(first, 1, 0) == b"a"
        cache.close()
        assert _is_open(first)
    assert not _is_open(first)


def test_idle_files_are_closed_if_the_process_has_too_many(tmp_path: Path) -> None:
    opened: list[int] = []

    def open_file(path: str) -> int:
        if sum(map(_is_open, set(opened))) == 2:  # numbers are used again
            raise OSError(errno.EMFILE, "Too many open files", path)
        opened.append(os.open(path, os.O_RDONLY))
        return opened[-1]

    for name in "abcd":
        (tmp_path / name).write_bytes(name.encode())
    cache = DescriptorCache(max_open=10, open_file=open_file)
    with cache.borrow(str(tmp_path / "a")) as first:
        for name in "bcd":
            with cache.borrow(str(tmp_path / name)) as descriptor:
                assert os.pread(descriptor, 1, 0) == name.encode()
        assert os.pread(first, 1, 0) == b"a"
        with cache.borrow(str(tmp_path / "b")), pytest.raises(OSError, match="Too many"):
            cache.borrow(str(tmp_path / "c")).__enter__()
    cache.close()
    assert not any(map(_is_open, opened))


def test_borrowing_after_closing_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    cache = DescriptorCache(max_open=1)
    cache.close()
    with cache.borrow(str(tmp_path / "a")) as descriptor:
        assert os.pread(descriptor, 1, 0) == b"a"
    assert not _is_open(descriptor)


def test_a_cancelled_call_waits_until_the_thread_has_let_go_of_the_buffer() -> None:
    async def case() -> None:
        started, may_end = threading.Event(), threading.Event()
        ended: list[bool] = []

        def work() -> None:
            started.set()
            may_end.wait()
            ended.append(True)

        call = asyncio.ensure_future(run_to_end(asyncio.to_thread, work))
        await asyncio.to_thread(started.wait)
        call.cancel()
        await asyncio.sleep(0)
        call.cancel()  # impatience does not help
        await asyncio.sleep(0)
        assert not call.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert ended == [True]

    asyncio.run(case())


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
