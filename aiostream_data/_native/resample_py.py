"""Pure-Python twin of the native kernel that resizes images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

_BITS: Final = 22
"""Bits after the point of a weight."""

MOST_NBYTES: Final = 1 << 31
"""Maximum size in bytes of the image after its rows were resized."""


def resample(pixels: NDArray[np.uint8], box: Sequence[float], height: int, width: int) -> NDArray[np.uint8]:
    """Resize a part of an image with bilinear interpolation and antialiasing, to the values that Pillow computes.

    Args:
        pixels: ``uint8[rows, columns, channels]``.
        box: Left, top, right and bottom edge of the part, in pixels.
        height, width: Size of the result.

    Returns:
        A new array, ``uint8[height, width, channels]``.

    Raises:
        ValueError: The image is empty, the part does not lie in it, or the result is empty or too large.
    """
    check_image(pixels, box, height, width)
    left, top, right, bottom = map(float, np.array(box, np.float32))
    rows = _resized(pixels.transpose(1, 0, 2), left, right, width).transpose(1, 0, 2)
    return np.ascontiguousarray(_resized(rows, top, bottom, height))


def _resized(pixels: NDArray[np.uint8], first: float, last: float, size: int) -> NDArray[np.uint8]:
    """Resize the first axis of an image."""
    scale = float(np.float32(last) - np.float32(first)) / size
    reach = max(scale, 1.0)
    resized = np.empty((size, *pixels.shape[1:]), np.uint8)
    for place in range(size):
        center = first + (place + 0.5) * scale
        start = min(max(int(center - reach + 0.5), 0), len(pixels) - 1)
        stop = min(int(center + reach + 0.5), len(pixels))
        distances = np.abs((np.arange(start, stop) - center + 0.5) * (1.0 / reach))
        shares = np.maximum(1.0 - distances, 0.0)
        total = sum(shares.tolist())
        weights = (0.5 + (shares / total if total else shares) * (1 << _BITS)).astype(np.int64)
        sums = np.tensordot(weights, pixels[start:stop].astype(np.int64), 1) + (1 << (_BITS - 1))
        resized[place] = np.clip(sums >> _BITS, 0, 255)
    return resized


def check_image(pixels: NDArray[np.uint8], box: Sequence[float], height: int, width: int) -> None:
    """Raise ValueError unless a part of an image can be resized; see :func:`resample`."""
    if pixels.ndim != 3 or pixels.dtype != np.uint8 or not pixels.size or pixels.shape[2] > 4:
        raise ValueError(f"pixels must be uint8[rows, columns, channels], got {pixels.dtype}{list(pixels.shape)}")
    left, top, right, bottom = box
    # Callers scale boxes by a rounded factor, so that an edge can lie a little outside the image.
    rows, columns = pixels.shape[0] * (1 + 1e-6), pixels.shape[1] * (1 + 1e-6)
    if not (0 <= left < right <= columns and 0 <= top < bottom <= rows):
        raise ValueError(f"box {tuple(box)} is not part of the image, which has {list(pixels.shape)} pixels")
    channels = pixels.shape[2]
    nbytes = max(height * width, pixels.shape[0] * (width + 4)) * channels
    if min(height, width) < 1 or nbytes > MOST_NBYTES:
        raise ValueError(f"the result must have 1 to {MOST_NBYTES} bytes, got {height} x {width} pixels")
