"""Files of this machine, read with ``preadv`` straight into the caller's buffer."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from aiostream_data.errors import NoMatchError, ObjectChangedError, ObjectNotFoundError, ShortReadError
from aiostream_data.records import ShardRef
from aiostream_data.storage.base import RunBlocking
from aiostream_data.storage.blocking import run_to_end
from aiostream_data.storage.descriptors import DescriptorCache
from aiostream_data.storage.patterns import compile_pattern, plan_listing
from aiostream_data.storage.translate import translate_error, translating
from aiostream_data.storage.urls import has_magic, safe_url, split_url

_SLICE_NBYTES = 1 << 30
"""Linux reads at most 2 GiB minus a page at once; other systems less than 2 GiB."""


class LocalStore:
    """Local files. One worker-thread hop per call: open (or find it open), check, read.

    Shards are named by plain paths, ``file://`` and ``~`` resolved, relative paths kept relative. The
    version of a file is made of its modification time and size.
    """

    def __init__(self, run_blocking: RunBlocking) -> None:
        self._run_blocking = run_blocking
        self._descriptors = DescriptorCache(max_open=128)

    async def info(self, url: str) -> ShardRef:
        with translating(url, translate_error):
            found: ShardRef = await run_to_end(self._run_blocking, _file_info, split_url(url).path)
            return found

    async def glob(self, pattern: str) -> list[ShardRef]:
        if not has_magic(pattern):
            return [await self.info(pattern)]
        with translating(pattern, translate_error):
            found: list[ShardRef] = await run_to_end(self._run_blocking, _match_files, split_url(pattern).path)
        if not found:
            raise NoMatchError(safe_url(pattern), f"no file matches (looked from {os.getcwd()})")
        return found

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        with translating(shard.url, translate_error):
            await run_to_end(self._run_blocking, self._read, shard, start, buffer)

    async def aclose(self) -> None:
        self._descriptors.close()

    def _read(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        with self._descriptors.borrow(split_url(shard.url).path) as descriptor:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError
            if shard.version and shard.version != _version(status):
                raise ObjectChangedError(shard.url, "the file was written to since it was listed")
            if start < 0 or start + len(buffer) > status.st_size:
                raise ShortReadError(
                    shard.url, f"bytes {start} to {start + len(buffer)} were asked for, the file has {status.st_size}"
                )
            _read_fully(shard.url, descriptor, start, buffer)


def _read_fully(url: str, descriptor: int, start: int, buffer: memoryview) -> None:
    done = 0
    while done < len(buffer):
        count = os.preadv(descriptor, [buffer[done : done + _SLICE_NBYTES]], start + done)
        if count == 0:
            raise ShortReadError(url, f"the file was cut to {start + done} bytes while it was being read")
        done += count


def _file_info(path: str) -> ShardRef:
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError
    if not stat.S_ISREG(status.st_mode):
        raise ObjectNotFoundError(path, "is not a regular file")
    return _shard(path, status)


def _shard(path: str, status: os.stat_result) -> ShardRef:
    return ShardRef(path, status.st_size, _version(status))


def _version(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_size:x}"


def _match_files(pattern: str) -> list[ShardRef]:
    """Return the regular files matching ``pattern``, sorted by path, wildcards not matching hidden names."""
    root = plan_listing(pattern).prefix.rpartition("/")[0]
    root = root or ("/" if pattern.startswith("/") else "")
    matches = compile_pattern(pattern, skip_hidden=True)
    # How deep to look: one directory per segment that the pattern has below the root, any with ``**``.
    below = pattern[len(root) :].lstrip("/").split("/")
    depth = None if "**" in below else len(below)
    return sorted(_walk(root, depth, matches), key=lambda shard: shard.url)


def _walk(directory: str, depth: int | None, matches: re.Pattern[str]) -> Iterator[ShardRef]:
    prefix = directory if not directory or directory.endswith("/") else directory + "/"
    try:
        entries = list(os.scandir(directory or "."))
    except (FileNotFoundError, NotADirectoryError):
        return  # gone, or never there: it holds no match
    for entry in entries:
        path = prefix + entry.name
        if entry.is_dir(follow_symlinks=depth is not None):
            # With ``**`` links to directories are not followed, because they may form a circle.
            if depth is None or depth > 1:
                yield from _walk(path, None if depth is None else depth - 1, matches)
        elif matches.fullmatch(path):
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue  # a dangling link
            if stat.S_ISREG(status.st_mode):
                yield _shard(path, status)
