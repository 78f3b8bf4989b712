"""Indexes of arrays whose rows differ in length: integers, slices, lists of row numbers, and masks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.arguments import shown
from aiostream_data.errors import ArgumentTypeError, PlanError, RowIndexError

_POSSIBLE: Final = (
    "Use an integer, a slice, a list or an array of integers, or a mask of booleans with one entry per row"
)


def slice_bounds(name: str, rows: slice, count: int) -> tuple[int, int, int]:
    """Return the first row, the end and the step of a slice. ``name`` is the class of the array for the error message.

    Raises:
        ArgumentTypeError: A bound is not an integer.
        PlanError: The step is 0.
    """
    try:
        return rows.indices(count)
    except TypeError:
        raise ArgumentTypeError(f"the bounds of a slice of a {name} must be integers or None, got {rows}") from None
    except ValueError:
        raise PlanError(f"the step of a slice of a {name} must not be 0") from None


def row_numbers(name: str, rows: Any, count: int) -> NDArray[np.int64] | None:
    """Return the numbers of the selected rows, which are at least 0, or None if ``rows`` is a single integer.

    Args:
        name: Class of the array for error messages.
        rows: Index as for a NumPy array with one axis.
        count: Number of rows of the array.

    Raises:
        ArgumentTypeError: ``rows`` is not a valid index.
        PlanError: The step of a slice is 0.
        RowIndexError: A row does not exist, or the length of a mask differs from the number of rows.
    """
    if isinstance(rows, slice):
        return np.arange(*slice_bounds(name, rows, count))
    if isinstance(rows, (bool, np.bool_)):
        raise _refusal(name, rows)
    if hasattr(rows, "__index__") and not getattr(rows, "ndim", 0):
        return None
    if not isinstance(rows, list) and getattr(rows, "ndim", 0) != 1:
        raise _refusal(name, rows)
    chosen = _as_array(name, rows)
    if chosen.dtype.kind == "b":
        if len(chosen) != count:
            raise RowIndexError(f"a mask of a {name} must have one entry per row ({count}), got {len(chosen)} entries")
        return np.flatnonzero(chosen)
    return _in_range(name, chosen, count)


def _as_array(name: str, rows: Any) -> NDArray[Any]:
    try:
        chosen = np.asarray(rows)
    except (TypeError, ValueError):  # a list of lists that differ in length
        raise _refusal(name, rows) from None
    if isinstance(rows, list) and not rows:
        return np.zeros(0, np.int64)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iub":
        raise _refusal(name, rows)
    return chosen


def _in_range(name: str, chosen: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Return row numbers with negative ones counted from the end."""
    outside = np.flatnonzero((chosen < -count) | (chosen >= count))
    if len(outside):
        raise RowIndexError(f"row {chosen[outside[0]]} is out of range: the {name} has {count} rows")
    numbers = chosen.astype(np.int64)
    numbers[numbers < 0] += count
    return numbers


def _refusal(name: str, rows: Any) -> ArgumentTypeError:
    is_array = isinstance(rows, np.ndarray)
    what = f"an array of {rows.dtype} with {rows.ndim} axes" if is_array else shown(rows)
    return ArgumentTypeError(f"cannot index a {name} with {what}: it has one axis of rows. {_POSSIBLE}.")
