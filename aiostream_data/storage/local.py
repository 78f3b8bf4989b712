"""Store for local files, read with ``preadv`` directly into the caller's buffer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import NoMatchError, ObjectNotFoundError
from aiostream_data.rows.records import ShardRef
from aiostream_data.rows.shard_table import ShardTable
from aiostream_data.storage.base import ReadCached, RunBlocking
from aiostream_data.storage.blocking_calls import run_to_end
from aiostream_data.storage.counters import StorageCounters
from aiostream_data.storage.file_reads import FileRead, FileReader
from aiostream_data.storage.local_listing import (
    file_info,
    file_infos,
    match_files,
    match_folders,
    why_missing,
    why_no_match,
)
from aiostream_data.storage.patterns import finds_folders
from aiostream_data.storage.read_hops import ReadHops
from aiostream_data.storage.translate import translate_error, translating
from aiostream_data.storage.urls import has_magic, safe_url, split_url

T = TypeVar("T")

INLINE_NBYTES = 256 << 10
"""Largest read to try on the event loop, in bytes. Copying 256 KiB from the page cache takes 50 us, less than waking a
thread."""

INLINE_NBYTES_PER_STEP = 1 << 20
"""Maximum bytes copied in one step of the event loop, so that reads block the loop for less than a millisecond."""


class LocalStore:
    """Store for local files.

    Small reads of open, cached files run on the event loop. Other reads run on worker threads, with several reads per
    call. The URL of a shard is a plain path: ``file://`` and ``~`` are resolved, and relative paths stay relative. The
    version of a file consists of its modification time and size. Files that are replaced while they are read are
    detected.

    Args:
        run_blocking: Function that runs blocking calls on a worker thread.
        direct: Bypass the page cache (O_DIRECT). If a file system does not support O_DIRECT, one warning is logged.
    """

    def __init__(self, run_blocking: RunBlocking, *, direct: bool = False) -> None:
        self._run_blocking = run_blocking
        self.counters = StorageCounters()
        self._reader = FileReader(direct=direct, counters=self.counters)
        self._hops = ReadHops(run_blocking, self._reader)
        self._copied_in_step = 0

    async def info(self, url: str) -> ShardRef:
        with translating(url, translate_error):
            found: ShardRef = await run_to_end(self._run_blocking, file_info, split_url(url).path)
            return found

    async def infos(self, urls: Sequence[str]) -> list[ShardRef | None]:
        """Return the size and version of each file, with one call of a worker thread. See :class:`.FindsMany`."""
        paths = [split_url(url).path for url in urls]
        found: list[ShardRef | None] = await run_to_end(self._run_blocking, file_infos, paths)
        return found

    async def glob(self, pattern: str) -> Sequence[ShardRef]:
        if not has_magic(pattern):
            try:
                return [await self.info(pattern)]
            except ObjectNotFoundError as error:
                why = await run_to_end(self._run_blocking, why_missing, split_url(pattern).path)
                raise ObjectNotFoundError(pattern, f"{error.reason}{why}") from error.__cause__
        with translating(pattern, translate_error):
            match = match_folders if finds_folders(pattern) else match_files
            found: ShardTable = await run_to_end(self._run_blocking, match, split_url(pattern).path)
        if not found:
            why = await run_to_end(self._run_blocking, why_no_match, split_url(pattern).path)
            raise NoMatchError(safe_url(pattern), f"no file matches (working directory: {os.getcwd()}){why}")
        return found

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        with translating(shard.url, translate_error):
            read = FileRead(shard, split_url(shard.url).path, start, buffer)
            done = self._read_cached(read)
            if done < len(buffer) or not buffer:
                await self._hops.read(read.behind(done))

    async def read_objects(
        self, shards: Sequence[ShardRef], places: Sequence[memoryview]
    ) -> dict[int, Exception | None]:
        """Read small files whole, on one worker thread. See :class:`.ReadsMany`."""
        if self._reader.is_direct:
            return {}
        was_read: NDArray[np.bool_] = await run_to_end(self._run_blocking, self._reader.read_objects, shards, places)
        return dict.fromkeys(np.flatnonzero(was_read).tolist())

    async def scan_cached(self, shard: ShardRef, scan: Callable[[int], T]) -> T | None:
        """Call ``scan(descriptor)`` on a worker thread. See :class:`.ReadsPieces`."""
        if self._reader.is_direct:
            return None
        found: T | None = await run_to_end(self._run_blocking, self._reader.scan, shard, scan)
        return found

    def cached_reader(self, shard: ShardRef) -> ReadCached | None:
        """Return a reader of the page cache for one file. See :class:`.ReadsPieces`."""
        if self._reader.is_direct:
            return None
        path = split_url(shard.url).path
        return lambda start, buffer: self._reader.fill_cached(FileRead(shard, path, start, buffer))

    async def read_pieces(self, shard: ShardRef, start: int, places: Sequence[memoryview]) -> bool:
        """Fill buffers with consecutive bytes, on a worker thread. See :class:`.ReadsPieces`."""
        was_read: bool = await run_to_end(self._run_blocking, self._reader.read_pieces, shard, start, places)
        return was_read

    async def aclose(self) -> None:
        await self._hops.aclose()
        self._reader.close()

    def _read_cached(self, read: FileRead) -> int:
        """Copy the bytes that can be read without waiting. Return the number of copied bytes."""
        nbytes = len(read.buffer)
        if nbytes > INLINE_NBYTES or nbytes + self._copied_in_step > INLINE_NBYTES_PER_STEP:
            return 0
        done = self._reader.read_cached(read)
        if done:
            if not self._copied_in_step:
                asyncio.get_running_loop().call_soon(self._next_step)
            self._copied_in_step += done
        return done

    def _next_step(self) -> None:
        self._copied_in_step = 0
