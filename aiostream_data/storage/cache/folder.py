"""Pieces in a folder on disk, which other processes and hosts may read and fill at the same time.

How this works. A piece is written beside its place and renamed, so that it is there as a whole or not at all; it is
never changed afterwards. Reading opens it and checks its checksums: whoever evicts it meanwhile does no harm where the
file system keeps open files, and where it does not (NFS), the read fails and the bytes come from the store. So nothing
is ever locked, and a process may be killed at any moment.
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
"""Of names and files in the folder; another one's are not touched."""

RETRY_S: Final = 30.0
"""After the disk refused a write, none is tried for so many seconds."""

TOUCH_S: Final = 1.0
"""The time at which an object was used is noted at most this often."""

_GONE: Final = frozenset({errno.ENOENT, errno.ESTALE})
_TOUCHED: Final = 4096


class PieceFolder:
    """Pieces of at most ``piece_nbytes`` bytes in the folder ``path``, made when it is not there.

    Args:
        limit: Bytes for all files in it, of all processes; None for a quarter of the file system.
        clock: Monotonic seconds.
        draw: Uniform in [0, 1): which objects are evicted.

    Raises:
        ShardCacheError: It is no folder, cannot be written to, or is of another version.
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
            except ForeignEntryError as error:  # says nothing about the disk: other pieces can be written
                self._counters.add(passed=1)
                self._failed("cannot be written", error)
            except OSError as error:
                self._retry_at = self._clock() + RETRY_S
                self._counters.add(passed=1)
                self._failed("cannot be written", error)

    def close(self) -> None:
        with suppress(OSError):  # the folder is gone, or read-only by now: what is left there is seen to be abandoned
            self._room.close()
        self._tree.close()

    def _fill(self, key: str, wanted: ByteSpan, plan: Cover, buffer: memoryview) -> list[ByteSpan]:
        """Read what a plan says; return the pieces that could not be."""
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
        self._warn("damaged", f"a piece was {damage}, which points to a failing disk; it is read from the store again")
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
        self._warn("failed", f"it {what} ({error.strerror or error}); what is not there is read from the store")

    def _warn(self, kind: str, what: str) -> None:
        if self._counters.is_first(kind):
            logging.getLogger("aiostream_data").warning("shard cache %s: %s. This is said once.", self._path, what)


def _prepare(path: str, owner: str) -> None:
    os.makedirs(path, exist_ok=True)
    marker = os.path.join(path, names.MARKER)
    try:
        with opened_regular(marker, os.O_RDONLY) as file:
            said = os.read(file, 4096)
    except FileNotFoundError:
        said = b""
    except ForeignEntryError:
        reason = f"{names.MARKER} in it is not a regular file"
        raise ShardCacheError(path, reason, "remove it, or name another folder") from None
    if said:  # an empty one is what a power cut leaves
        _check_version(path, said)
    else:
        _write_marker(marker, os.path.join(path, names.part_name(owner, 0)))


def _check_version(path: str, said: bytes) -> None:
    try:
        version = json.loads(said)["version"]
    except (ValueError, KeyError, TypeError):
        raise ShardCacheError(path, f"{names.MARKER} in it is damaged", "name another folder, or empty this") from None
    if version != VERSION:
        raise ShardCacheError(
            path,
            f"it belongs to version {version!r} of the cache and this is version {VERSION}",
            "name another folder, or empty this",
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
        return ShardCacheError(path, "a file is where the folder should be", "name a folder, or one that can be made")
    reason = f"it cannot be used: {error.strerror or error}"
    return ShardCacheError(path, reason, "name a folder that can be written to")


def _quarter_of_disk(path: str) -> int:
    disk = os.statvfs(path)
    return max(PIECE_NBYTES * 2, disk.f_blocks * disk.f_frsize // 4)
