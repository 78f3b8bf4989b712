"""Read many small files with one call: the pure-Python twin of ``small_files.pyx``."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

CHANGED: Final = -1
"""The file's size or modification time differs from the expected one, or changed while the file was read."""

NOT_A_FILE: Final = -2
"""The path is a directory, a pipe, a device or a socket."""

_OPEN_FLAGS: Final = (
    os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_NONBLOCK", 0)
)


def read_small_files(
    paths: Sequence[bytes], mtimes_ns: NDArray[np.int64], places: Sequence[memoryview]
) -> NDArray[np.int32]:
    """Read every file whole into its own buffer, without raising an error about a file.

    Args:
        paths: Path of each file, without NUL bytes.
        mtimes_ns: Expected modification time of each file in nanoseconds, int64.
        places: Buffer of each file: contiguous writable bytes, as many as the file should have.

    Returns:
        int32 of shape (files,): 0 for a file that was read, ``CHANGED``, ``NOT_A_FILE``, or the ``errno`` of the
        system call that failed. The buffer of a file that was not read contains undefined bytes.

    Raises:
        ValueError: The arguments do not fit together.
        BufferError: A buffer is not contiguous or not writable.
    """
    check_files(paths, mtimes_ns, places)
    if any(not place.c_contiguous or place.readonly for place in places):
        raise BufferError("a place must be a contiguous writable buffer")
    return np.array(list(map(_problem, paths, mtimes_ns.tolist(), places)), np.int32)


def _problem(path: bytes, mtime_ns: int, place: memoryview) -> int:
    try:
        file = os.open(path, _OPEN_FLAGS)
        try:
            return _read(file, mtime_ns, place)
        finally:
            os.close(file)
    except OSError as error:
        return error.errno or CHANGED


def _read(file: int, mtime_ns: int, place: memoryview) -> int:
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        return NOT_A_FILE
    done = 0
    while _is_as_expected(status, mtime_ns, len(place)) and done < len(place):
        got = os.preadv(file, [place[done:]], done)
        if not got:
            return CHANGED
        done += got
    return 0 if _is_as_expected(os.fstat(file), mtime_ns, len(place)) and done == len(place) else CHANGED


def _is_as_expected(status: os.stat_result, mtime_ns: int, nbytes: int) -> bool:
    return status.st_mtime_ns == mtime_ns and status.st_size == nbytes


def check_files(paths: Sequence[bytes], mtimes_ns: NDArray[np.int64], places: Sequence[memoryview]) -> None:
    """Check the arguments of :func:`read_small_files`. This function does not check that the buffers are writable.

    Raises:
        ValueError: The arguments do not fit together.
    """
    count = len(paths)
    if mtimes_ns.dtype != np.int64 or mtimes_ns.shape != (count,) or not mtimes_ns.flags.c_contiguous:
        found = f"{mtimes_ns.dtype}{mtimes_ns.shape}"
        raise ValueError(f"mtimes_ns must be contiguous int64 of shape ({count},), got {found}")
    if len(places) != count:
        raise ValueError(f"each path needs one place, got {count} paths and {len(places)} places")
    for path in paths:
        if not isinstance(path, bytes) or b"\0" in path:
            raise ValueError(f"a path must be bytes without NUL, got {path!r}")
