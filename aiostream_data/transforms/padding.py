"""Stack rows of different shapes, with padding for shorter rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import gt
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import BatchShapeError, PlanError
from aiostream_data.rows.columns import LONG_ROW_NBYTES, Column, VarColumn, object_array
from aiostream_data.rows.filled_arrays import filled
from aiostream_data.rows.parts import PaddedParts, Parts, may_be_in_parts
from aiostream_data.rows.records import Chunk, Columns
from aiostream_data.rows.structure import Structure, StructureError, structure_of
from aiostream_data.transforms.collate import (
    DescribeRow,
    as_arrays,
    as_stackable,
    is_empty_list,
    stack,
    stack_leaf,
    without_marks,
)
from aiostream_data.transforms.filling import pad_arrays, pad_pieces
from aiostream_data.transforms.padded_room import PaddedRoom

Shape: TypeAlias = tuple[int | None, ...]
"""Padded shape with one entry per axis; an entry of None means the maximum over the batch."""

_TEXT: Final = (bytes, str)
_FILLS: Final = {"f": "biuf", "c": "biufc"}
"""Kinds of padding values that may be rounded to a floating-point or complex dtype.

For all other dtypes, the padding value must be representable exactly.
"""


class LeafPadding(NamedTuple):
    """Padding of one leaf.

    Attributes:
        path: Name of the leaf for error messages.
        shape: Padded shape of each row; None means the maximum over the batch in every axis.
        fill: Padding value; None for 0 or the empty string.
        in_parts: If True, the batch references long rows instead of copying them.
        room: Memory for the padded leaves of the batch.
    """

    path: str
    shape: Shape | None
    fill: Any
    in_parts: bool = False
    room: PaddedRoom | None = None


@dataclass(frozen=True)
class PaddingRule:
    """The user's arguments ``padded_shapes`` and ``padding_values``.

    Attributes:
        shapes: None, or the structure of the elements with a shape per leaf. A shape is a sequence of sizes, where None
            and -1 mean the maximum over the batch. A shape of None means the maximum in every axis.
        values: None, one value for all leaves, or the structure of the elements with a value per leaf.
        in_parts: If True, return long rows as :class:`PaddedParts` without copying them. The consumer then copies the
            rows to their destination.
        limit: Memory limit in bytes for a padded batch; None for no limit.
    """

    shapes: Any = None
    values: Any = None
    in_parts: bool = False
    limit: int | None = None

    def leaves(self, structure: Structure) -> list[LeafPadding]:
        """Return the padding of each leaf, for the rows of one batch, which have the given structure.

        Raises:
            PlanError: The structure of the rule differs from the structure of the elements, or a shape is invalid.
        """
        count = structure.leaf_count
        shapes = [None] * count if self.shapes is None else _leaves_of("padded_shapes", self.shapes, structure)
        one = self.values is None or structure_of(self.values).is_leaf
        values = [self.values] * count if one else _leaves_of("padding_values", self.values, structure)
        paths, room = structure.paths(), PaddedRoom(self.limit)
        return [
            LeafPadding(path, _shape(path, shape), value, self.in_parts, room)
            for path, shape, value in zip(paths, shapes, values, strict=True)
        ]


def _leaves_of(name: str, given: Any, structure: Structure) -> list[Any]:
    try:
        return structure.flatten(given)
    except StructureError as error:
        raise PlanError(f"{name} must have the structure of the elements: {error}") from error


def _shape(path: str, given: Any) -> Shape | None:
    if given is None:
        return None
    axes = (given,) if _is_axis(given) else given
    if not isinstance(axes, Sequence) or not all(map(_is_axis, axes)):
        raise PlanError(f"padded_shapes of {path!r} must be a length, or a sequence of lengths and None, got {given!r}")
    return tuple(None if axis is None or int(axis) == -1 else int(axis) for axis in axes)


def _is_axis(axis: Any) -> bool:
    return axis is None or (not isinstance(axis, bool) and hasattr(axis, "__index__") and int(axis) >= -1)


def fill_value(leaf: LeafPadding, values: NDArray[Any]) -> Any:
    """Return the padding value of a leaf, converted to the dtype of ``values``.

    Raises:
        PlanError: The dtype of the leaf cannot represent the padding value.
    """
    dtype = values.dtype
    if leaf.fill is None:
        return _empty_text(values) if dtype.hasobject else np.zeros((), dtype)[()]
    fill = _as_text(leaf.fill) if dtype.hasobject else _as_dtype(leaf.fill, dtype)
    if fill is None:
        what = "bytes or str" if dtype.hasobject else str(dtype)
        raise PlanError(
            f"cannot pad leaf {leaf.path!r} with {leaf.fill!r}: the leaf is {what}. "
            "Pass a value of that type as padding_values=."
        )
    return fill


def _as_text(value: Any) -> str | bytes | None:
    return value if isinstance(value, _TEXT) else None


def _as_dtype(value: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a value to a scalar of the dtype, or return None if the dtype cannot represent the value."""
    try:
        given = np.array(value)
        if given.ndim or given.dtype.kind not in _FILLS.get(dtype.kind, given.dtype.kind):
            return None
        with np.errstate(all="ignore"):
            filled = given.astype(dtype)
        return filled[()] if dtype.kind in _FILLS or bool(filled == given) else None
    except (TypeError, ValueError, OverflowError):
        return None


