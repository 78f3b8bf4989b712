"""Read many byte ranges (spans) of a file and compute their checksums: the pure-Python version of ``spans.pyx``."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.framing_py import crc32c

Numbers = NDArray[np.int64]


def read_spans(file: int, offsets: Numbers, lengths: Numbers, ahead: bool = False) -> NDArray[np.uint8]:
    """Read ``lengths[i]`` bytes at ``offsets[i]`` of a file, for each i. Return them concatenated.

    Args:
        file: File descriptor that supports reads at any offset.
        offsets: Offset in bytes of each span (byte range) in the file, int64.
        lengths: Size of each span in bytes, int64.
        ahead: If True, announce all spans to the operating system before reading. Use ``ahead`` if the system must read
            the data from a disk.

    Raises:
        OSError: The operating system could not read the file.
        EOFError: The file ends before the end of a span.
        ValueError: The arrays are not int64 vectors, differ in length, or contain a negative number.
    """
    check_spans(offsets, lengths)
    out = np.empty(int(lengths.sum()), np.uint8)
    spans = list(zip(offsets.tolist(), lengths.tolist(), strict=True))
    if ahead and hasattr(os, "posix_fadvise"):
        for offset, length in spans:
            os.posix_fadvise(file, offset, length, os.POSIX_FADV_WILLNEED)
    start = 0
    view = out.data
    for offset, length in spans:
        stop = start + length
        while start < stop:
            got = os.preadv(file, [view[start:stop]], offset + length - (stop - start))
            if not got:
                raise EOFError(f"{length} bytes at {offset} of a file that ends before")
            start += got
    return out


def crc32c_spans(values: NDArray[np.uint8], starts: Numbers, lengths: Numbers) -> NDArray[np.uint32]:
    """Return the CRC-32C of ``values[starts[i] : starts[i] + lengths[i]]`` for each i.

    Raises:
        IndexError: A span (byte range) is outside ``values``.
        ValueError: ``values`` is not a contiguous uint8 vector, or the spans are invalid as in :func:`read_spans`.
    """
    check_spans(starts, lengths)
    check_bytes(values)
    if len(starts) and int((starts + lengths).max()) > len(values):
        raise IndexError(f"a span is outside {len(values)} bytes")
    spans = zip(starts.tolist(), lengths.tolist(), strict=True)
    return np.array([crc32c(values[start : start + length].data) for start, length in spans], np.uint32)


def check_spans(starts: Numbers, lengths: Numbers) -> None:
    """Raise ``ValueError`` unless the arrays describe valid spans (byte ranges).

    The native kernel also calls this function.
    """
    for array in (starts, lengths):
        if array.dtype != np.int64 or array.ndim != 1 or len(array) != len(starts):
            raise ValueError("starts and lengths must be int64 vectors of one length")
        if len(array) and int(array.min()) < 0:
            raise ValueError(f"a span begins at {array.min()} or has as many bytes")


def check_bytes(values: NDArray[Any]) -> None:
    """Raise ``ValueError`` unless ``values`` is a contiguous uint8 vector.

    The native kernel also calls this function.
    """
    if values.dtype != np.uint8 or values.ndim != 1 or not values.flags.c_contiguous:
        raise ValueError(f"values must be a contiguous vector of uint8, got {values.dtype}{list(values.shape)}")
