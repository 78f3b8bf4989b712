"""Open files of a cache folder: regular files only, without waiting and without following links.

Anybody who can write to the folder can put anything there under a name of the cache: a pipe, which would block until
somebody opens its other end, a link, a device, a directory.
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
"""Errors of opening something else: a pipe or socket, a link, a directory, a device."""


class ForeignEntryError(OSError):
    """An entry has a name of the cache, and is not what the cache would make. It is left as it is."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.EEXIST, f"{name} in it was not made by the cache, and is left alone")


@contextmanager
def opened_regular(path: str, flags: int, folder: int | None = None) -> Iterator[int]:
    """Lend the descriptor of a regular file to the block.

    Args:
        flags: Such as ``os.O_RDONLY``.
        folder: Descriptor of the directory that ``path`` is relative to.

    Raises:
        ForeignEntryError: It is something else.
        OSError: It cannot be opened.
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
    """Check that a regular file may be renamed to ``name``: there is nothing, or another regular file.

    Raises:
        ForeignEntryError: There is something else.
    """
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise ForeignEntryError(name)
