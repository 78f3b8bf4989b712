"""Call a Python function on every number of an array: the clear twin of ``scalar_map.pyx``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_INT64 = range(-(2**63), 2**63)


def scalar_results(
    function: Callable[[Any], Any], values: NDArray[Any], row: NDArray[np.int64]
) -> tuple[NDArray[Any], int, Any, BaseException | None]:
    """Return (results, done, odd, error): the function's results as int64 or float64, as far as they are of one type.

    ``done`` results are in the array; when a result is of another type than the first, or no number,
    or does not fit, it is ``odd``, ``done`` is its row, and no later row was called. When the function
    raises, that is ``error``, and ``done`` is its row. ``row[0]`` is always the row whose call came last.
    """
    if values.dtype not in (np.int64, np.float64):
        raise TypeError(f"values must be int64 or float64, not {values.dtype}")
    results = np.empty(len(values), np.int64)
    for number, value in enumerate(values.tolist()):
        row[0] = number
        try:
            result = function(value)
        except BaseException as error:  # noqa: BLE001 - returned
            return results, number, None, error
        if number == 0 and type(result) is float:
            results = results.view(np.float64)
        wanted = float if results.dtype == np.float64 else int
        if type(result) is not wanted or (wanted is int and result not in _INT64):
            return results, number, result, None
        results[number] = result
    return results, len(values), None, None
