"""Unnamed temporary file for rows moved from memory to disk, with space management in extents.

How this works. The spill file has no directory entry, so the system deletes it when its last descriptor closes, even
after a crash. The spill file is read and written at offsets and never memory-mapped, because mapped pages would count
as process memory. Freed extents are merged with free neighbors. New extents use the first free extent that is large
enough. Free space at the end of the file is truncated.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left
from collections.abc import Sequence
from io import FileIO
from time import perf_counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.errors import SpillError
from aiostream_data.safe_url import safe_url

GRAIN_NBYTES: Final = 4096
"""Allocation unit in bytes; every extent size is a multiple of this unit."""

SLOW: Final = 5.0
"""Ratio of measured to expected read time above which reads are assumed to come from disk.

Above this ratio, later reads use read-ahead hints.
"""

READ_S: Final = 2e-6
READ_NBYTES_PER_S: Final = 4e9
"""Expected cost of a read from the page cache: a fixed time per read, and a throughput."""

UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS})
"""Error codes of file systems that do not support unnamed files."""

Numbers = NDArray[np.int64]

_MORE_SPACE: Final = "free space in the folder, pass another folder as spill=, or use a smaller buffer_size"


class SpillFile:
    """Unnamed file with extents that can be allocated and freed.

    This class is not thread-safe. The owner must close the file.

    Attributes:
        folder: Folder that contains the file.
        nbytes: Size of the file in bytes.

    Raises:
        SpillError: The folder does not exist, or no file can be created in the folder.
    """

    def __init__(self, folder: str) -> None:
        if "://" in folder:
            cure = "pass a local folder as spill="
            raise SpillError(safe_url(folder), 0, "the folder must be local, got a URL", cure)
        self.folder = folder
        self.nbytes = 0
        self._free: list[tuple[int, int]] = []  # free extents (start, size), ascending, never adjacent
        self._reads_ahead = False
        try:
            self._file = _unnamed(folder)
        except OSError as error:
            cure = "pass a folder that exists, that you may write to and that has free space as spill="
            raise self._failed("cannot create the file", error, cure) from error

    def allocate(self, nbytes: int) -> int:
        """Allocate an extent of at least ``nbytes`` bytes in the file. Return the offset of the extent in the file."""
        size = rounded(nbytes)
        for number, (start, room) in enumerate(self._free):
            if room >= size:
                self._free[number : number + 1] = [(start + size, room - size)] if room > size else []
                return start
        start = self.nbytes
        self.nbytes += size
        return start

    def free(self, start: int, nbytes: int) -> None:
        """Free the extent of ``nbytes`` bytes at offset ``start``.

        Raises:
            SpillError: The file could not be truncated.
        """
        stop = start + rounded(nbytes)
        at = bisect_left(self._free, (start, 0))
        if at < len(self._free) and self._free[at][0] == stop:
            stop += self._free.pop(at)[1]
        if at and sum(self._free[at - 1]) == start:
            start, _ = self._free.pop(at - 1)
            at -= 1
        if stop < self.nbytes:
            self._free.insert(at, (start, stop - start))
            return
        self.nbytes = start
        try:
            self._file.truncate(start)
        except OSError as error:
            raise self._failed("cannot truncate the file", error) from error

    def write(self, start: int, parts: Sequence[NDArray[np.uint8]]) -> None:
        """Write the arrays in ``parts`` one after another at offset ``start``, in one system call if possible.

        Raises:
            SpillError: The disk is full, or writing failed.
        """
        left = [part.data for part in parts if len(part)]
        try:
            while left:
                written = os.pwritev(self._file.fileno(), left, start)
                start += written
                while left and written >= len(left[0]):
                    written -= len(left.pop(0))
                if left:
                    left[0] = left[0][written:]
        except OSError as error:
            raise self._failed("cannot write rows", error) from error

    def read(self, offsets: Numbers, lengths: Numbers) -> NDArray[np.uint8]:
        """Read ``lengths[i]`` bytes at ``offsets[i]`` for each i. Return the bytes concatenated in a new array.

        Raises:
            SpillError: Reading failed, or the file is too short.
        """
        began = perf_counter()
        try:
            found = _native.read_spans(self._file.fileno(), offsets, lengths, self._reads_ahead)
        except (OSError, EOFError) as error:
            raise self._failed("cannot read rows back", error) from error
        times = (perf_counter() - began) / max(READ_S, len(offsets) * READ_S + len(found) / READ_NBYTES_PER_S)
        self._reads_ahead = times > SLOW or (self._reads_ahead and times > 0.3 * SLOW)
        return found

    def damaged(self, what: str) -> SpillError:
        """Return the error to raise when the data read from the file differs from the data written."""
        return SpillError(
            self.folder, self.nbytes, what, "the disk or the memory is faulty: pass a folder on another disk as spill="
        )

    def close(self) -> None:
        """Close and delete the file. Idempotent."""
        self._file.close()

    def _failed(self, what: str, error: OSError | EOFError, cure: str = _MORE_SPACE) -> SpillError:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return SpillError(self.folder, self.nbytes, f"{what}: {reason}", cure)


def rounded(nbytes: int) -> int:
    """Round a size up to a multiple of ``GRAIN_NBYTES``, the allocation unit."""
    return -(-nbytes // GRAIN_NBYTES) * GRAIN_NBYTES


def check_folder(folder: str) -> None:
    """Check that a spill file (a temporary file for rows) can be created in the folder.

    Raises:
        SpillError: No file can be created in the folder.
    """
    SpillFile(folder).close()


def _unnamed(folder: str) -> FileIO:
    descriptor = _descriptor(folder)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    return FileIO(descriptor, "r+")


def _descriptor(folder: str) -> int:
    without_name = getattr(os, "O_TMPFILE", None)
    if without_name is not None:
        try:
            return os.open(folder, without_name | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except (IsADirectoryError, FileNotFoundError):
            pass  # errors of kernels that do not support O_TMPFILE
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
    from tempfile import mkstemp  # this import takes milliseconds

    descriptor, path = mkstemp(prefix="aiostream_data-spill-", dir=folder)
    os.unlink(path)
    return descriptor
