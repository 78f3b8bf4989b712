"""Read byte ranges of local files. Detect files that are truncated, modified or replaced during a run. Thread-safe."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter, thread_time
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.errors import ObjectChangedError, ShortReadError, StorageError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.counters import StorageCounters
from aiostream_data.storage.descriptors import DescriptorCache
from aiostream_data.storage.direct_reads import DirectReads
from aiostream_data.storage.local_listing import check_regular, file_version, mtime_of
from aiostream_data.storage.urls import safe_url, split_url

T = TypeVar("T")

MAX_OPEN_FILES = 128

_LEFT_TO_READ = (OSError, OverflowError)
"""Errors to ignore in attempts to read without waiting. If an error persists, :meth:`FileReader.read` raises it
later."""

_SLICE_NBYTES = 1 << 30
"""Maximum bytes per ``preadv`` call. One call reads at most 2 GiB minus one page on Linux, and less than 2 GiB on other
systems."""

_AT_ONCE: int | None = getattr(os, "RWF_NOWAIT", None)
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""Flags for opening files. Without ``O_NONBLOCK``, opening a pipe would wait for a writer."""


@dataclass(frozen=True, slots=True)
class FileRead:
    """One range to read.

    Attributes:
        shard: Reference to the file, with its expected size and version.
        path: Path of the file, with ``~`` expanded.
        start: Offset of the first byte to read.
        buffer: Memory to fill, owned by the caller.
    """

    shard: ShardRef
    path: str
    start: int
    buffer: memoryview

    def behind(self, nbytes: int) -> FileRead:
        """Return this read without its first ``nbytes`` bytes."""
        return replace(self, start=self.start + nbytes, buffer=self.buffer[nbytes:]) if nbytes else self


