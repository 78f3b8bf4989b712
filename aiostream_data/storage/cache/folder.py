"""Store cached pieces of objects in a disk folder that several processes and hosts can share.

A piece is written to a temporary file, which is then renamed, so other processes only see complete pieces. A piece
never changes after the rename. Readers verify the checksums of each piece. On most file systems, an open piece stays
readable after another process evicts it. On NFS, reading an evicted piece fails, and the bytes are read from the store.
The folder therefore needs no locks, and killing a process at any moment does not damage the cache.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from time import monotonic
from typing import Final

from aiostream_data.errors import ShardCacheError
from aiostream_data.storage.cache import names
from aiostream_data.storage.cache.counters import CacheCounters
from aiostream_data.storage.cache.owners import new_owner
from aiostream_data.storage.cache.piece_file import DamagedPieceError, disk_nbytes, head_of, read_piece
from aiostream_data.storage.cache.pins import Pins
from aiostream_data.storage.cache.regular_file import ForeignEntryError, opened_regular
from aiostream_data.storage.cache.room import Room
from aiostream_data.storage.cache.spans import PIECE_NBYTES, ByteSpan, Cover, Missing, Pieces, Use, cover, cut
from aiostream_data.storage.cache.tree import Tree, write_fully

VERSION: Final = 1
"""Version of the cache folder's layout. Folders with another version are rejected."""

RETRY_S: Final = 30.0
"""Seconds to wait before the next write attempt after a failed disk write."""

TOUCH_S: Final = 1.0
"""Minimum seconds between two updates of the time at which an object was last used."""

_GONE: Final = frozenset({errno.ENOENT, errno.ESTALE})
_TOUCHED: Final = 4096


