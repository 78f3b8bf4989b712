"""Open files of a cache folder without blocking. Links and all other entries that are not regular files are refused.

Anyone with write access to the folder can create a pipe, link, device or directory with the name of a cache file.
Opening a pipe would block until another process opens the other end of the pipe.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_FLAGS: Final = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_FOREIGN: Final = frozenset({errno.ENXIO, errno.ELOOP, errno.EISDIR, errno.ENODEV, errno.ENOTDIR, errno.EMLINK})
"""Error codes of ``open`` for a folder entry that is a pipe, socket, link, directory or device."""


class ForeignEntryError(OSError):
    """Error for a folder entry that has the name of a cache file but was not created by the cache.

    The cache leaves the entry unchanged.
    """

    def __init__(self, name: str) -> None:
        super().__init__(errno.EEXIST, f"{name} was not created by the cache; remove it")


@contextmanager
def opened_regular(path: str, flags: int, folder: int | None = None) -> Iterator[int]:
    """Open a regular file, yield its descriptor, and close the file when the block ends.

    Args:
        path: Path of the file.
        flags: Flags of ``os.open``, such as ``os.O_RDONLY``.
        folder: Descriptor of the directory that ``path`` is relative to.

    Raises:
        ForeignEntryError: The path is not a regular file.
        OSError: The file cannot be opened.
    """
    try:
        file = os.open(path, flags | _FLAGS, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno in _FOREIGN:
            raise ForeignEntryError(path) from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ForeignEntryError(path)
        yield file
    finally:
        os.close(file)


def check_free(name: str, folder: int) -> None:
    """Check that ``name`` does not exist or is a regular file, so that a rename may replace it.

    Raises:
        ForeignEntryError: ``name`` exists and is not a regular file.
    """
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise ForeignEntryError(name)