class FileReader:
    """Reader of local files that keeps up to `MAX_OPEN_FILES` files open.

    Args:
        direct: Bypass the page cache if the file system supports it.
        counters: Counters of the store, to which the time spent waiting for the file system is added.
    """

    def __init__(self, *, direct: bool = False, counters: StorageCounters | None = None) -> None:
        self._direct = DirectReads() if direct else None
        self._counters = StorageCounters() if counters is None else counters
        self._counting = threading.Lock()
        self._descriptors = DescriptorCache(MAX_OPEN_FILES, self._open)
        self._identities: dict[tuple[str, str], tuple[int, int, int, int]] = {}
        """Device, inode, modification time and size of each file at its first read, keyed by path and version."""

    def close(self) -> None:
        """Close all idle files. Files that are being read are closed after the read. Idempotent."""
        self._descriptors.close()

    def read_all(self, reads: list[FileRead]) -> list[Exception | None]:
        """Perform reads one after another. For each read, return its error, or None if the read succeeded.

        Disks are faster with several requests in their queue, so all later reads are announced to the kernel in
        advance. Later reads are not announced if the first range is in the page cache, because the other ranges are
        then probably cached.
        """
        if len(reads) > 1 and self._direct is None and not self._ends_in_cache(reads[0]):
            for read in reads[1:]:
                self._announce(read)
        return [self._outcome(read) for read in reads]

    def read(self, read: FileRead) -> bool:
        """Fill the buffer. Return True if all bytes came from the page cache.

        Raises:
            ShortReadError: The file ends before the buffer is full.
            ObjectChangedError: The file was modified or replaced.
            ObjectNotFoundError: The path is a pipe, a device or a socket.
            OSError: The file cannot be read.
        """
        try:
            return self._read(read)
        except OSError as error:
            # The open descriptor may belong to a file that was replaced: reopen the path once.
            if not _may_be_outdated(error) or not self._descriptors.forget(read.path):
                raise
            return self._read(read)

    def read_cached(self, read: FileRead) -> int:
        """If the file is open, read bytes of the range from the page cache, up to the first uncached byte.

        Return the number of bytes read.

        This method never waits for a disk or a network. After an error, return 0; :meth:`read` raises the error later.
        """
        if _AT_ONCE is None or self._direct is not None or read.start < 0:
            return 0
        with self._descriptors.borrow_open(read.path) as descriptor:
            if descriptor is None:
                return 0
            try:
                done = os.preadv(descriptor, [read.buffer], read.start, _AT_ONCE)
                # Call fstat only after a cached read: on network file systems, which refuse cached reads, it may block.
                if done:
                    self._check(read.shard, read.path, os.fstat(descriptor))
            except _LEFT_TO_READ:
                return 0
            return done

    def fill_cached(self, read: FileRead) -> bool:
        """Fill the buffer from the page cache, without waiting for a disk.

        Return False if bytes are not in the page cache, or if the file cannot be read or has changed; :meth:`read`
        raises the error.
        """
        with suppress(OSError, StorageError), self._descriptors.borrow(read.path) as descriptor:
            self._check(read.shard, read.path, os.fstat(descriptor))
            if _fill_from_cache(descriptor, read.start, read.buffer) < len(read.buffer):
                return False
            self._check(read.shard, read.path, os.fstat(descriptor))
            return True
        return False

    @property
    def is_direct(self) -> bool:
        """True if reads bypass the page cache."""
        return self._direct is not None

    def read_objects(self, shards: Sequence[ShardRef], places: Sequence[memoryview]) -> NDArray[np.bool_]:
        """Read small files whole, each into its own buffer. Return a mask of the files that were read.

        Files that changed since the listing are left out, and so are files that cannot be read; :meth:`read` raises
        their errors.
        """
        wall, cpu = perf_counter(), thread_time()
        paths = [split_url(shard.url).path for shard in shards]
        mtimes_ns = np.array([self._mtime_of(*file) for file in zip(shards, paths, strict=True)], np.int64)
        problems = _native.read_small_files(list(map(os.fsencode, paths)), mtimes_ns, places)
        self._count_wait(perf_counter() - wall - (thread_time() - cpu))
        was_read: NDArray[np.bool_] = problems == 0
        return was_read

    def scan(self, shard: ShardRef, scan: Callable[[int], T]) -> T | None:
        """Return ``scan(descriptor)``. Return None if the file cannot be opened or has changed."""
        path = split_url(shard.url).path
        with suppress(OSError, StorageError), self._descriptors.borrow(path) as descriptor:
            self._check(shard, path, os.fstat(descriptor))
            return scan(descriptor)
        return None

    def read_pieces(self, shard: ShardRef, start: int, places: Sequence[memoryview]) -> bool:
        """Fill ``places`` with consecutive bytes from offset ``start`` on, with one call of the system.

        Return False if the file cannot be read, ends earlier, or has changed.
        """
        wall, cpu = perf_counter(), thread_time()
        path = split_url(shard.url).path
        with suppress(OSError, StorageError), self._descriptors.borrow(path) as descriptor:
            self._check(shard, path, os.fstat(descriptor))
            if os.preadv(descriptor, places, start) != sum(map(len, places)):
                return False
            self._check(shard, path, os.fstat(descriptor))
            self._count_wait(perf_counter() - wall - (thread_time() - cpu))
            return True
        return False

    def _outcome(self, read: FileRead) -> Exception | None:
        wall, cpu = perf_counter(), thread_time()
        try:
            if not self.read(read):
                self._count_wait(perf_counter() - wall - (thread_time() - cpu))
        except Exception as error:  # noqa: BLE001 - raised where the read was asked for
            return error
        return None

    def _mtime_of(self, shard: ShardRef, path: str) -> int:
        """Return the modification time that a file must have, in nanoseconds; -1 if :meth:`read` must read the file.

        A file without a version must have the time that it has now, and must be the file of its first read.
        """
        if shard.version:
            return mtime_of(shard.version)
        try:
            status = os.stat(path)
            self._check(shard, path, status)
        except OSError:
            return -1
        return status.st_mtime_ns

    def _count_wait(self, seconds: float) -> None:
        with self._counting:
            self._counters.disk_wait_s += max(0.0, seconds)

    def _read(self, read: FileRead) -> bool:
        with self._descriptors.borrow(read.path) as descriptor:
            status = os.fstat(descriptor)
            self._check(read.shard, read.path, status)
            stop = read.start + len(read.buffer)
            if read.start < 0 or stop > status.st_size:
                raise ShortReadError(
                    safe_url(read.shard.url),
                    f"cannot read bytes {read.start} to {stop}: the file has only {status.st_size} bytes; "
                    "list or index the dataset again",
                )
            was_cached = self._fill(descriptor, read)
            self._check(read.shard, read.path, os.fstat(descriptor))
            return was_cached

    def _fill(self, descriptor: int, read: FileRead) -> bool:
        """Fill the buffer. Return True if all bytes came from the page cache."""
        if self._direct is not None and self._direct.fill(descriptor, read.start, read.buffer):
            return False
        return _fill(read.shard.url, descriptor, read.start, read.buffer)

    def _check(self, shard: ShardRef, path: str, status: os.stat_result) -> None:
        """Raise ObjectChangedError if the file has changed since it was listed or since its first read."""
        if shard.version and shard.version != file_version(status):
            raise ObjectChangedError(safe_url(shard.url), "the file was modified after it was listed")
        if shard.nbytes is not None and shard.nbytes != status.st_size:
            raise ObjectChangedError(
                safe_url(shard.url),
                f"the file had {shard.nbytes} bytes when it was listed, and has {status.st_size} now",
            )
        identity = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
        if self._identities.setdefault((path, shard.version), identity) != identity:
            raise ObjectChangedError(safe_url(shard.url), "the file was modified or replaced while it was read")

    def _open(self, path: str) -> int:
        descriptor = os.open(path, _OPEN_FLAGS)
        try:
            check_regular(path, os.fstat(descriptor))
            if self._direct is not None:
                self._direct.prepare(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _ends_in_cache(self, read: FileRead) -> bool:
        """Return True if the last byte of a read is in the page cache.

        Return False if the byte is missing or an error occurs.
        """
        if _AT_ONCE is None or not read.buffer:
            return False
        try:
            with self._descriptors.borrow(read.path) as descriptor:
                last = read.start + len(read.buffer) - 1
                return os.preadv(descriptor, [bytearray(1)], last, _AT_ONCE) == 1
        except _LEFT_TO_READ:
            return False

    def _announce(self, read: FileRead) -> None:
        """Advise the kernel to load a range that will be read soon.

        Ignore errors, because the later read raises them.
        """
        try:
            with self._descriptors.borrow(read.path) as descriptor:
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(descriptor, read.start, len(read.buffer), os.POSIX_FADV_WILLNEED)
        except _LEFT_TO_READ:
            return


def _may_be_outdated(error: OSError) -> bool:
    return isinstance(error, ObjectChangedError) or error.errno == errno.ESTALE


def _fill_from_cache(descriptor: int, start: int, buffer: memoryview) -> int:
    """Copy bytes of a file from the page cache, up to the first uncached byte. Return the number of copied bytes."""
    if _AT_ONCE is None:
        return 0
    done = 0
    with suppress(*_LEFT_TO_READ):
        while done < len(buffer):
            count = os.preadv(descriptor, [buffer[done : done + _SLICE_NBYTES]], start + done, _AT_ONCE)
            if count == 0:
                break
            done += count
    return done


def _fill(url: str, descriptor: int, start: int, buffer: memoryview) -> bool:
    """Fill the buffer. Return True if all bytes came from the page cache."""
    done = _fill_from_cache(descriptor, start, buffer)
    was_cached = done == len(buffer)
    while done < len(buffer):
        count = os.preadv(descriptor, [buffer[done : done + _SLICE_NBYTES]], start + done)
        if count == 0:
            reason = (
                f"the file was truncated to {start + done} bytes while it was read; do not modify files during a run"
            )
            raise ShortReadError(safe_url(url), reason)
        done += count
    return was_cached
