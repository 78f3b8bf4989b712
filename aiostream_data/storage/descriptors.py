"""Cache of open file descriptors, so that reading a shard in many ranges opens its file once."""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class _OpenFile:
    descriptor: int
    borrowers: int = 0
    evicted: bool = False


class DescriptorCache:
    """Least-recently-used cache of open files. The cache is thread-safe, and no thread holds the lock during a system
    call.

    If a file is evicted during use, its last user closes the file.

    Args:
        max_open: Maximum number of cached files.
        open_file: Function that opens a path for reading and returns its descriptor.
    """

    def __init__(self, max_open: int, open_file: Callable[[str], int] | None = None) -> None:
        self._max_open = max_open
        self._open_file = open_file or _open_file
        self._lock = threading.Lock()
        self._files: OrderedDict[str, _OpenFile] = OrderedDict()
        self._closed = False

    @contextmanager
    def borrow(self, path: str) -> Iterator[int]:
        """Yield a read-only file descriptor of ``path``, valid inside the block.

        Raises:
            OSError: The file cannot be opened.
        """
        file = self._take(path) or self._add(path, self._opened(path))
        try:
            yield file.descriptor
        finally:
            self._give_back(file)

    @contextmanager
    def borrow_open(self, path: str) -> Iterator[int | None]:
        """Yield the file descriptor of ``path``, valid inside the block, or None if the file is not open."""
        file = self._take(path)
        try:
            yield None if file is None else file.descriptor
        finally:
            if file is not None:
                self._give_back(file)

    def forget(self, path: str) -> bool:
        """Remove ``path`` from the cache, so that the next user reopens the file.

        Return False if ``path`` was not cached.
        """
        with self._lock:
            file = self._files.pop(path, None)
            if file is None:
                return False
            file.evicted = True
            is_idle = file.borrowers == 0
        if is_idle:
            os.close(file.descriptor)
        return True

    def close(self) -> None:
        """Close all idle files. A file in use is closed when its last use ends. Idempotent."""
        with self._lock:
            self._closed = True
            idle = self._evict_down_to(0)
        for descriptor in idle:
            os.close(descriptor)

    def _opened(self, path: str) -> int:
        """Open a file. If the process or the system has too many open files, close idle files and try again."""
        try:
            return self._open_file(path)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._close_idle():
                raise
        return self._open_file(path)

    def _close_idle(self) -> bool:
        """Close all files that nobody uses. Return False if there are none."""
        with self._lock:
            idle = [path for path, file in self._files.items() if file.borrowers == 0]
            descriptors = [self._files.pop(path).descriptor for path in idle]
        for descriptor in descriptors:
            os.close(descriptor)
        return bool(descriptors)

    def _take(self, path: str) -> _OpenFile | None:
        with self._lock:
            file = self._files.get(path)
            if file is not None:
                self._files.move_to_end(path)
                file.borrowers += 1
            return file

    def _give_back(self, file: _OpenFile) -> None:
        with self._lock:
            file.borrowers -= 1
            is_last = file.evicted and file.borrowers == 0
        if is_last:
            os.close(file.descriptor)

    def _add(self, path: str, descriptor: int) -> _OpenFile:
        file = _OpenFile(descriptor, borrowers=1)
        with self._lock:
            if self._closed or path in self._files:
                # Two threads opened the path at once, or the cache was closed: do not cache this descriptor.
                file.evicted = True
                return file
            self._files[path] = file
            idle = self._evict_down_to(self._max_open)
        for surplus in idle:
            os.close(surplus)
        return file

    def _evict_down_to(self, count: int) -> list[int]:
        """Evict the least recently used files. Return the descriptors of evicted files that are not in use.

        The caller must hold the lock.
        """
        idle: list[int] = []
        while len(self._files) > count:
            _, file = self._files.popitem(last=False)
            file.evicted = True
            if file.borrowers == 0:
                idle.append(file.descriptor)
        return idle


def _open_file(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
