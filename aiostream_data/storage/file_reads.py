"""Read ranges of local files, and notice files that are cut, written to or replaced meanwhile. Thread-safe."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter, thread_time

from aiostream_data.errors import ObjectChangedError, ShortReadError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.counters import StorageCounters
from aiostream_data.storage.descriptors import DescriptorCache
from aiostream_data.storage.direct_reads import DirectReads
from aiostream_data.storage.local_listing import check_regular, file_version
from aiostream_data.storage.urls import safe_url

MAX_OPEN_FILES = 128

_LEFT_TO_READ = (OSError, OverflowError)
"""What attempts may fail with that :meth:`FileReader.read` will tell of; our own errors of files are OSErrors."""

_SLICE_NBYTES = 1 << 30
"""Linux reads at most 2 GiB minus a page at once; other systems less than 2 GiB."""

_AT_ONCE: int | None = getattr(os, "RWF_NOWAIT", None)
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""Without it, opening a pipe would wait for a writer."""


@dataclass(frozen=True, slots=True)
class FileRead:
    """One range to read.

    Attributes:
        path: Of the file, ``~`` expanded.
        start: Its first byte.
        buffer: What to fill; the caller's.
    """

    shard: ShardRef
    path: str
    start: int
    buffer: memoryview

    def behind(self, nbytes: int) -> FileRead:
        """Return what is left to do when the first ``nbytes`` are there."""
        return replace(self, start=self.start + nbytes, buffer=self.buffer[nbytes:]) if nbytes else self


class FileReader:
    """Reads local files, and keeps some of them open.

    Args:
        direct: Read past the page cache, where the file system lets us.
        counters: Where waits for the file system are counted.
    """

    def __init__(self, *, direct: bool = False, counters: StorageCounters | None = None) -> None:
        self._direct = DirectReads() if direct else None
        self._counters = StorageCounters() if counters is None else counters
        self._counting = threading.Lock()
        self._descriptors = DescriptorCache(MAX_OPEN_FILES, self._open)
        self._identities: dict[tuple[str, str], tuple[int, int, int, int]] = {}
        """What was read first of a path and version: no other file may take its place."""

    def close(self) -> None:
        """Close all files that are not being read, and those when they no longer are. Idempotent."""
        self._descriptors.close()

    def read_all(self, reads: list[FileRead]) -> list[Exception | None]:
        """Carry out reads one after another, and return for each how it failed, or None.

        A disk that has many requests at once is quicker, so those that have to wait for the first are announced,
        unless that is in the page cache: then the others probably are, and announcing them costs more than it brings.
        """
        if len(reads) > 1 and self._direct is None and not self._ends_in_cache(reads[0]):
            for read in reads[1:]:
                self._announce(read)
        return [self._outcome(read) for read in reads]

    def read(self, read: FileRead) -> bool:
        """Fill the buffer; return True if the page cache held all bytes.

        Raises:
            ShortReadError: The file ends before.
            ObjectChangedError: It was written to, or another file is in its place.
            ObjectNotFoundError: It is a pipe, a device or a socket.
            OSError: It cannot be read.
        """
        try:
            return self._read(read)
        except OSError as error:
            # A file that is kept open may not be the one that has this name by now.
            if not _may_be_outdated(error) or not self._descriptors.forget(read.path):
                raise
            return self._read(read)

    def read_cached(self, read: FileRead) -> int:
        """Read what is in the page cache of a file that is open, and return how many bytes that were.

        Never waits for a disk or a network. Whatever is amiss is left for :meth:`read` to say.
        """
        if _AT_ONCE is None or self._direct is not None or read.start < 0:
            return 0
        with self._descriptors.borrow_open(read.path) as descriptor:
            if descriptor is None:
                return 0
            try:
                done = os.preadv(descriptor, [read.buffer], read.start, _AT_ONCE)
                # Asked only now: of a network file system even this may wait, and it has refused above.
                if done:
                    self._check(read.shard, read.path, os.fstat(descriptor))
            except _LEFT_TO_READ:
                return 0
            return done

    def _outcome(self, read: FileRead) -> Exception | None:
        wall, cpu = perf_counter(), thread_time()
        try:
            if not self.read(read):
                self._count_wait(perf_counter() - wall - (thread_time() - cpu))
        except Exception as error:  # noqa: BLE001 - raised where the read was asked for
            return error
        return None

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
                    f"bytes {read.start} to {stop} were asked for, the file has {status.st_size}",
                )
            was_cached = self._fill(descriptor, read)
            self._check(read.shard, read.path, os.fstat(descriptor))
            return was_cached

    def _fill(self, descriptor: int, read: FileRead) -> bool:
        """Fill the buffer; return True if the page cache held all bytes."""
        if self._direct is not None and self._direct.fill(descriptor, read.start, read.buffer):
            return False
        return _fill(read.shard.url, descriptor, read.start, read.buffer)

    def _check(self, shard: ShardRef, path: str, status: os.stat_result) -> None:
        """Refuse a file that is not what was listed, or not what was read before."""
        if shard.version and shard.version != file_version(status):
            raise ObjectChangedError(safe_url(shard.url), "the file was written to since it was listed")
        if shard.nbytes is not None and shard.nbytes != status.st_size:
            raise ObjectChangedError(
                safe_url(shard.url),
                f"the file had {shard.nbytes} bytes when it was listed, and has {status.st_size} now",
            )
        identity = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
        if self._identities.setdefault((path, shard.version), identity) != identity:
            raise ObjectChangedError(safe_url(shard.url), "the file was written to or replaced while it was being read")

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
        """True when the last byte could be had at once; False also when that cannot be told."""
        if _AT_ONCE is None or not read.buffer:
            return False
        try:
            with self._descriptors.borrow(read.path) as descriptor:
                last = read.start + len(read.buffer) - 1
                return os.preadv(descriptor, [bytearray(1)], last, _AT_ONCE) == 1
        except _LEFT_TO_READ:
            return False

    def _announce(self, read: FileRead) -> None:
        """Let the disk begin with what will be read soon; whatever is amiss shows when it is."""
        try:
            with self._descriptors.borrow(read.path) as descriptor:
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(descriptor, read.start, len(read.buffer), os.POSIX_FADV_WILLNEED)
        except _LEFT_TO_READ:
            return


def _may_be_outdated(error: OSError) -> bool:
    return isinstance(error, ObjectChangedError) or error.errno == errno.ESTALE


def _fill_from_cache(descriptor: int, start: int, buffer: memoryview) -> int:
    """Copy the bytes that the page cache holds, up to the first that it lacks; return their number."""
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
    """Fill the buffer; return True if the page cache held all bytes."""
    done = _fill_from_cache(descriptor, start, buffer)
    was_cached = done == len(buffer)
    while done < len(buffer):
        count = os.preadv(descriptor, [buffer[done : done + _SLICE_NBYTES]], start + done)
        if count == 0:
            raise ShortReadError(safe_url(url), f"the file was cut to {start + done} bytes while it was being read")
        done += count
    return was_cached
