"""Read past the page cache (O_DIRECT): for data sets that are read once, or would push everything else out of it.

The kernel then wants offset, length and memory aligned, which the caller's are not. So the aligned range around
what was asked for is read in pieces into memory of this thread, and copied from there.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import threading

ALIGNMENT = 4096
"""A multiple of the block size of any disk in use."""

PIECE_NBYTES = 2 << 20

_LOGGER = logging.getLogger("aiostream_data")
_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)


class DirectReads:
    """Thread-safe. Says once when a file system refuses, and leaves its files to be read as usual."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._lock = threading.Lock()
        self._told = False

    def prepare(self, descriptor: int) -> None:
        """Let reads of an open file pass by the page cache, or say that they cannot."""
        if not self._switch(descriptor, on=True):
            self._tell()

    def fill(self, descriptor: int, start: int, buffer: memoryview) -> bool:
        """Fill ``buffer`` from offset ``start``; False where that is not possible, and has to be done as usual.

        That is so as well where the file ends before.

        Raises:
            OSError: The disk failed.
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
        """Return this thread's aligned memory."""
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
                "direct=True: a file system refuses reads past the page cache (O_DIRECT); its files are read as usual"
            )


def _is_direct(descriptor: int) -> bool:
    if not hasattr(os, "O_DIRECT"):
        return False
    import fcntl

    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)
