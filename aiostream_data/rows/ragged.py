"""Ragged arrays: arrays in a batch whose rows differ in length."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import ArgumentTypeError, PlanError
from aiostream_data.rows.split_rows import SplitRows, check_arrays


@dataclass(frozen=True, slots=True, eq=False)
class RaggedArray(SplitRows):
    """Array of rows with different lengths: row i is ``values[row_splits[i] : row_splits[i + 1]]``.

    The layout is that of ``tf.RaggedTensor`` with one ragged axis. A RaggedArray is a leaf of an element.

    Attributes:
        values: The rows, concatenated along the first axis. All other axes have equal sizes in all rows.
        row_splits: Row boundaries in ``values``: an ascending int64 array with one more entry than there are rows. The
            boundaries are validated only if ``row_splits`` is a NumPy array.

    Raises:
        ArgumentTypeError: ``values`` or ``row_splits`` is not an array.
        PlanError: ``row_splits`` are not valid boundaries within ``values``.
    """

    def __post_init__(self) -> None:
        check_arrays("RaggedArray", self.values, self.row_splits)

    @overload
    def __getitem__(self, row: int) -> NDArray[Any]: ...

    @overload
    def __getitem__(self, row: slice | Sequence[int] | NDArray[Any]) -> RaggedArray: ...

    def __getitem__(self, row: int | slice | Sequence[int] | NDArray[Any]) -> NDArray[Any] | RaggedArray:
        """Return a row as a view, or several rows as a RaggedArray.

        Args:
            row: Row number, slice, list or array of row numbers, or mask with one bool per row. A slice with step 1
                shares the memory of the values; the other selections are copies.

        Raises:
            ArgumentTypeError: ``row`` is not a valid index.
            PlanError: The step of the slice is 0.
            RowIndexError: A row does not exist, or the mask has another length.
        """
        if isinstance(row, slice) and row.step in (None, 1):
            return trusted_ragged(*self._part(*self._range(row)))
        if type(row) is not int:
            numbers = self._numbers(row)
            if numbers is not None:
                return trusted_ragged(*self._copies(numbers))
        position = self._place(operator.index(row))  # type: ignore[arg-type]
        view: NDArray[Any] = self.values[int(self.row_splits[position]) : int(self.row_splits[position + 1])]
        return view

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return an object array with one array per row, for ``np.asarray``."""
        if dtype is not None and np.dtype(dtype) != np.dtype(object):
            raise ArgumentTypeError(
                f"cannot convert a RaggedArray to dtype {dtype}: its rows may differ in length. Use to_padded()."
            )
        if copy is False:
            raise PlanError("cannot convert a RaggedArray without a copy. Pass copy=True or copy=None.")
        rows = np.empty(len(self), object)
        for i in range(len(self)):
            rows[i] = self[i]
        return rows

    def to_list(self) -> list[Any]:
        """Convert the array to nested Python lists of Python scalars."""
        return [self[i].tolist() for i in range(len(self))]

    def to_sparse(self) -> tuple[NDArray[np.int64], NDArray[Any], tuple[int, ...]]:
        """Return (indices, values, dense shape) in row order, as in a ``tf.SparseTensor``.

        The indices are int64 of shape (values, 2): row number and position in the row. All other axes of the values
        stay dense. The values share the memory of this array.
        """
        lengths = self.row_lengths
        rows = np.repeat(np.arange(len(self)), lengths)
        values = self._values_of_rows()
        positions = np.arange(len(values)) - np.repeat(self.row_splits[:-1] - self.row_splits[0], lengths)
        shape = (len(self), int(lengths.max(initial=0)), *values.shape[1:])
        return np.stack([rows, positions], axis=1), values, shape


def trusted_ragged(values: Any, row_splits: Any) -> RaggedArray:
    """Create a RaggedArray without validation; the caller guarantees valid splits."""
    rows = object.__new__(RaggedArray)
    object.__setattr__(rows, "values", values)
    object.__setattr__(rows, "row_splits", row_splits)
    return rows
