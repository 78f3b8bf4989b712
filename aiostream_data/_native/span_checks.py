"""Checks of spans, which are byte ranges of a file or of an array, for the native kernels and their Python versions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


def check_spans(starts: Numbers, lengths: Numbers) -> None:
    """Raise ``ValueError`` unless the arrays describe valid spans (byte ranges).

    The native kernel also calls this function.
    """
    for array in (starts, lengths):
        if array.dtype != np.int64 or array.ndim != 1 or len(array) != len(starts):
            raise ValueError("starts and lengths must be int64 vectors of one length")
        if len(array) and int(array.min()) < 0:
            raise ValueError(f"a span begins at {array.min()} or has as many bytes")


def check_inside(values: NDArray[Any], starts: Numbers, lengths: Numbers) -> None:
    """Raise an error unless ``values`` contains the spans.

    Raises:
        IndexError: A span is outside ``values``.
        ValueError: ``values`` is not a contiguous uint8 vector, or the spans are invalid.
    """
    check_spans(starts, lengths)
    check_bytes(values)
    if len(starts) and bool((lengths > len(values) - starts).any()):
        raise IndexError(f"a span is outside {len(values)} bytes")


def check_bytes(values: NDArray[Any]) -> None:
    """Raise ``ValueError`` unless ``values`` is a contiguous uint8 vector.

    The native kernel also calls this function.
    """
    if values.dtype != np.uint8 or values.ndim != 1 or not values.flags.c_contiguous:
        raise ValueError(f"values must be a contiguous vector of uint8, got {values.dtype}{list(values.shape)}")
