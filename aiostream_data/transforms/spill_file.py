"""A file without a name that rows wait in: space is taken and given back in extents, and every failure says where.

How this works. The file has no name in any folder, so it is gone with the last descriptor of it, whatever ends the
process. It is read and written at offsets, never mapped: what was mapped would count as memory of the process. What is
given back is joined with free neighbours and handed out again, the first that is large enough; at the end of the file
it is cut off.
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
"""Extents are multiples of this."""

SLOW: Final = 5.0
"""Reads that take so many times what memory would come from a disk, which is told of many at once from then on."""

READ_S: Final = 2e-6
READ_NBYTES_PER_S: Final = 4e9
"""What a read takes that the system serves from memory."""

UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS})
"""What file systems say that have no files without a name."""

Numbers = NDArray[np.int64]


class SpillFile:
    """Not thread-safe; closed by its owner.

    Attributes:
        folder: Where it is.
        nbytes: Size of the file.

    Raises:
        SpillError: The folder is not there, or no file can be made in it.
    """

    def __init__(self, folder: str) -> None:
        if "://" in folder:
            cure = "name a folder of this machine with spill="
            raise SpillError(safe_url(folder), 0, "this is a URL, and no local folder", cure)
        self.folder = folder
        self.nbytes = 0
        self._free: list[tuple[int, int]] = []  # (start, size), ascending, no two of them adjacent
        self._reads_ahead = False
        try:
            self._file = _unnamed(folder)
        except OSError as error:
            raise self._failed("no file can be made there", error) from error

    def allocate(self, nbytes: int) -> int:
        """Return where an extent with room for ``nbytes`` begins."""
        size = rounded(nbytes)
        for number, (start, room) in enumerate(self._free):
            if room >= size:
                self._free[number : number + 1] = [(start + size, room - size)] if room > size else []
                return start
        start = self.nbytes
        self.nbytes += size
        return start

    def free(self, start: int, nbytes: int) -> None:
        """Give an extent back."""
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
            raise self._failed("the file could not be made shorter", error) from error

    def write(self, start: int, parts: Sequence[NDArray[np.uint8]]) -> None:
        """Write parts one after another from ``start`` on, in one call where the system takes them all.

        Raises:
            SpillError: There is no room, or writing failed.
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
            raise self._failed("rows could not be written", error) from error

    def read(self, offsets: Numbers, lengths: Numbers) -> NDArray[np.uint8]:
        """Return ``lengths[i]`` bytes from ``offsets[i]`` on, for every i, one after another, in new memory.

        Raises:
            SpillError: Reading failed, or the file is shorter than it was made.
        """
        began = perf_counter()
        try:
            found = _native.read_spans(self._file.fileno(), offsets, lengths, self._reads_ahead)
        except (OSError, EOFError) as error:
            raise self._failed("rows could not be read back", error) from error
        times = (perf_counter() - began) / max(READ_S, len(offsets) * READ_S + len(found) / READ_NBYTES_PER_S)
        self._reads_ahead = times > SLOW or (self._reads_ahead and times > 0.3 * SLOW)
        return found

    def damaged(self, what: str) -> SpillError:
        """Return the error to raise when what was read is not what was written."""
        return SpillError(self.folder, self.nbytes, what, "the disk or the memory is faulty: name a folder elsewhere")

    def close(self) -> None:
        """Let the system have the file back. Idempotent."""
        self._file.close()

    def _failed(self, what: str, error: OSError | EOFError) -> SpillError:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        cure = "make room there, name another folder with spill=, or use a smaller buffer_size"
        return SpillError(self.folder, self.nbytes, f"{what}: {reason}", cure)


def rounded(nbytes: int) -> int:
    """Return the size of the extent for that many bytes."""
    return -(-nbytes // GRAIN_NBYTES) * GRAIN_NBYTES


def check_folder(folder: str) -> None:
    """Make a file in the folder and let go of it.

    Raises:
        SpillError: That is not possible.
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
            pass  # what kernels say that do not know the flag
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
    from tempfile import mkstemp  # takes milliseconds

    descriptor, path = mkstemp(prefix="aiostream_data-spill-", dir=folder)
    os.unlink(path)
    return descriptor
