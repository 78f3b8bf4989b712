"""Create arrays that contain one value, such as padding."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def filled(shape: tuple[int, ...], fill: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a new array that contains the value ``fill``. Unlike np.full, keep NULs at the end of bytes and text."""
    if not dtype.hasobject:
        return np.full(shape, fill, dtype)
    array = np.empty(shape, dtype)
    array[...] = fill
    return array