def _empty_text(values: NDArray[Any]) -> str | bytes:
    return "" if values.size and isinstance(values.flat[0], str) else b""


def pad_rows(rows: Chunk, rule: PaddingRule, describe: DescribeRow, longest: int | None = None) -> Any:
    """Stack rows into one batch element, with padding for shorter rows.

    Values of type bytes or str become an object array, as in a batch. Dense columns that need no padding are returned
    without a copy. All other leaves are new arrays, or parts if the rule allows parts.

    Args:
        describe: Function that returns the name of a row for error messages.
        longest: Size of the axes without a given size; None for the maximum over the rows.

    Raises:
        BatchShapeError: A row exceeds its padded shape, or rows differ in number of axes, dtype or structure.
        PlanError: The padding rule does not match the rows.
        MemoryBudgetError: The padded batch would exceed the memory limit of the rule.
    """
    rows = as_stackable(without_marks(rows))
    if isinstance(rows, Columns):
        leaves = rule.leaves(rows.structure)
        padded = [_pad_column(*pair, describe, longest) for pair in zip(rows.leaves, leaves, strict=True)]
        return rows.structure.unflatten(padded)
    structure = structure_of(rows.values[0])
    leaves = rule.leaves(structure)
    try:
        columns = structure.columns(rows.values)
    except StructureError:
        return stack(rows.values, describe)  # raises an error that describes the difference
    padded = [_pad_values(*pair, describe, longest) for pair in zip(columns, leaves, strict=True)]
    return structure.unflatten(padded)


def _pad_column(column: Column, leaf: LeafPadding, describe: DescribeRow, longest: int | None) -> Any:
    if not isinstance(column, VarColumn):
        if column.dtype.hasobject and column.ndim == 1 and (words := lists_of_text(column.tolist())):
            return _pad_values(words, leaf, describe, longest)
        target = _target(leaf, column.shape[1:], lambda: [column.shape[1:]], describe, longest)
        _reserve(leaf, (len(column), *target), column.dtype, column.nbytes)
        return column if target == column.shape[1:] else _filled(list(column), target, leaf)
    if column.kind != "array":
        _target(leaf, (), lambda: [()], describe, longest)
        return column.objects()
    rest = column.item_shape
    most = (int(column.lengths.max(initial=0)), *rest)
    target = _target(leaf, most, lambda: [(length, *rest) for length in column.lengths.tolist()], describe, longest)
    shape, row_nbytes = (len(column), *target), column.dtype.itemsize * math.prod(rest)
    _reserve(
        leaf,
        shape,
        column.dtype,
        int(column.lengths.sum()) * row_nbytes,
        lambda: describe(int(column.lengths.argmax())),
    )
    return _laid_out(column, target, leaf) if target[1:] == rest else _filled(column.elements(), target, leaf)


def _pad_values(values: list[Any], leaf: LeafPadding, describe: DescribeRow, longest: int | None) -> Any:
    values = lists_of_text(values) or values
    found = as_arrays(leaf.path, values, describe)
    arrays = [array for array in found if array is not None and array.ndim]
    if len(arrays) == len(values):
        arrays = with_one_dtype(values, arrays)
    if len(arrays) < len(values) or _facts(arrays) > 1:
        kinds = {() if array is None else array.shape for array in found}
        if len(kinds) == 1:
            _target(leaf, min(kinds), lambda: list(kinds), describe, longest)
        return stack_leaf(leaf.path, values, describe)  # raises an error if the rows differ
    shapes = [array.shape for array in arrays]
    most = tuple(map(max, zip(*shapes, strict=True)))
    target = _target(leaf, most, lambda: shapes, describe, longest)
    content = sum(array.nbytes for array in arrays)
    _reserve(leaf, (len(arrays), *target), arrays[0].dtype, content, lambda: describe(_largest(arrays)))
    alike = {array.shape[1:] for array in arrays} == {target[1:]}
    if alike and not (leaf.in_parts and _are_long(arrays)):
        return pad_arrays(arrays, target[0], fill_value(leaf, _example(arrays)))
    return _filled(arrays, target, leaf)


