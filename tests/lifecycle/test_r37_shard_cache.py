"""R37: processes share a cache that evicts, while they are killed and the disk is full.

No wrong byte, no hang, nothing removed that the cache did not make, and the limit respected.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from leaks import leaves_nothing

import aiostream_data as asd
from aiostream_data import Dataset, ShardCache
from aiostream_data.storage.cache import names
from aiostream_data.storage.cache.spans import ByteSpan

PROGRAM = Path(__file__).with_name("cache_program.py")
DISK = 20 << 20
LIMIT = 16 << 20
KILLS = 8
WAIT_S = 60.0


@pytest.fixture
def shared_folder(tmp_path: Path) -> Iterator[Path]:
    """A file system of 20 MB where this may mount one, else a folder."""
    with _disk(tmp_path / "disk"):
        yield tmp_path / "disk"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 20 MB."""
    with _disk(tmp_path / "disk") as is_small:
        if not is_small:
            pytest.skip("no file system can be mounted here; test_shard_cache_folder.py has full disks too")
        yield tmp_path / "disk"


@contextmanager
def _disk(path: Path) -> Iterator[bool]:
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(path)]
    is_mounted = sys.platform == "linux" and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", str(path)], check=True)


class Reader:
    """A running program that reads through the cache."""

    def __init__(self, folder: Path, limit: int | str, seed: int, reads: int) -> None:
        command = [sys.executable, str(PROGRAM), str(folder), str(limit), str(seed), str(reads)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait_for_reads(self, count: int) -> None:
        """Wait until it has made so many more; it fails when it ends before."""
        assert self.process.stdout is not None
        assert self.process.stdout.read(count) == b"." * count, self.process.communicate(timeout=WAIT_S)[1].decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=WAIT_S)
        assert self.process.returncode == -signal.SIGKILL

    def finish(self) -> tuple[dict[str, int], str]:
        """Wait for its end; return what the cache counted, and what was logged."""
        said, log = self.process.communicate(timeout=WAIT_S)
        assert self.process.returncode == 0, log.decode()
        return json.loads(said.splitlines()[-1]), log.decode()


def held_nbytes(folder: Path) -> int:
    """Return the room that the cache's pieces and parts take which are there at one moment, at least."""
    before, after = _files(folder), _files(folder)
    return sum(-(-status[2] // 4096) * 4096 for _, status in before.items() & after.items())


def _files(folder: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for place, _, inside in os.walk(folder):
        for name in inside:
            if names.span_in(name) or names.part_owner_in(name):
                with suppress(FileNotFoundError):
                    status = os.stat(os.path.join(place, name))
                    found[os.path.join(place, name)] = status.st_ino, status.st_mtime_ns, status.st_size
    return found


def put_what_is_not_the_caches(folder: Path, outside: Path) -> dict[Path, bytes]:
    """Put files and links into a folder that is going to be a cache; return what must be there in the end."""
    outside.mkdir()
    (outside / names.piece_name(ByteSpan(0, 10))).write_bytes(b"precious")
    folder.mkdir(exist_ok=True)
    (folder / "readme.txt").write_bytes(b"precious")
    (folder / "mine.piece").write_bytes(b"precious")
    (folder / names.shard_name("a" * 40)).symlink_to(outside)
    (folder / "part-1").symlink_to(outside / "nothing")
    return {path: path.read_bytes() for path in [*outside.iterdir(), folder / "readme.txt", folder / "mine.piece"]}


def test_processes_that_share_evict_and_are_killed_read_no_wrong_byte(shared_folder: Path, tmp_path: Path) -> None:
    rng = random.Random(37)
    precious = put_what_is_not_the_caches(shared_folder, tmp_path / "outside")
    most = 0
    with leaves_nothing():
        readers = [Reader(shared_folder, LIMIT, seed, 100_000) for seed in range(2)]
        for kill in range(KILLS):
            victim = rng.randrange(2)
            readers[victim].wait_for_reads(rng.randrange(1, 40))
            most = max(most, held_nbytes(shared_folder))
            readers[victim].kill()
            readers[victim] = Reader(shared_folder, LIMIT, 100 + kill, 100_000)
            most = max(most, held_nbytes(shared_folder))
        for reader in readers:
            reader.wait_for_reads(1)
            reader.kill()
        counted, log = Reader(shared_folder, LIMIT, 1000, 90).finish()
    assert most <= LIMIT
    assert held_nbytes(shared_folder) <= LIMIT
    assert most > LIMIT // 2
    assert counted["hits"] > 0
    assert counted["evictions"] > 0
    assert (counted["damaged"], counted["failures"], log) == (0, 0, "")
    assert {path: path.read_bytes() for path in precious} == precious
    assert (shared_folder / names.shard_name("a" * 40)).is_symlink()
    assert (shared_folder / "part-1").is_symlink()
    left = [name for name in os.listdir(shared_folder) if names.claim_in(name) or names.part_owner_in(name)]
    assert left == []


def test_processes_whose_disk_is_full_stream_on_with_one_warning_each(small_disk: Path, tmp_path: Path) -> None:
    precious = put_what_is_not_the_caches(small_disk, tmp_path / "outside")
    with leaves_nothing():
        readers = [Reader(small_disk, "1GB", seed, 90) for seed in range(2)]
        for counted, log in [reader.finish() for reader in readers]:
            assert counted["passed"] > 0
            assert log.count("No space left on device") == 1
            assert len(log.splitlines()) == 1
    assert {path: path.read_bytes() for path in precious} == precious
    assert not [name for name in os.listdir(small_disk) if names.part_owner_in(name)]


def test_a_loader_whose_disk_is_full_gives_every_record(
    small_disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shards = []
    for number in range(4):
        shards.append(str(tmp_path / f"{number}.tfrecord"))
        with asd.TFRecordWriter(shards[-1]) as writer:
            for row in range(64):
                writer.write(f"{number} {row}".encode() + bytes(130_000))
    cache = ShardCache(small_disk / "cache", limit="1GB", local=True)
    dataset = Dataset.from_tfrecord(shards)
    expected = list(dataset)
    with leaves_nothing(), caplog.at_level(logging.WARNING, "aiostream_data"):
        for _ in range(2):
            with dataset.open(shard_cache=cache) as loader:
                assert list(loader) == expected
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "the folder cannot be written (No space left on device)" in warnings[0]
    assert cache.stats().hits > 0
