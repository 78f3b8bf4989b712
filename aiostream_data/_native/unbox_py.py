"""Convert lists of Python numbers to arrays: the pure-Python version of ``unbox.pyx``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def unbox_ints(values: list[Any]) -> NDArray[np.int64] | None:
    """Return an int64 array if all values have exactly the type int and fit into 64 bits, else None."""
    if not all(type(value) is int for value in values):
        return None
    try:
        return np.fromiter(values, np.int64, len(values))
    except OverflowError:
        return None


def unbox_floats(values: list[Any]) -> NDArray[np.float64] | None:
    """Return a float64 array if all values have exactly the type float, else None."""
    if not all(type(value) is float for value in values):
        return None
    return np.fromiter(values, np.float64, len(values))
