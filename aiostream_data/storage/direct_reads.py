"""Bypass the page cache with O_DIRECT, for data sets that are read once or would displace all other cached files.

O_DIRECT requires aligned offsets, lengths and memory, but callers can request any byte range. So the enclosing aligned
range is read in pieces into thread-local memory, and the requested bytes are copied to the caller's buffer.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import threading

ALIGNMENT = 4096
"""Alignment of direct reads in bytes: a multiple of all common disk block sizes."""

PIECE_NBYTES = 2 << 20

_LOGGER = logging.getLogger("aiostream_data")
_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)


class DirectReads:
    """Read open files with O_DIRECT. Thread-safe.

    If a file system refuses direct reads, one warning is logged, and its files are read through the page cache.
    """

    def __init__(self) -> None:
        self._own = threading.local()
        self._lock = threading.Lock()
        self._told = False

    def prepare(self, descriptor: int) -> None:
        """Enable direct reads for an open file. Log a warning if the file system refuses direct reads."""
        if not self._switch(descriptor, on=True):
            self._tell()

    def fill(self, descriptor: int, start: int, buffer: memoryview) -> bool:
        """Fill ``buffer`` from offset ``start``.

        Return False if the caller has to read the range through the page cache.

        Also return False if the file ends before the buffer is full.

        Raises:
            OSError: The read failed for a reason other than a refused direct read.
        """
        if not _is_direct(descriptor):
            return False
        try:
            return self._fill(descriptor, start, buffer)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
        self._tell()
        self._switch(descriptor, on=False)
        return False

    def _fill(self, descriptor: int, start: int, buffer: memoryview) -> bool:
        piece = self._piece()
        done = 0
        while done < len(buffer):
            at = start + done
            aligned = at - at % ALIGNMENT
            wanted = min(PIECE_NBYTES, -(-(start + len(buffer) - aligned) // ALIGNMENT) * ALIGNMENT)
            count = os.preadv(descriptor, [piece[:wanted]], aligned) - (at - aligned)
            if count <= 0:
                return False
            count = min(count, len(buffer) - done)
            buffer[done : done + count] = piece[at - aligned : at - aligned + count]
            done += count
        return True

    def _piece(self) -> memoryview:
        """Return the aligned buffer of the calling thread."""
        piece: memoryview | None = getattr(self._own, "piece", None)
        if piece is None:
            piece = self._own.piece = memoryview(mmap.mmap(-1, PIECE_NBYTES))
        return piece

    def _switch(self, descriptor: int, *, on: bool) -> bool:
        if not hasattr(os, "O_DIRECT"):
            return False
        import fcntl

        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT if on else flags & ~os.O_DIRECT)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
            return False
        return True

    def _tell(self) -> None:
        with self._lock:
            told, self._told = self._told, True
        if not told:
            _LOGGER.warning(
                "direct=True: a file system does not support O_DIRECT; its files are read through the page cache"
            )


def _is_direct(descriptor: int) -> bool:
    if not hasattr(os, "O_DIRECT"):
        return False
    import fcntl

    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)