class PieceFolder:
    """Storage for cached pieces in the folder ``path``, which is created if missing.

    Args:
        limit: Maximum total size in bytes of the files that all processes store in the folder. The value None selects a
            quarter of the file system.
        piece_nbytes: Maximum size of one piece in bytes.
        clock: Function that returns monotonic seconds.
        draw: Function that returns random numbers, uniform in [0, 1), to select the objects to evict.

    Raises:
        ShardCacheError: The path is not a folder, is not writable, or has another layout version.
    """

    def __init__(
        self,
        path: str,
        limit: int | None,
        counters: CacheCounters,
        piece_nbytes: int = PIECE_NBYTES,
        clock: Callable[[], float] = monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._path = path
        self._counters = counters
        self._piece_nbytes = piece_nbytes
        self._clock = clock
        self._lock = threading.Lock()
        self._pins = Pins()
        self._touched: dict[str, float] = {}
        self._retry_at = clock()
        try:
            owner = new_owner()
            _prepare(path, owner)
            self._tree = Tree(path, owner)
        except OSError as error:
            raise _unusable(path, error) from error
        self._room = Room(self._tree, limit or _quarter_of_disk(path), self._pins.keys, counters, clock, draw)
        try:
            self._room.tidy()
        except OSError as error:
            self._tree.close()
            raise _unusable(path, error) from error

    def pinned(self, key: str) -> AbstractContextManager[None]:
        return self._pins.holding(key)

    def read(self, key: str, wanted: ByteSpan, buffer: memoryview) -> Missing:
        try:
            pieces = self._tree.lately(key)
        except OSError as error:
            self._failed("cannot be read", error)
            return cover(wanted, Pieces()).missing
        while True:
            plan = cover(wanted, pieces)
            unusable = self._fill(key, wanted, plan, buffer)
            if not unusable:
                break
            self._tree.forget(key)
            pieces = pieces.without(unusable)
        if plan.uses:
            self._touch(key)
        return plan.missing

    def write(self, key: str, span: ByteSpan, data: memoryview) -> None:
        for part in cut(span, self._piece_nbytes):
            if self._clock() < self._retry_at:
                self._counters.add(passed=1)
                continue
            try:
                self._keep(key, part, data[part.start - span.start : part.stop - span.start])
            except ForeignEntryError as error:  # the disk works: other pieces can still be written
                self._counters.add(passed=1)
                self._failed("cannot be written", error)
            except OSError as error:
                self._retry_at = self._clock() + RETRY_S
                self._counters.add(passed=1)
                self._failed("cannot be written", error)

    def close(self) -> None:
        with suppress(OSError):  # folder removed or read-only: another process later removes the abandoned files
            self._room.close()
        self._tree.close()

    def _fill(self, key: str, wanted: ByteSpan, plan: Cover, buffer: memoryview) -> list[ByteSpan]:
        """Copy the cached pieces that ``plan`` selects to ``buffer``. Return the pieces that could not be read."""
        unusable = []
        for use in plan.uses:
            into = buffer[use.wanted.start - wanted.start : use.wanted.stop - wanted.start]
            if not self._read_piece(key, use, into):
                unusable.append(use.piece)
        return unusable

    def _read_piece(self, key: str, use: Use, into: memoryview) -> bool:
        try:
            with self._tree.opened_piece(key, use.piece) as file:
                read_piece(file, key, use.piece, use.wanted, into)
        except DamagedPieceError as error:
            self._remove_damaged(key, use.piece, error)
            return False
        except OSError as error:
            if error.errno not in _GONE:
                self._failed("cannot be read", error)
            return False
        return True

    def _remove_damaged(self, key: str, piece: ByteSpan, damage: DamagedPieceError) -> None:
        self._counters.add(damaged=1)
        self._warn("damaged", f"a cached piece is damaged ({damage}) and is read from the store again; check the disk")
        try:
            self._tree.remove(key, piece)
        except OSError as error:
            self._failed("cannot be written", error)

    def _keep(self, key: str, span: ByteSpan, data: memoryview) -> None:
        nbytes = disk_nbytes(span)
        if not self._room.take(nbytes):
            self._counters.add(passed=1)
            return
        try:
            self._tree.put(key, span, head_of(key, span, data), data)
        finally:
            self._room.written(nbytes)
        self._counters.add(kept_nbytes=span.nbytes)
        self._touch(key)

    def _touch(self, key: str) -> None:
        now = self._clock()
        with self._lock:
            if now - self._touched.get(key, -TOUCH_S) < TOUCH_S:
                return
            if len(self._touched) >= _TOUCHED:
                self._touched.clear()
            self._touched[key] = now
        try:
            self._tree.touch(key)
        except OSError as error:
            self._failed("cannot be written", error)

    def _failed(self, what: str, error: OSError) -> None:
        self._counters.add(failures=1)
        self._warn(
            "failed",
            f"the folder {what} ({error.strerror or error}); uncached bytes are read from the store. "
            "Check the disk and the permissions",
        )

    def _warn(self, kind: str, what: str) -> None:
        if self._counters.is_first(kind):
            logging.getLogger("aiostream_data").warning("shard cache %s: %s. Logged once.", self._path, what)


def _prepare(path: str, owner: str) -> None:
    os.makedirs(path, exist_ok=True)
    marker = os.path.join(path, names.MARKER)
    try:
        with opened_regular(marker, os.O_RDONLY) as file:
            said = os.read(file, 4096)
    except FileNotFoundError:
        said = b""
    except ForeignEntryError:
        reason = f"its file {names.MARKER} is not a regular file"
        raise ShardCacheError(path, reason, "remove that file, or choose another folder") from None
    if said:  # a power cut can leave an empty marker file
        _check_version(path, said)
    else:
        _write_marker(marker, os.path.join(path, names.part_name(owner, 0)))


def _check_version(path: str, said: bytes) -> None:
    try:
        version = json.loads(said)["version"]
    except (ValueError, KeyError, TypeError):
        cure = "empty the folder, or choose another one"
        raise ShardCacheError(path, f"its file {names.MARKER} is damaged", cure) from None
    if version != VERSION:
        raise ShardCacheError(
            path,
            f"the folder has version {version!r} of the cache format, expected {VERSION}",
            "empty the folder, or choose another one",
        )


def _write_marker(marker: str, beside: str) -> None:
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        write_fully(file, json.dumps({"format": "aiostream_data shard cache", "version": VERSION}).encode())
        os.rename(beside, marker)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    finally:
        os.close(file)


def _unusable(path: str, error: OSError) -> OSError:
    if isinstance(error, ShardCacheError):
        return error
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return ShardCacheError(
            path, "the path, or a parent of it, is a file, not a folder", "pass the path of a folder"
        )
    reason = f"cannot use the folder: {error.strerror or error}"
    return ShardCacheError(path, reason, "pass the path of a writable folder")


def _quarter_of_disk(path: str) -> int:
    disk = os.statvfs(path)
    return max(PIECE_NBYTES * 2, disk.f_blocks * disk.f_frsize // 4)
