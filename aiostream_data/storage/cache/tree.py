"""File operations in a cache folder, by cache key and byte range. All operations block and are thread-safe.

All paths are resolved relative to open directories, so symbolic links are never followed.
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
"""Minimum seconds between two scans of an object's folder. Scans of a folder with many pieces are slow."""

_KNOWN: Final = 1024
_TRIES: Final = 5


class OwnedFile(NamedTuple):
    """A temporary file of one process: a claim (reserved bytes) or a part (an unfinished piece)."""

    name: str
    owner: str
    modified_ns: int
    claimed: int = 0


class Tree:
    """An open cache folder.

    Args:
        path: Existing folder.
        owner: Unique name of this process, used in the names of its temporary files.
    """

    def __init__(self, path: str, owner: str) -> None:
        self.owner = owner
        self._root = os.open(path, _FOLDER)
        self._numbers = count()
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Pieces]] = {}

    def close(self) -> None:
        """Close the folder. No other call on this folder may be in progress."""
        root, self._root = self._root, -1
        if root >= 0:
            os.close(root)

    # -- objects

    def objects(self) -> list[str]:
        """Return the keys of all cached objects."""
        with os.scandir(self._root) as entries:
            found = [names.key_in(entry.name) for entry in entries if entry.is_dir(follow_symlinks=False)]
        return [key for key in found if key is not None]

    def pieces(self, key: str) -> Pieces:
        """Scan the folder of an object and return the pieces in it. The result is empty if the object has no pieces."""
        with self._opened(key) as folder:
            if folder is None:
                return Pieces()
            with os.scandir(folder) as entries:
                spans = [names.span_in(entry.name) for entry in entries if entry.is_file(follow_symlinks=False)]
        return Pieces(span for span in spans if span is not None)

    def lately(self, key: str) -> Pieces:
        """Return the pieces of an object, from a folder scan at most one second ago. Later writes of this process are
        included.

        Changes that other processes made in the last second can be missing. A missing change only causes an unnecessary
        request or a failed open.
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
        """Discard the last scan of an object's folder, so that the next :meth:`lately` scans again."""
        with self._lock:
            self._known.pop(key, None)

    def used_ns(self, key: str) -> int:
        """Return the time of an object's last use or change, in nanoseconds, or 0 if the object is missing."""
        with self._opened(key) as folder:
            if folder is None:
                return 0
            with suppress(FileNotFoundError):
                used = os.stat(names.USED, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(used.st_mode):
                    return used.st_mtime_ns
            return os.fstat(folder).st_mtime_ns

    def touch(self, key: str) -> None:
        """Set the time of an object's last use to the current time. Do nothing if the object is missing.

        Raises:
            OSError: The file ``used`` cannot be written, or was not created by the cache.
        """
        with self._opened(key) as folder:
            if folder is None:
                return
            with (
                suppress(FileNotFoundError),  # another process has just removed the folder
                opened_regular(names.USED, os.O_WRONLY | os.O_CREAT, folder) as file,
            ):
                os.utime(file)

    @contextmanager
    def opened_piece(self, key: str, span: ByteSpan) -> Iterator[int]:
        """Open a piece file and yield its file descriptor, which stays readable if the file is removed.

        Raises:
            OSError: The piece is missing or cannot be opened.
        """
        with self._opened(key) as folder:
            if folder is None:
                raise FileNotFoundError(names.shard_name(key))
            with opened_regular(names.piece_name(span), os.O_RDONLY, folder) as file:
                yield file

    def put(self, key: str, span: ByteSpan, head: bytes, data: memoryview) -> None:
        """Write a piece atomically: other processes see the complete piece or none.

        Raises:
            OSError: The piece could not be written. No partial file remains.
        """
        part = names.part_name(self.owner, next(self._numbers))
        file = os.open(part, _NEW, 0o666, dir_fd=self._root)
        try:
            try:
                write_fully(file, head, data)
            finally:
                os.close(file)  # a network file system may report a full disk only here
            self._move_to_place(part, key, names.piece_name(span))
            self._add(key, span)
        except BaseException:
            with suppress(OSError):
                os.unlink(part, dir_fd=self._root)
            raise

    def remove(self, key: str, span: ByteSpan) -> bool:
        """Remove a piece. Return False if the piece was already removed."""
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
        """Remove the folder of an object if the folder contains no pieces and no files of other programs."""
        with self._opened(key) as folder:
            if folder is None:
                return
            with os.scandir(folder) as entries:
                if any(entry.name != names.USED or not entry.is_file(follow_symlinks=False) for entry in entries):
                    return
            with suppress(FileNotFoundError):
                os.unlink(names.USED, dir_fd=folder)
        with suppress(OSError):  # another process has added a piece or removed the folder
            os.rmdir(names.shard_name(key), dir_fd=self._root)
        self.forget(key)

    # -- claims and parts

    def owned_files(self) -> list[OwnedFile]:
        """Return all claims and parts that any process has created in the folder."""
        found: list[OwnedFile] = []
        with os.scandir(self._root) as entries:
            for entry in entries:
                claim, part = names.claim_in(entry.name), names.part_owner_in(entry.name)
                if (claim is None and part is None) or not entry.is_file(follow_symlinks=False):
                    continue
                try:
                    modified_ns = entry.stat(follow_symlinks=False).st_mtime_ns
                except FileNotFoundError:
                    continue  # removed since the scan
                owner, nbytes = claim if claim is not None else (part or "", 0)
                found.append(OwnedFile(entry.name, owner, modified_ns, nbytes))
        return found

    def claim(self, nbytes: int) -> tuple[str, int]:
        """Create or renew a claim that reserves ``nbytes``. Return the claim file's name and modification time (ns)."""
        name = names.claim_name(self.owner, nbytes)
        with opened_regular(name, os.O_WRONLY | os.O_CREAT, self._root) as file:
            os.utime(file)
            return name, os.fstat(file).st_mtime_ns

    def drop(self, name: str) -> None:
        """Remove the claim or part file ``name`` if it exists."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._root)

    def _move_to_place(self, part: str, key: str, piece: str) -> None:
        """Rename a part to its final name. If another process removes the object's folder, create the folder again."""
        for _ in range(_TRIES):
            with self._opened(key) as folder:
                if folder is not None:
                    check_free(piece, folder)
                    with suppress(FileNotFoundError):
                        os.rename(part, piece, src_dir_fd=self._root, dst_dir_fd=folder)
                        return
            with suppress(FileExistsError):
                os.mkdir(names.shard_name(key), dir_fd=self._root)
        raise FileNotFoundError(f"cannot store a piece: another process keeps removing {names.shard_name(key)}")

    @contextmanager
    def _opened(self, key: str) -> Iterator[int | None]:
        """Open the folder of an object and yield its file descriptor, or None if the folder is missing."""
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
    """Write all parts completely to an open file, one after another."""
    for part in parts:
        left = memoryview(part)
        while left:
            left = left[os.write(file, left) :]
