"""A cache folder gives back what was put there or nothing, keeps to its limit, and removes only what it made."""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from aiostream_data.errors import ShardCacheError
from aiostream_data.storage.cache import names, piece_file
from aiostream_data.storage.cache.counters import CacheCounters
from aiostream_data.storage.cache.folder import RETRY_S, PieceFolder
from aiostream_data.storage.cache.owners import ABANDONED_S, is_abandoned, new_owner, this_host
from aiostream_data.storage.cache.piece_file import disk_nbytes
from aiostream_data.storage.cache.spans import ByteSpan, Missing

KEYS = [f"{number:040x}" for number in range(16)]
PIECE = 8192
NOBODY = 2**22 + 77
"""A number that no process has."""


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Folder:
    """An open cache, and what it counts."""

    def __init__(self, path: Path, limit: int = 1 << 20) -> None:
        self.counters = CacheCounters()
        self.clock = Clock()
        self.pieces = PieceFolder(str(path), limit, self.counters, PIECE, self.clock, lambda: 0.5)

    def put(self, key: str, start: int, stop: int) -> None:
        self.pieces.write(key, ByteSpan(start, stop), memoryview(content(key, start, stop)))
        self.clock.now += 10  # so that every use is noted

    def missing(self, key: str, start: int, stop: int) -> Missing:
        """Read, check what was found, and return what was not."""
        buffer = bytearray(b"\xaa" * (stop - start))
        missing = self.pieces.read(key, ByteSpan(start, stop), memoryview(buffer))
        for fetch in missing.fetches:
            buffer[fetch.start - start : fetch.stop - start] = content(key, *fetch)
        assert bytes(buffer) == content(key, start, stop)
        self.clock.now += 10
        return missing


@pytest.fixture
def open_folder(tmp_path: Path) -> Iterator[Callable[..., Folder]]:
    """Open caches in one folder; all are closed after the test."""
    opened: list[Folder] = []

    def make(limit: int = 1 << 20) -> Folder:
        opened.append(Folder(tmp_path / "cache", limit))
        return opened[-1]

    yield make
    for folder in opened:
        folder.pieces.close()


def content(key: str, start: int, stop: int) -> bytes:
    return whole(key)[start:stop]


@cache
def whole(key: str) -> bytes:
    return random.Random(key).randbytes(1 << 17)


def files_in(path: Path) -> list[Path]:
    return sorted(found for found in path.rglob("*") if found.is_file())


def pieces_in(path: Path) -> list[Path]:
    return [found for found in files_in(path) if found.suffix == ".piece"]


