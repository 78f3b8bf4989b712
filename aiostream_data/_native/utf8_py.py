"""Validate UTF-8 text in rows of variable length: the pure-Python version of ``utf8.pyx``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.spans_py import check_bytes, check_spans


def first_invalid_utf8(values: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> int:
    """Return the first row that is not valid UTF-8, or -1. Row i is ``values[starts[i] : starts[i] + lengths[i]]``.

    The check is strict: overlong forms, surrogates and code points above U+10FFFF are invalid.

    Raises:
        IndexError: A row is outside ``values``.
        ValueError: ``values`` is not a contiguous uint8 vector, or ``starts`` and ``lengths`` are not int64 vectors of
            one length, or contain a negative number.
    """
    check_bytes(values)
    check_spans(starts, lengths)
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        if start + length > len(values):
            raise IndexError(f"a row is outside {len(values)} bytes")
    for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        try:
            str(values[start : start + length].data, "utf-8")
        except UnicodeDecodeError:
            return row
    return -1
