"""What stands in a cache folder under a name of the cache, and is no regular file: never waited for, never touched."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aiostream_data.errors import ShardCacheError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import memory
from aiostream_data.storage.cache import names
from aiostream_data.storage.cache.counters import CacheCounters
from aiostream_data.storage.cache.folder import PieceFolder
from aiostream_data.storage.cache.options import ShardCache
from aiostream_data.storage.cache.owners import this_host
from aiostream_data.storage.cache.piece_file import disk_nbytes
from aiostream_data.storage.cache.spans import ByteSpan
from aiostream_data.storage.stores import StoreSet

pytestmark = pytest.mark.timeout(30)

KEY, OTHER = "0" * 40, "1" * 40
PIECE = 4096
DATA = memoryview(bytes(range(256)) * 16)


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def make_folder(path: Path) -> None:
    path.mkdir()
    (path / "mine").write_bytes(b"mine")


def make_link(path: Path) -> None:
    target = path.parent.parent / "mine"
    target.write_bytes(b"mine")
    path.symlink_to(target)


def make_dangling_link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "nowhere")


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


MAKERS = [make_pipe, make_socket, make_folder, make_link, make_dangling_link, make_device]
Make = Callable[[Path], None]
Put = Callable[[Make, Path], None]


class Cache:
    """A cache folder in which an object may be kept."""

    def __init__(self, path: Path, limit: int = 1 << 24) -> None:
        self.counters = CacheCounters()
        self.pieces = PieceFolder(str(path), limit, self.counters, PIECE)

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.pieces.close()

    def write(self, key: str = KEY) -> None:
        self.pieces.write(key, ByteSpan(0, PIECE), DATA)

    def hits(self, key: str = KEY) -> bool:
        buffer = bytearray(PIECE)
        missing = self.pieces.read(key, ByteSpan(0, PIECE), memoryview(buffer))
        assert missing.fetches or bytes(buffer) == bytes(DATA)
        return not missing.fetches


def kind_of(path: Path) -> int:
    return stat.S_IFMT(path.lstat().st_mode)


@pytest.fixture
def put() -> Iterator[Put]:
    """Make entries in folders of a cache; each must be of the same kind when the test is over."""
    kinds: dict[Path, int] = {}

    def make_in(make: Make, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        make(path)
        kinds[path] = kind_of(path)

    yield make_in
    assert {path: kind_of(path) for path in kinds} == kinds


@pytest.mark.parametrize("make", MAKERS)
def test_an_entry_named_used_is_left_alone_and_pieces_are_still_kept(
    make: Make, put: Put, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    used = tmp_path / "cache" / names.shard_name(KEY) / names.USED
    with Cache(tmp_path / "cache") as cache, caplog.at_level(logging.WARNING):
        put(make, used)
        cache.write()
        assert cache.hits()
    (warning,) = caplog.records
    assert f"{names.USED} was not created by the cache" in warning.getMessage()
    assert str(tmp_path / "cache") in warning.getMessage()


@pytest.mark.parametrize("make", MAKERS)
def test_an_entry_in_the_place_of_a_piece_is_left_alone_and_the_disk_is_not_to_blame(
    make: Make, put: Put, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    piece = tmp_path / "cache" / names.shard_name(KEY) / names.piece_name(ByteSpan(0, PIECE))
    with Cache(tmp_path / "cache") as cache, caplog.at_level(logging.WARNING):
        put(make, piece)
        cache.write()
        assert not cache.hits()
        cache.write(OTHER)
        assert cache.hits(OTHER)
        assert cache.counters.stats().passed == 1
        assert sorted(os.listdir(piece.parent)) == [piece.name]  # and no part is left behind
    assert not [name for name in os.listdir(tmp_path / "cache") if name.startswith("part-")]
    assert piece.name in caplog.records[0].getMessage()


@pytest.mark.parametrize("make", MAKERS)
def test_a_piece_that_turns_into_something_else_is_read_from_the_store(make: Make, put: Put, tmp_path: Path) -> None:
    piece = tmp_path / "cache" / names.shard_name(KEY) / names.piece_name(ByteSpan(0, PIECE))
    with Cache(tmp_path / "cache") as cache:
        cache.write()
        assert cache.hits()  # and so the piece is known for a second
        piece.unlink()
        put(make, piece)
        assert not cache.hits()


@pytest.mark.parametrize("make", [make_pipe, make_socket, make_link, make_dangling_link, make_device])
def test_an_entry_in_the_place_of_an_objects_folder_is_left_alone(make: Make, put: Put, tmp_path: Path) -> None:
    place = tmp_path / "cache" / names.shard_name(KEY)
    with Cache(tmp_path / "cache") as cache:
        put(make, place)
        cache.write()
        assert not cache.hits()
        cache.write(OTHER)
        assert cache.hits(OTHER)


@pytest.mark.parametrize("make", MAKERS)
def test_an_entry_in_the_place_of_the_marker_is_an_error_that_names_it(make: Make, put: Put, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    put(make, folder / names.MARKER)
    with pytest.raises(ShardCacheError, match="not a regular file") as caught:
        Cache(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("make", [make_pipe, make_socket, make_device])
def test_an_entry_in_the_place_of_the_cache_folder_is_an_error(make: Make, put: Put, tmp_path: Path) -> None:
    put(make, tmp_path / "below" / "cache")
    with pytest.raises(ShardCacheError):
        Cache(tmp_path / "below" / "cache")


def test_an_objects_folder_is_not_removed_while_something_else_is_in_it(put: Put, tmp_path: Path) -> None:
    room = disk_nbytes(ByteSpan(0, PIECE))
    used = tmp_path / "cache" / names.shard_name(KEY) / names.USED
    with Cache(tmp_path / "cache", limit=2 * room) as cache:
        put(make_pipe, used)
        cache.write()
        for number in range(2, 6):
            cache.write(f"{number}" * 40)
        assert cache.counters.stats().evictions


@pytest.mark.parametrize(
    "name",
    [
        "0-ffffffffffffffffffffffffffff.piece",
        "ffffffffffffffffffffff-fffffffffffffffffffffff.piece",
        "0-ffffffffffff.piece",
    ],
)
def test_a_piece_of_an_absurd_size_evicts_nothing(name: str, tmp_path: Path) -> None:
    room = disk_nbytes(ByteSpan(0, PIECE))
    with Cache(tmp_path / "cache", limit=64 * room) as cache:
        cache.write()
        (tmp_path / "cache" / names.shard_name(KEY) / name).write_bytes(b"mine")
        for number in range(2, 6):
            cache.write(f"{number}" * 40)
        assert cache.hits()
        assert cache.counters.stats().evictions == 0
    assert (tmp_path / "cache" / names.shard_name(KEY) / name).read_bytes() == b"mine"


@pytest.mark.parametrize("pid", ["99999999999999999999", "4194999", "0"])
@pytest.mark.parametrize("nbytes", ["5", "9" * 30])
def test_a_claim_with_absurd_numbers_ends_nothing(pid: str, nbytes: str, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / f"claim-{this_host()}-{pid}-1-00000000-{nbytes}").write_bytes(b"")
    with Cache(tmp_path / "cache") as cache:
        cache.write()
        assert cache.hits()


@pytest.mark.usefixtures("memory_objects")
@pytest.mark.parametrize("name", [names.USED, names.piece_name(ByteSpan(0, PIECE))])
def test_a_pipe_in_the_cache_does_not_hold_a_read(name: str, tmp_path: Path) -> None:
    async def main() -> bytes:
        memory.put("memory://bucket/object", bytes(DATA))
        stores = StoreSet({}, asyncio.to_thread, ShardCache(tmp_path / "cache", trust=True))
        try:
            shard: ShardRef = await stores.info("memory://bucket/object")
            buffer = bytearray(PIECE)
            await stores.read_into(shard, 0, memoryview(buffer))
            (folder,) = (tmp_path / "cache").glob("shard-*")
            (folder / name).unlink(missing_ok=True)
            os.mkfifo(folder / name)
            await asyncio.wait_for(stores.read_into(shard, 0, memoryview(buffer)), 10)
            return bytes(buffer)
        finally:
            await stores.aclose()

    assert asyncio.run(main()) == bytes(DATA)
