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
    paths: Sequence[bytes], mtimes_ns: NDArray[np.int64], bounds: NDArray[np.int64], target: NDArray[np.uint8]
) -> NDArray[np.int32]:
    """Read every file whole to its place in ``target``, without raising an error about a file.

    Args:
        paths: Path of each file, without NUL bytes.
        mtimes_ns: Expected modification time of each file in nanoseconds, int64.
        bounds: Place of each file in ``target``; int64, one more than files. File i belongs to
            ``target[bounds[i]:bounds[i + 1]]``, and its expected size is the size of this place.
        target: uint8, contiguous and writable.

    Returns:
        int32 of shape (files,): 0 for a file that was read, ``CHANGED``, ``NOT_A_FILE``, or the ``errno`` of the
        system call that failed. The place of a file that was not read contains undefined bytes.

    Raises:
        ValueError: The arguments do not fit together.
    """
    view = target.data
    check_files(paths, mtimes_ns, bounds, len(view))
    places = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    found = [
        _problem(path, mtime_ns, view[start:stop])
        for path, mtime_ns, (start, stop) in zip(paths, mtimes_ns.tolist(), places, strict=True)
    ]
    return np.array(found, np.int32)


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


def check_files(paths: Sequence[bytes], mtimes_ns: NDArray[np.int64], bounds: NDArray[np.int64], nbytes: int) -> None:
    """Check the arguments of :func:`read_small_files`, whose target has ``nbytes`` bytes.

    Raises:
        ValueError: The arguments do not fit together.
    """
    for name, numbers, count in (("mtimes_ns", mtimes_ns, len(paths)), ("bounds", bounds, len(paths) + 1)):
        if numbers.dtype != np.int64 or numbers.shape != (count,) or not numbers.flags.c_contiguous:
            raise ValueError(f"{name} must be contiguous int64 of shape ({count},), got {numbers.dtype}{numbers.shape}")
    if int(bounds[0]) < 0 or int(bounds[-1]) > nbytes or (np.diff(bounds) < 0).any():
        raise ValueError(f"bounds must ascend from 0 to {nbytes} at most")
    for path in paths:
        if not isinstance(path, bytes) or b"\0" in path:
            raise ValueError(f"a path must be bytes without NUL, got {path!r}")
