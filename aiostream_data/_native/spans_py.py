"""Read many byte ranges (spans) of a file and compute their checksums: the pure-Python version of ``spans.pyx``."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.framing_py import crc32c
from aiostream_data._native.highway_py import highway_spans as highway_spans
from aiostream_data._native.span_checks import check_bytes as check_bytes
from aiostream_data._native.span_checks import check_inside as check_inside
from aiostream_data._native.span_checks import check_spans as check_spans

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
    check_inside(values, starts, lengths)
    spans = zip(starts.tolist(), lengths.tolist(), strict=True)
    return np.array([crc32c(values[start : start + length].data) for start, length in spans], np.uint32)
