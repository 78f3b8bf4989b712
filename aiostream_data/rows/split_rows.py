"""Base of arrays whose rows differ in length: one buffer, and the boundaries of the rows in it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.arguments import shown
from aiostream_data.errors import ArgumentTypeError, PlanError, RowIndexError
from aiostream_data.rows.filled_arrays import filled
from aiostream_data.rows.row_selection import row_numbers, slice_bounds

LONG_ROW: Final = 1024
"""Length of the longest row in values above which rows are padded one by one, instead of with a mask."""

MASKED_VALUES: Final = 1 << 20
"""Maximum number of values of a mask for padding."""


@dataclass(frozen=True, slots=True, eq=False)
class SplitRows:
    """Rows of different lengths in one buffer: row i is ``values[row_splits[i] : row_splits[i + 1]]``.

    Attributes:
        values: The rows, concatenated along the first axis.
        row_splits: Row boundaries in ``values``: an ascending int64 array with one more entry than there are rows.
    """

    values: NDArray[Any]
    row_splits: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    @property
    def nbytes(self) -> int:
        """Total size of ``values`` and ``row_splits`` in bytes."""
        return int(self.values.nbytes + self.row_splits.nbytes)

    @property
    def row_lengths(self) -> NDArray[np.int64]:
        """Length of each row, int64."""
        return np.diff(self.row_splits)

    def to_padded(self, fill: Any = 0) -> NDArray[Any]:
        """Return a dense array of shape (rows, longest row, ...), with shorter rows padded with ``fill``."""
        longest = int(self.row_lengths.max(initial=0))
        padded = filled((len(self), longest, *self.values.shape[1:]), fill, self.values.dtype)
        if longest > LONG_ROW:
            for target, (start, stop) in zip(padded, pairwise(self.row_splits.tolist()), strict=True):
                target[: stop - start] = self.values[start:stop]
            return padded
        rows = max(1, MASKED_VALUES // max(1, longest))
        for start in range(0, len(self), rows):  # so that the mask is small
            values, splits = self._part(start, min(start + rows, len(self)))
            padded[start : start + rows][np.arange(longest) < np.diff(splits)[:, None]] = values
        return padded

    def _values_of_rows(self) -> NDArray[Any]:
        view: NDArray[Any] = self.values[int(self.row_splits[0]) : int(self.row_splits[-1])]
        return view

    def _place(self, row: int) -> int:
        """Return the number of a row, which may be negative as in a list."""
        position = row + len(self) if row < 0 else row
        if not 0 <= position < len(self):
            raise RowIndexError(f"row {row} is out of range: the {type(self).__name__} has {len(self)} rows")
        return position

    def _range(self, rows: slice) -> tuple[int, int]:
        """Return the first row of a slice with step 1, and the end of the slice."""
        start, stop, _ = slice_bounds(type(self).__name__, rows, len(self))
        return start, max(start, stop)

    def _numbers(self, rows: Any) -> NDArray[np.int64] | None:
        """Return the numbers of several rows, or None if ``rows`` is an integer; see :func:`row_numbers`."""
        return row_numbers(type(self).__name__, rows, len(self))

    def _copies(self, numbers: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the values and boundaries of rows in any order; the values are a copy."""
        if not isinstance(self.values, np.ndarray):
            raise ArgumentTypeError(
                f"cannot select rows of a {type(self).__name__} of {type(self.values).__name__}: only slices with "
                "step 1 are possible on a device. Select the rows before the transfer."
            )
        splits = np.asarray(self.row_splits, np.int64)
        starts = splits[numbers]
        lengths = splits[numbers + 1] - starts
        values, begins = _native.compact(np.ascontiguousarray(self.values), starts, lengths)
        return values, np.append(begins, len(values))

    def _part(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the values and boundaries of a range of rows; the values are a view."""
        splits = self.row_splits[start : stop + 1]
        return self.values[int(splits[0]) : int(splits[-1])], splits - splits[0]


def check_arrays(name: str, values: Any, row_splits: Any) -> None:
    """Check that values and boundaries are arrays with the right axes. ``name`` is the class in error messages.

    Boundaries on a device are not read, because reading them would wait for the device.

    Raises:
        ArgumentTypeError: ``values`` or ``row_splits`` is not an array.
        PlanError: ``row_splits`` are not valid boundaries within ``values``.
    """
    if not hasattr(values, "ndim") or not hasattr(row_splits, "ndim"):
        found = f"{type(values).__name__} and {type(row_splits).__name__}"
        raise ArgumentTypeError(f"values and row_splits must be arrays, got {found}")
    if row_splits.ndim != 1 or len(row_splits) < 1 or values.ndim < 1:
        raise PlanError(
            f"cannot create a {name}: values have shape {values.shape}, and row_splits {row_splits.shape}. "
            "Pass values with at least one axis, and row_splits with one axis and one entry or more."
        )
    if isinstance(row_splits, np.ndarray):
        _check_splits(row_splits, len(values))


def _check_splits(splits: NDArray[Any], stop: int) -> None:
    if splits.dtype.kind not in "iu":
        raise ArgumentTypeError(f"row_splits must be integers, got {splits.dtype}")
    if splits[0] < 0 or splits[-1] > stop or (splits[1:] < splits[:-1]).any():
        raise PlanError(f"row_splits must ascend, from at least 0 to at most {stop}, got {shown(splits.tolist())}")
