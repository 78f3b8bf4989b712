"""Combine rows of different shapes into one element: ragged arrays, sparse arrays, or one dataset for each leaf."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import BatchShapeError, MissingExtraError
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.records import Chunk, Columns
from aiostream_data.rows.structure import StructureError, structure_of
from aiostream_data.transforms.batch_leaves import batch_leaf
from aiostream_data.transforms.collate import DescribeRow, as_arrays, as_stackable, stack, stack_leaf, without_marks
from aiostream_data.transforms.filling import as_pieces, joined
from aiostream_data.transforms.padding import lists_of_text, with_one_dtype

# -- ragged batches


def ragged_rows(rows: Chunk, dense: Collection[str], describe: DescribeRow) -> Any:
    """Return one element whose arrays are ragged along the first axis of the rows.

    Numbers, bytes and text become arrays as in a batch.

    Args:
        dense: Paths of the leaves that are stacked as in a batch, because all rows have the same known shape.
        describe: Function that returns the name of a row for error messages.

    Raises:
        BatchShapeError: Rows differ in structure, dtype, number of axes, or in an axis after the first.
    """
    rows = as_stackable(without_marks(rows))
    if isinstance(rows, Columns):
        paths = rows.structure.paths()
        leaves = [_ragged_column(leaf, path in dense) for path, leaf in zip(paths, rows.leaves, strict=True)]
        return rows.structure.unflatten(leaves)
    structure = structure_of(rows.values[0])
    try:
        columns = structure.columns(rows.values)
    except StructureError:
        return stack(rows.values, describe)  # raises an error that describes the difference
    paths = structure.paths()
    return structure.unflatten(
        [_ragged_leaf(path, values, path in dense, describe) for path, values in zip(paths, columns, strict=True)]
    )


def _ragged_column(column: Column, is_dense: bool) -> Any:
    stays = isinstance(column, VarColumn) or is_dense or column.ndim < 2
    return batch_leaf(column if stays else as_pieces(column))


def _ragged_leaf(path: str, values: list[Any], is_dense: bool, describe: DescribeRow) -> Any:
    arrays = [] if is_dense else rows_with_axes(path, values, describe)
    return batch_leaf(joined(arrays), copy=False) if arrays else stack_leaf(path, values, describe)


def rows_with_axes(path: str, values: list[Any], describe: DescribeRow) -> list[NDArray[Any]]:
    """Return the values of a leaf as arrays that differ only in their first axis.

    Return an empty list if no value has an axis.

    Raises:
        BatchShapeError: The arrays differ in dtype or number of axes, or in an axis after the first.
    """
    values = lists_of_text(values) or values
    found = as_arrays(path, values, describe)
    arrays = [array for array in found if array is not None and array.ndim]
    if not arrays:
        return []
    if len(arrays) < len(values):
        lone = next(row for row, array in enumerate(found) if array is None or not array.ndim)
        raise BatchShapeError(
            f"cannot batch leaf {path!r}: a value without axes in {describe(lone)}, but arrays in other rows. "
            "Return arrays of one kind from map()."
        )
    arrays = with_one_dtype(values, arrays)
    first = arrays[0]
    for row, array in enumerate(arrays):
        if array.dtype != first.dtype or array.shape[1:] != first.shape[1:]:
            raise BatchShapeError(
                f"cannot batch leaf {path!r}: shape {first.shape} of {first.dtype} in {describe(0)} but shape "
                f"{array.shape} of {array.dtype} in {describe(row)}. Rows of a ragged array may differ only in their "
                "first axis. Change the rows in map(), or use padded_batch()."
            )
    return arrays


# -- sparse batches


def sparse_rows(rows: Chunk, row_shape: Sequence[int | None], describe: DescribeRow) -> Any:
    """Return a sparse array of SciPy whose row i holds all values of row i, zeros included.

    Rows with one axis become a ``csr_array``, and rows with more axes a ``coo_array``. The shape is (rows, *row_shape).

    Args:
        row_shape: Shape of a row; an axis of None has the length of the longest row.

    Raises:
        BatchShapeError: A row is not an array of numbers with these axes, is larger, or has another dtype.
    """
    arrays = [_sparse_row(value, row, row_shape, describe) for row, value in enumerate(rows.elements())]
    for row, array in enumerate(arrays):
        if array.dtype != arrays[0].dtype:
            raise BatchShapeError(
                f"cannot batch the rows: {arrays[0].dtype} in {describe(0)} but {array.dtype} in {describe(row)}. "
                "Convert them to one dtype in map()."
            )
    longest = np.max([array.shape for array in arrays], axis=0).tolist()
    shape = [most if axis is None else axis for axis, most in zip(row_shape, longest, strict=True)]
    values = np.concatenate([array.reshape(-1) for array in arrays])
    stops = np.cumsum([0, *(array.size for array in arrays)])
    places = np.concatenate([np.indices(array.shape).reshape(array.ndim, -1) for array in arrays], axis=1)
    sparse = scipy_sparse()
    if len(shape) == 1:
        return sparse.csr_array((values, places[0], stops), shape=(len(arrays), *shape))
    numbers = np.repeat(np.arange(len(arrays)), np.diff(stops))
    return sparse.coo_array((values, (numbers, *places)), shape=(len(arrays), *shape))


def _sparse_row(value: Any, row: int, row_shape: Sequence[int | None], describe: DescribeRow) -> NDArray[Any]:
    (array,) = as_arrays("element", [value], lambda _: describe(row))
    if array is None or array.dtype.kind not in "biufc":
        raise BatchShapeError(
            f"sparse_batch() needs arrays of numbers, got a {type(value).__name__} in {describe(row)}. "
            "Return one array of numbers from map()."
        )
    pairs = zip(array.shape, row_shape, strict=False)
    if array.ndim != len(row_shape) or any(most is not None and axis > most for axis, most in pairs):
        raise BatchShapeError(
            f"sparse_batch() with row_shape={list(row_shape)} cannot hold the shape {array.shape} in {describe(row)}. "
            "Pass a larger row_shape with as many axes, or change the row in map()."
        )
    return array


def scipy_sparse() -> Any:
    """Import ``scipy.sparse``.

    Raises:
        MissingExtraError: SciPy is not installed.
    """
    try:
        from scipy import sparse
    except ImportError as error:
        raise MissingExtraError("sparse_batch() needs SciPy: pip install 'aiostream-data[sparse]'") from error
    return sparse


# -- datasets


def leaves_apart(rows: Chunk, make: Callable[[list[Any]], Any], describe: DescribeRow) -> Any:
    """Return the structure of the rows, with ``make(values)`` for each leaf.

    The values are those of all rows, in order.

    Raises:
        BatchShapeError: Rows differ in structure.
    """
    elements = rows.elements()
    structure = structure_of(elements[0])
    try:
        columns = [elements] if structure.is_leaf else structure.columns(elements)
    except StructureError:
        return stack(elements, describe)  # raises an error that describes the difference
    return structure.unflatten([make(list(values)) for values in columns])
