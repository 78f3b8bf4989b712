"""The files of a cache folder, by key and span. Every step goes through open directories, so no link is ever followed.

Blocking; used from worker threads, several at once.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from time import monotonic
from typing import Final, NamedTuple

from aiostream_data.storage.cache import names
from aiostream_data.storage.cache.regular_file import ForeignEntryError, check_free, opened_regular
from aiostream_data.storage.cache.spans import ByteSpan, Pieces

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
LATELY_S: Final = 1.0
"""Looking through an object's folder takes long where it has many pieces, and is done no more often than this."""

_KNOWN: Final = 1024
_TRIES: Final = 5


class OwnedFile(NamedTuple):
    """A file that stands for work of a process: a claim, or a part."""

    name: str
    owner: str
    modified_ns: int
    claimed: int = 0


class Tree:
    """An open cache folder.

    Args:
        path: It is there already.
        owner: Of the files that this process makes.
    """

    def __init__(self, path: str, owner: str) -> None:
        self.owner = owner
        self._root = os.open(path, _FOLDER)
        self._numbers = count()
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Pieces]] = {}

    def close(self) -> None:
        """Release the folder. Nothing may be under way."""
        root, self._root = self._root, -1
        if root >= 0:
            os.close(root)

    # -- objects

    def objects(self) -> list[str]:
        """Return the keys of all objects."""
        with os.scandir(self._root) as entries:
            found = [names.key_in(entry.name) for entry in entries if entry.is_dir(follow_symlinks=False)]
        return [key for key in found if key is not None]

    def pieces(self, key: str) -> Pieces:
        """Return the pieces of an object as they are now; none when it is not there."""
        with self._opened(key) as folder:
            if folder is None:
                return Pieces()
            with os.scandir(folder) as entries:
                spans = [names.span_in(entry.name) for entry in entries if entry.is_file(follow_symlinks=False)]
        return Pieces(span for span in spans if span is not None)

    def lately(self, key: str) -> Pieces:
        """Return the pieces of an object as they were less than a second ago, with those that were put since.

        What others have put or removed meanwhile costs a request or an attempt to open it, and nothing else.
        """
        now = monotonic()
        with self._lock:
            known = self._known.get(key)
        if known is not None and now - known[0] < LATELY_S:
            return known[1]
        found = self.pieces(key)
        with self._lock:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[key] = now, found
        return found

    def forget(self, key: str) -> None:
        """Look anew for the pieces of an object when they are asked for next."""
        with self._lock:
            self._known.pop(key, None)

    def used_ns(self, key: str) -> int:
        """Return when an object was last used or changed, by the clock of the file system; 0 when it is not there."""
        with self._opened(key) as folder:
            if folder is None:
                return 0
            with suppress(FileNotFoundError):
                used = os.stat(names.USED, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(used.st_mode):
                    return used.st_mtime_ns
            return os.fstat(folder).st_mtime_ns

    def touch(self, key: str) -> None:
        """Note that an object is used now; nothing when it is not there.

        Raises:
            OSError: The file that says so cannot be written, or is not one of the cache.
        """
        with self._opened(key) as folder:
            if folder is None:
                return
            with (
                suppress(FileNotFoundError),  # the folder was removed just now
                opened_regular(names.USED, os.O_WRONLY | os.O_CREAT, folder) as file,
            ):
                os.utime(file)

    @contextmanager
    def opened_piece(self, key: str, span: ByteSpan) -> Iterator[int]:
        """Open the file of a piece, which can be read until the block ends, whoever removes it meanwhile.

        Raises:
            OSError: It is gone, or cannot be read.
        """
        with self._opened(key) as folder:
            if folder is None:
                raise FileNotFoundError(names.shard_name(key))
            with opened_regular(names.piece_name(span), os.O_RDONLY, folder) as file:
                yield file

    def put(self, key: str, span: ByteSpan, head: bytes, data: memoryview) -> None:
        """Write a piece, which is there as a whole or not at all.

        Raises:
            OSError: It could not be written; nothing of it is left.
        """
        part = names.part_name(self.owner, next(self._numbers))
        file = os.open(part, _NEW, 0o666, dir_fd=self._root)
        try:
            try:
                write_fully(file, head, data)
            finally:
                os.close(file)  # a network file system may say only here that there was no room
            self._move_to_place(part, key, names.piece_name(span))
            self._add(key, span)
        except BaseException:
            with suppress(OSError):
                os.unlink(part, dir_fd=self._root)
            raise

    def remove(self, key: str, span: ByteSpan) -> bool:
        """Remove a piece; False when it was gone already."""
        self.forget(key)
        with self._opened(key) as folder:
            if folder is None:
                return False
            try:
                os.unlink(names.piece_name(span), dir_fd=folder)
            except FileNotFoundError:
                return False
        return True

    def remove_if_empty(self, key: str) -> None:
        """Remove the folder of an object that has no pieces, and nothing that we did not make."""
        with self._opened(key) as folder:
            if folder is None:
                return
            with os.scandir(folder) as entries:
                if any(entry.name != names.USED or not entry.is_file(follow_symlinks=False) for entry in entries):
                    return
            with suppress(FileNotFoundError):
                os.unlink(names.USED, dir_fd=folder)
        with suppress(OSError):  # somebody puts a piece there at this moment, or has removed it
            os.rmdir(names.shard_name(key), dir_fd=self._root)
        self.forget(key)

    # -- what processes are at

    def owned_files(self) -> list[OwnedFile]:
        """Return all claims and parts."""
        found: list[OwnedFile] = []
        with os.scandir(self._root) as entries:
            for entry in entries:
                claim, part = names.claim_in(entry.name), names.part_owner_in(entry.name)
                if (claim is None and part is None) or not entry.is_file(follow_symlinks=False):
                    continue
                try:
                    modified_ns = entry.stat(follow_symlinks=False).st_mtime_ns
                except FileNotFoundError:
                    continue  # ended meanwhile
                owner, nbytes = claim if claim is not None else (part or "", 0)
                found.append(OwnedFile(entry.name, owner, modified_ns, nbytes))
        return found

    def claim(self, nbytes: int) -> tuple[str, int]:
        """Announce a write of this many bytes; return the file's name and time."""
        name = names.claim_name(self.owner, nbytes)
        with opened_regular(name, os.O_WRONLY | os.O_CREAT, self._root) as file:
            os.utime(file)
            return name, os.fstat(file).st_mtime_ns

    def drop(self, name: str) -> None:
        """Remove a claim or a part."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._root)

    def _move_to_place(self, part: str, key: str, piece: str) -> None:
        """Rename a part. Another process may remove its empty folder; it is then made again."""
        for _ in range(_TRIES):
            with self._opened(key) as folder:
                if folder is not None:
                    check_free(piece, folder)
                    with suppress(FileNotFoundError):
                        os.rename(part, piece, src_dir_fd=self._root, dst_dir_fd=folder)
                        return
            with suppress(FileExistsError):
                os.mkdir(names.shard_name(key), dir_fd=self._root)
        raise FileNotFoundError(f"{names.shard_name(key)} is removed as often as it is made")

    @contextmanager
    def _opened(self, key: str) -> Iterator[int | None]:
        """Give the folder of an object to the block, or None when it is not there."""
        try:
            folder = os.open(names.shard_name(key), _FOLDER | os.O_NOFOLLOW, dir_fd=self._root)
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise ForeignEntryError(names.shard_name(key)) from error
            raise
        try:
            yield folder
        finally:
            os.close(folder)

    def _add(self, key: str, span: ByteSpan) -> None:
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known[key] = known[0], known[1].with_one(span)


def write_fully(file: int, *parts: bytes | memoryview) -> None:
    """Write parts one after another to an open file."""
    for part in parts:
        left = memoryview(part)
        while left:
            left = left[os.write(file, left) :]
