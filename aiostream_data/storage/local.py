"""Files of this machine, read with ``preadv`` straight into the caller's buffer."""

from __future__ import annotations

import asyncio
import os

from aiostream_data.errors import NoMatchError, ObjectNotFoundError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.base import RunBlocking
from aiostream_data.storage.blocking import run_to_end
from aiostream_data.storage.counters import StorageCounters
from aiostream_data.storage.file_reads import FileRead, FileReader
from aiostream_data.storage.local_listing import file_info, match_files, why_missing, why_no_match
from aiostream_data.storage.read_hops import ReadHops
from aiostream_data.storage.translate import translate_error, translating
from aiostream_data.storage.urls import has_magic, safe_url, split_url

INLINE_NBYTES = 256 << 10
"""A read of at most this much is tried on the event loop: what is in the page cache is copied sooner than a
thread is woken. It takes 50 us at 5 GB/s."""

INLINE_NBYTES_PER_STEP = 1 << 20
"""What the reads of one step of the event loop may copy there together, so that it is not held up for a millisecond."""


class LocalStore:
    """Local files. What is cached and open is read at once; anything else on worker threads, many reads a hop.

    Shards are named by plain paths, ``file://`` and ``~`` resolved, relative paths kept relative. The
    version of a file is made of its modification time and size; a file that is replaced by another one
    while it is read is noticed as well.

    Args:
        run_blocking: Runs blocking calls on a worker thread.
        direct: Read past the page cache (O_DIRECT); where a file system refuses that, one warning says so.
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

    async def glob(self, pattern: str) -> list[ShardRef]:
        if not has_magic(pattern):
            try:
                return [await self.info(pattern)]
            except ObjectNotFoundError as error:
                why = await run_to_end(self._run_blocking, why_missing, split_url(pattern).path)
                raise ObjectNotFoundError(pattern, f"{error.reason}{why}") from error.__cause__
        with translating(pattern, translate_error):
            found: list[ShardRef] = await run_to_end(self._run_blocking, match_files, split_url(pattern).path)
        if not found:
            why = await run_to_end(self._run_blocking, why_no_match, split_url(pattern).path)
            raise NoMatchError(safe_url(pattern), f"no file matches (looked from {os.getcwd()}){why}")
        return found

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        with translating(shard.url, translate_error):
            read = FileRead(shard, split_url(shard.url).path, start, buffer)
            done = self._read_cached(read)
            if done < len(buffer) or not buffer:
                await self._hops.read(read.behind(done))

    async def aclose(self) -> None:
        await self._hops.aclose()
        self._reader.close()

    def _read_cached(self, read: FileRead) -> int:
        """Copy what can be had without waiting; return how many bytes that were."""
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