def with_one_dtype(values: list[Any], arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Convert empty lists to arrays with the dtype of the other arrays."""
    dtype = next((array.dtype for value, array in zip(values, arrays, strict=True) if not is_empty_list(value)), None)
    if dtype is None:
        return arrays
    return [np.empty(0, dtype) if is_empty_list(value) else array for value, array in zip(values, arrays, strict=True)]


def lists_of_text(values: Sequence[Any]) -> list[Any] | None:
    """Convert rows that are lists of words to object arrays. Return None if the rows are not lists of words."""
    if not all(type(value) is list for value in values):
        return None
    first = next((type(words[0]) for words in values if words), None)
    if first not in (str, bytes) or not all(type(word) is first for words in values for word in words):
        return None
    return [object_array(words) for words in values]


def _facts(arrays: Sequence[NDArray[Any]]) -> int:
    return len({(array.dtype, array.ndim) for array in arrays})


def _laid_out(rows: VarColumn, target: tuple[int, ...], leaf: LeafPadding) -> NDArray[Any] | Parts:
    """Pad rows that differ only in their first axis."""
    fill = fill_value(leaf, rows.values)
    if (
        leaf.in_parts
        and rows.nbytes >= LONG_ROW_NBYTES * len(rows)
        and may_be_in_parts(rows.values.dtype, for_device=True)
    ):
        return PaddedParts(tuple(rows.elements()), target, fill)
    return pad_pieces(rows, target[0], fill)


def _filled(arrays: Sequence[NDArray[Any]], target: tuple[int, ...], leaf: LeafPadding) -> NDArray[Any] | Parts:
    """Pad and stack arrays that have one dtype and one number of axes."""
    first = _example(arrays)
    if leaf.in_parts and _are_long(arrays):
        return PaddedParts(tuple(arrays), target, fill_value(leaf, first))
    padded = filled((len(arrays), *target), fill_value(leaf, first), first.dtype)
    for row, array in enumerate(arrays):
        inside: tuple[slice, ...] = tuple(map(slice, array.shape))
        padded[row][inside] = array
    return padded


def _reserve(
    leaf: LeafPadding,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    content: int,
    longest: Callable[[], str] | None = None,
) -> None:
    """Check that the padded leaf fits into the memory limit; see :meth:`PaddedRoom.take`."""
    if leaf.room is not None:
        leaf.room.take(leaf.path, shape, dtype.itemsize, content, longest)


def _largest(arrays: Sequence[NDArray[Any]]) -> int:
    """Return the number of the array with the most bytes."""
    return max(range(len(arrays)), key=lambda row: arrays[row].nbytes)


def _example(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return an array that shows the type of the values: one that has values, if there is any."""
    return next((array for array in arrays if array.size), arrays[0])


def _are_long(arrays: Sequence[NDArray[Any]]) -> bool:
    """Return True if the rows are long enough to be referenced instead of copied."""
    nbytes = sum(array.nbytes for array in arrays)
    return nbytes >= LONG_ROW_NBYTES * len(arrays) and may_be_in_parts(arrays[0].dtype, for_device=True)


def _target(
    leaf: LeafPadding,
    most: tuple[int, ...],
    shapes: Callable[[], Sequence[tuple[int, ...]]],
    describe: DescribeRow,
    longest: int | None,
) -> tuple[int, ...]:
    """Return the common padded shape for rows whose axes have at most the sizes ``most``.

    Args:
        shapes: Function that returns the shapes of all rows, for the error.

    Raises:
        BatchShapeError: A row is larger than the padded shape.
    """
    asked = leaf.shape
    if asked is None:
        return most
    if len(asked) != len(most):
        raise _refusal(leaf, asked, 0, shapes()[0], describe)
    target = tuple(
        (size if longest is None else longest) if axis is None else axis for axis, size in zip(asked, most, strict=True)
    )
    if any(map(gt, most, target)):
        row, found = next((row, found) for row, found in enumerate(shapes()) if any(map(gt, found, target)))
        raise _refusal(leaf, target, row, found, describe)
    return target


def _refusal(leaf: LeafPadding, asked: Shape, row: int, found: Shape, describe: DescribeRow) -> BatchShapeError:
    return BatchShapeError(
        f"cannot pad leaf {leaf.path!r} to {asked}: its shape is {found} in {describe(row)}. "
        "Pass a larger padded shape with as many axes, or shorten the row in map()."
    )
