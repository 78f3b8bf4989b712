"""Call a Python function on each number of an array: the pure-Python version of ``scalar_map.pyx``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_INT64 = range(-(2**63), 2**63)


def scalar_results(
    function: Callable[[Any], Any], values: NDArray[Any], row: NDArray[np.int64]
) -> tuple[NDArray[Any], int, Any, BaseException | None]:
    """Call ``function`` on each value, as long as all results are int64 or all results are float64.

    Returns:
        ``(results, done, odd, error)``. The first ``done`` entries of ``results`` are valid. ``odd`` is the first
        result that differs in type from earlier results or needs more than 64 bits. The calls stop at this result.
        ``error`` is the exception raised by ``function``, or None. During the calls, ``row[0]`` is set to the row
        number of the last call.
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