def held_nbytes(path: Path) -> int:
    return sum(-(-found.stat().st_size // 4096) * 4096 for found in pieces_in(path))


NOTHING = Missing()

# -- bytes


def test_what_was_put_is_read_by_any_range_and_by_another_process(open_folder: Callable[..., Folder]) -> None:
    first, second = open_folder(), open_folder()
    first.put(KEYS[0], 100, 30_000)
    for start, stop in [(100, 30_000), (100, 101), (29_999, 30_000), (8_000, 9_000), (8292, 16484)]:
        assert second.missing(KEYS[0], start, stop) == NOTHING
    assert second.missing(KEYS[0], 0, 30_100).gaps == (ByteSpan(0, 100), ByteSpan(30_000, 30_100))
    assert second.missing(KEYS[1], 0, 10) == ((ByteSpan(0, 10),), (ByteSpan(0, 10),))


def test_a_flipped_bit_anywhere_is_noticed_removed_and_written_anew(
    open_folder: Callable[..., Folder], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = open_folder()
    folder.put(KEYS[0], 0, 500)
    (piece,) = pieces_in(tmp_path)
    good = piece.read_bytes()
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1 << at % 8
        piece.write_bytes(bad)
        assert folder.missing(KEYS[0], 0, 500).gaps == (ByteSpan(0, 500),), at
        assert not piece.exists()
        folder.put(KEYS[0], 0, 500)
        assert folder.missing(KEYS[0], 0, 500) == NOTHING
    assert folder.counters.stats().damaged == len(good)
    assert len(caplog.messages) == 1
    assert "read from the store again" in caplog.text


@pytest.mark.parametrize("keep", [0, 7, 60, 300])
def test_a_piece_that_was_cut_short_is_not_used(open_folder: Callable[..., Folder], tmp_path: Path, keep: int) -> None:
    folder = open_folder()
    folder.put(KEYS[0], 0, 500)
    (piece,) = pieces_in(tmp_path)
    os.truncate(piece, keep)
    assert folder.missing(KEYS[0], 0, 500).gaps == (ByteSpan(0, 500),)


def test_a_piece_under_another_name_is_not_used(open_folder: Callable[..., Folder], tmp_path: Path) -> None:
    folder = open_folder()
    folder.put(KEYS[0], 0, 500)
    folder.put(KEYS[1], 0, 100)
    (piece,) = (tmp_path / "cache" / names.shard_name(KEYS[0])).glob("*.piece")
    other = tmp_path / "cache" / names.shard_name(KEYS[1])
    os.link(piece, other / names.piece_name(ByteSpan(0, 500)))
    os.link(piece, piece.parent / names.piece_name(ByteSpan(500, 1000)))
    assert folder.missing(KEYS[1], 0, 500).gaps == (ByteSpan(100, 500),)
    assert folder.missing(KEYS[0], 0, 1000).gaps == (ByteSpan(500, 1000),)


def test_processes_with_and_without_the_native_core_read_each_others_pieces(
    open_folder: Callable[..., Folder], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = open_folder()
    for key, kind in zip(KEYS, (1, 2), strict=False):
        monkeypatch.setattr(piece_file, "_KIND", kind)
        folder.put(key, 0, 500)
    assert [folder.missing(key, 0, 500) for key in KEYS[:2]] == [NOTHING, NOTHING]
    assert folder.counters.stats().damaged == 0


# -- the limit, and what is evicted


def test_the_limit_is_kept_and_of_equal_draws_what_was_used_longest_ago_goes(
    open_folder: Callable[..., Folder], tmp_path: Path
) -> None:
    room = disk_nbytes(ByteSpan(0, PIECE))
    folder = open_folder(4 * room)
    for key in KEYS[:3]:
        folder.put(key, 0, PIECE)
        settle(tmp_path)
    assert folder.missing(KEYS[0], 0, PIECE) == NOTHING  # used again: KEYS[1] is the oldest one now
    for key in KEYS[3:5]:
        settle(tmp_path)
        folder.put(key, 0, PIECE)
        assert held_nbytes(tmp_path) <= 4 * room
    assert folder.missing(KEYS[1], 0, PIECE).gaps
    for key in (KEYS[0], KEYS[2], KEYS[3], KEYS[4]):
        assert folder.missing(key, 0, PIECE) == NOTHING
    assert folder.counters.stats().evictions == 1
    assert not (tmp_path / "cache" / names.shard_name(KEYS[1])).exists()


def settle(path: Path) -> None:
    """Let what was used so far be a second older, as the file system tells it."""
    for used in path.rglob(names.USED):
        was_ns = used.stat().st_mtime_ns
        os.utime(used, ns=(was_ns, was_ns - 10**9))


def test_what_is_pinned_stays_and_the_new_is_passed(open_folder: Callable[..., Folder], tmp_path: Path) -> None:
    room = disk_nbytes(ByteSpan(0, PIECE))
    folder = open_folder(2 * room)
    folder.put(KEYS[0], 0, 2 * PIECE)
    with folder.pieces.pinned(KEYS[0]):
        folder.put(KEYS[1], 0, PIECE)
        assert folder.missing(KEYS[0], 0, 2 * PIECE) == NOTHING
    assert folder.counters.stats().passed == 1
    folder.put(KEYS[1], 0, PIECE)
    assert folder.missing(KEYS[1], 0, PIECE) == NOTHING
    assert held_nbytes(tmp_path) <= 2 * room


def test_a_read_goes_on_in_a_piece_that_was_evicted_meanwhile(open_folder: Callable[..., Folder]) -> None:
    folder, other = open_folder(), open_folder()
    folder.put(KEYS[0], 0, 100)
    with other.pieces._tree.opened_piece(KEYS[0], ByteSpan(0, 100)) as file:
        assert folder.pieces._tree.remove(KEYS[0], ByteSpan(0, 100))
        assert os.pread(file, 100, os.fstat(file).st_size - 100) == content(KEYS[0], 0, 100)


def test_what_another_process_is_going_to_write_counts(open_folder: Callable[..., Folder], tmp_path: Path) -> None:
    room = disk_nbytes(ByteSpan(0, PIECE))
    folder = open_folder(3 * room)
    other = tmp_path / "cache" / names.claim_name(new_owner(), 2 * room)
    other.touch()
    folder.put(KEYS[0], 0, 2 * PIECE)
    assert len(pieces_in(tmp_path)) == 1
    assert other.exists()
    other.unlink()
    folder.put(KEYS[0], 0, PIECE)
    assert len(pieces_in(tmp_path)) == 2


def test_writers_at_once_never_pass_the_limit_together(open_folder: Callable[..., Folder], tmp_path: Path) -> None:
    limit = 12 * disk_nbytes(ByteSpan(0, PIECE))
    folders = [open_folder(limit) for _ in range(4)]
    over: list[int] = []
    done = threading.Event()

    def write(folder: Folder, seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(60):
            start = rng.randrange(8) * PIECE
            folder.put(rng.choice(KEYS), start, start + PIECE)

    def watch() -> None:
        while not done.is_set():
            before, after = _existing(tmp_path), _existing(tmp_path)
            together = before.items() & after.items()  # there at one moment: when the first look was over
            over.append(len(together) * disk_nbytes(ByteSpan(0, PIECE)))

    watcher = threading.Thread(target=watch)
    writers = [threading.Thread(target=write, args=(folder, seed)) for seed, folder in enumerate(folders)]
    watcher.start()
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    watcher.join()
    assert max(over) <= limit
    assert sum(folder.counters.stats().evictions for folder in folders) > 0
    assert sum(folder.counters.stats().failures for folder in folders) == 0


def _existing(path: Path) -> dict[Path, tuple[int, int]]:
    found = {}
    for folder, _, inside in os.walk(path / "cache"):  # which passes over folders that are removed meanwhile
        for piece in (Path(folder, name) for name in inside if name.endswith(".piece")):
            with suppress(FileNotFoundError):
                status = piece.stat()
                found[piece] = status.st_ino, status.st_mtime_ns
    return found


# -- whose files


def test_nothing_is_removed_that_the_cache_did_not_make(open_folder: Callable[..., Folder], tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / names.piece_name(ByteSpan(0, 10))).write_bytes(b"mine")
    folder_path = tmp_path / "cache"
    folder_path.mkdir()
    (folder_path / "notes.txt").write_bytes(b"mine")
    (folder_path / "part-of-mine").write_bytes(b"mine")
    (folder_path / names.shard_name(KEYS[9])).symlink_to(outside)
    (folder_path / names.shard_name(KEYS[8])).write_bytes(b"mine")
    (folder_path / names.claim_name(f"{this_host()}-{NOBODY}-1-{'0' * 8}", 5)).symlink_to(outside / "claim")
    room = disk_nbytes(ByteSpan(0, PIECE))
    folder = open_folder(2 * room)
    folder.put(KEYS[0], 0, PIECE)
    (folder_path / names.shard_name(KEYS[0]) / "mine.piece.txt").write_bytes(b"mine")
    (folder_path / names.shard_name(KEYS[0]) / "0-7.piece").symlink_to(outside / names.piece_name(ByteSpan(0, 10)))
    before = {path: path.lstat().st_mode for path in tmp_path.rglob("*") if b"mine" in _bytes_of(path)}
    links = [path for path in tmp_path.rglob("*") if path.is_symlink()]
    assert len(before) >= 5
    assert len(links) == 3
    for key in KEYS[1:8]:
        folder.put(key, 0, 2 * PIECE)
    assert folder.counters.stats().evictions > 5
    for key in KEYS[8:10]:
        folder.put(key, 0, 10)  # where the folder should be is a file, or a link
        folder.missing(key, 0, 10)
    assert all(path.lstat().st_mode == mode for path, mode in before.items())
    assert all(path.is_symlink() for path in links)
    assert sorted(os.listdir(outside)) == [names.piece_name(ByteSpan(0, 10))]


def _bytes_of(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def test_what_killed_processes_left_is_removed_and_what_living_ones_write_is_not(
    open_folder: Callable[..., Folder], tmp_path: Path
) -> None:
    open_folder()
    folder_path = tmp_path / "cache"
    dead = f"{this_host()}-{NOBODY}-12345-{'0' * 8}"
    reused = f"{this_host()}-{os.getpid()}-1-{'0' * 8}"  # a process of this number, but another one
    elsewhere = f"{'0' * 12}-1-1-{'0' * 8}"
    left = [folder_path / name for owner in (dead, reused) for name in _names_of(owner)]
    kept = [folder_path / name for owner in (new_owner(), elsewhere) for name in _names_of(owner)]
    for path in left + kept:
        path.write_bytes(b"half")
    open_folder()
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in kept)
    for path in kept[2:]:
        long_ago = path.stat().st_mtime - 2 * ABANDONED_S
        os.utime(path, (long_ago, long_ago))
    open_folder()
    assert [path.exists() for path in kept] == [True, True, False, False]


def test_a_folder_that_a_killed_process_left_empty_is_removed(
    open_folder: Callable[..., Folder], tmp_path: Path
) -> None:
    folder = open_folder()
    left, new = (tmp_path / "cache" / names.shard_name(key) for key in KEYS[:2])
    left.mkdir()
    new.mkdir()
    os.utime(left, (1, 1))
    folder.put(KEYS[2], 0, 10)
    assert not left.exists()
    assert new.exists()


def _names_of(owner: str) -> list[str]:
    return [names.part_name(owner, 3), names.claim_name(owner, 5)]


def test_a_process_of_this_host_is_alive_as_long_as_it_runs() -> None:
    assert not is_abandoned(new_owner(), 1e9, this_host())
    assert is_abandoned(f"{this_host()}-{NOBODY}-0-{'0' * 8}", 0.0, this_host())


def test_a_closed_cache_leaves_no_claim(open_folder: Callable[..., Folder], tmp_path: Path) -> None:
    folder = open_folder()
    folder.put(KEYS[0], 0, 10)
    assert any(names.claim_in(name) for name in os.listdir(tmp_path / "cache"))
    folder.pieces.close()
    assert not any(names.claim_in(name) for name in os.listdir(tmp_path / "cache"))


# -- disks that fail


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["write", "rename", "mkdir"])
def test_a_disk_that_refuses_is_warned_of_once_and_tried_again_later(
    open_folder: Callable[..., Folder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: int,
    call: str,
) -> None:
    folder = open_folder()

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, refuse)
    with caplog.at_level(logging.WARNING, "aiostream_data"):
        for key in KEYS[:5]:
            folder.put(key, 0, 3 * PIECE)
            assert folder.missing(key, 0, PIECE).gaps
    monkeypatch.undo()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert os.strerror(code) in caplog.text
    assert not [path for path in files_in(tmp_path) if path.name.startswith("part-")]
    folder.clock.now += RETRY_S
    folder.put(KEYS[0], 0, PIECE)
    assert folder.missing(KEYS[0], 0, PIECE) == NOTHING


def test_a_folder_that_vanishes_while_it_is_used_ends_nothing(
    open_folder: Callable[..., Folder], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = open_folder()
    folder.put(KEYS[0], 0, PIECE)
    (tmp_path / "cache").rename(tmp_path / "elsewhere")
    for path in sorted((tmp_path / "elsewhere").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / "elsewhere").rmdir()
    assert folder.missing(KEYS[0], 0, PIECE).gaps
    folder.put(KEYS[0], 0, PIECE)
    assert len(caplog.messages) == 1


# -- folders that cannot be used


def test_a_file_where_the_folder_should_be_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"mine")
    for path in (tmp_path / "cache", tmp_path / "cache" / "below"):
        with pytest.raises(ShardCacheError, match="is a file, not a folder") as caught:
            Folder(path)
        assert caught.value.folder == str(path)
        assert isinstance(caught.value, OSError)


def test_a_folder_that_cannot_be_written_to_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Any, flags: int, *args: Any, **kwargs: Any) -> Any:
        if flags & os.O_CREAT:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real_open(path, flags, *args, **kwargs)

    real_open = os.open
    for prepared in (False, True):
        monkeypatch.setattr(os, "open", refuse)
        with pytest.raises(ShardCacheError, match="Permission denied; pass the path of a writable folder"):
            Folder(tmp_path / "cache")
        monkeypatch.undo()
        if not prepared:
            Folder(tmp_path / "cache").pieces.close()


def test_a_folder_of_another_version_is_an_error_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / names.MARKER).write_text(json.dumps({"version": 2}))
    with pytest.raises(ShardCacheError, match="has version 2 of the cache format, expected 1"):
        Folder(tmp_path)
    assert os.listdir(tmp_path) == [names.MARKER]


@pytest.mark.parametrize("said", ["[]", "{", '"x"', "\xff", "{}"])
def test_a_damaged_mark_is_an_error(tmp_path: Path, said: str) -> None:
    (tmp_path / names.MARKER).write_text(said, "latin-1")
    with pytest.raises(ShardCacheError, match="damaged"):
        Folder(tmp_path)


def test_a_mark_that_a_power_cut_left_empty_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / names.MARKER).touch()
    Folder(tmp_path).pieces.close()
    assert json.loads((tmp_path / names.MARKER).read_text())["version"] == 1
