"""Arrow bitmaps: one bit per row, with the first row in the lowest bit of the first byte."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_ALIGNMENT: Final = 64
"""Arrow recommends that buffers end at a multiple of 64 bytes."""


def packed_bits(valid: NDArray[np.bool_] | None) -> tuple[NDArray[np.uint8] | None, int]:
    """Return the validity bitmap of an array, and its number of missing rows. The bitmap is None if none is missing."""
    missing = 0 if valid is None else len(valid) - int(np.count_nonzero(valid))
    return (None, 0) if valid is None or not missing else (packed(valid), missing)


def packed(bits: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a bitmap of booleans, padded with zeros as Arrow recommends."""
    content = np.packbits(bits, bitorder="little")
    out = np.zeros(-(-max(1, len(content)) // _ALIGNMENT) * _ALIGNMENT, np.uint8)
    out[: len(content)] = content
    return out


def unpacked(bitmap: NDArray[np.uint8], start: int, length: int) -> NDArray[np.bool_]:
    """Return ``length`` bits of a bitmap from bit ``start`` as a new array of booleans."""
    used = bitmap[start // 8 : (start + length + 7) // 8]
    bits = np.unpackbits(used, count=start % 8 + length, bitorder="little")
    return bits[start % 8 :].view(np.bool_)
