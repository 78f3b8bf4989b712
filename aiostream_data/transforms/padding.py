"""Stack rows whose shapes differ, short ones filled up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import BatchShapeError, PlanError
from aiostream_data.rows.parts import PaddedParts, Parts
from aiostream_data.rows.records import Chunk, Column, Columns, VarColumn
from aiostream_data.rows.structure import Structure, StructureError, structure_of
from aiostream_data.transforms.collate import DescribeRow, as_arrays, as_stackable, object_array, stack, stack_leaf
from aiostream_data.transforms.filling import fill_rows, joined

Shape: TypeAlias = tuple[int | None, ...]
"""One entry per axis; None for as long as the longest row of the batch."""

LONG_NBYTES: Final = 4 << 10
"""Bytes of a row on average from which on it may be left in its place: shorter ones are faster copied together."""

_TEXT: Final = (bytes, str)
_FILLS: Final = {"f": "biuf", "c": "biufc"}
"""Kinds of numbers that may be rounded to a floating dtype; every other dtype must hold the value exactly."""


class LeafPadding(NamedTuple):
    """How one leaf is padded.

    Attributes:
        path: Name of the leaf in messages.
        shape: What every row is padded to; None for the batch's maximum in every axis.
        fill: What with; None for 0, or the empty string.
        in_parts: Long rows are left where they are.
    """

    path: str
    shape: Shape | None
    fill: Any
    in_parts: bool = False


@dataclass(frozen=True)
class PaddingRule:
    """``padded_shapes`` and ``padding_values`` as the user gave them.

    Attributes:
        shapes: None, or the structure of the elements with a sequence of dimensions per leaf, where None
            and -1 stand for the batch's maximum, or None as a whole for that in every axis.
        values: None, one value for all leaves, or the structure of the elements with a value per leaf.
        in_parts: Leave long rows where they are, as :class:`PaddedParts`, for whoever writes them into memory of its
            own.
    """

    shapes: Any = None
    values: Any = None
    in_parts: bool = False

    def leaves(self, structure: Structure) -> list[LeafPadding]:
        """Return how the leaves of elements of this structure are padded.

        Raises:
            PlanError: The rule is for elements of another structure, or a shape is none.
        """
        count = structure.leaf_count
        shapes = [None] * count if self.shapes is None else _leaves_of("padded_shapes", self.shapes, structure)
        one = self.values is None or structure_of(self.values).is_leaf
        values = [self.values] * count if one else _leaves_of("padding_values", self.values, structure)
        paths = structure.paths()
        return [
            LeafPadding(path, _shape(path, shape), value, self.in_parts)
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
    if not isinstance(given, Sequence) or not all(_is_axis(axis) for axis in given):
        raise PlanError(f"padded_shapes of {path!r} must be a sequence of lengths and None, got {given!r}")
    return tuple(None if axis is None or int(axis) == -1 else int(axis) for axis in given)


def _is_axis(axis: Any) -> bool:
    return axis is None or (not isinstance(axis, bool) and hasattr(axis, "__index__") and int(axis) >= -1)


def fill_value(leaf: LeafPadding, values: NDArray[Any]) -> Any:
    """Return what a leaf that holds such values is filled up with.

    Raises:
        PlanError: Their dtype cannot hold the value that was given.
    """
    dtype = values.dtype
    if leaf.fill is None:
        return _empty_text(values) if dtype.hasobject else np.zeros((), dtype)[()]
    fill = _as_text(leaf.fill) if dtype.hasobject else _as_dtype(leaf.fill, dtype)
    if fill is None:
        what = "bytes or str" if dtype.hasobject else str(dtype)
        raise PlanError(f"padding_values: {leaf.path!r} is {what}, which cannot be filled up with {leaf.fill!r}")
    return fill


def _as_text(value: Any) -> str | bytes | None:
    return value if isinstance(value, _TEXT) else None


def _as_dtype(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a scalar of the dtype, or None when it cannot hold the value."""
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
    """Return one element of the rows' structure whose leaves have a row per row, short ones filled up.

    bytes and str become an object array, as they do in a batch. Dense columns that need no filling are
    used as they are; everything else is new memory.

    Args:
        describe: Names a row in errors.
        longest: What axes without a given length are padded to; the longest row where None.

    Raises:
        BatchShapeError: A row is longer than its padded shape, or has another number of axes; dtypes or
            structures differ.
        PlanError: The rule does not fit the rows.
    """
    rows = as_stackable(rows)
    if isinstance(rows, Columns):
        leaves = rule.leaves(rows.structure)
        padded = [_pad_column(*pair, describe, longest) for pair in zip(rows.leaves, leaves, strict=True)]
        return rows.structure.unflatten(padded)
    structure = structure_of(rows.values[0])
    leaves = rule.leaves(structure)
    try:
        columns = structure.columns(rows.values)
    except StructureError:
        return stack(rows.values, describe)  # which says how they differ
    padded = [_pad_values(*pair, describe, longest) for pair in zip(columns, leaves, strict=True)]
    return structure.unflatten(padded)


def _pad_column(column: Column, leaf: LeafPadding, describe: DescribeRow, longest: int | None) -> Any:
    if not isinstance(column, VarColumn):
        if column.dtype.hasobject and column.ndim == 1 and (words := _lists_of_text(column.tolist())):
            return _pad_values(words, leaf, describe, longest)
        target = _target(leaf, [column.shape[1:]], describe, longest)
        return column if target == column.shape[1:] else _filled(list(column), target, leaf)
    if column.kind != "array":
        _target(leaf, [()], describe, longest)
        return object_array(column.elements())
    rest = column.values.shape[1:]
    target = _target(leaf, [(length, *rest) for length in column.lengths.tolist()], describe, longest)
    return _laid_out(column, target, leaf) if target[1:] == rest else _filled(column.elements(), target, leaf)


def _pad_values(values: list[Any], leaf: LeafPadding, describe: DescribeRow, longest: int | None) -> Any:
    values = _lists_of_text(values) or values
    found = as_arrays(leaf.path, values, describe)
    arrays = [array for array in found if array is not None and array.ndim]
    if len(arrays) == len(values):
        arrays = _with_one_dtype(values, arrays)
    if len(arrays) < len(values) or _facts(arrays) > 1:
        shapes = {() if array is None else array.shape for array in found}
        if len(shapes) == 1:
            _target(leaf, list(shapes), describe, longest)
        return stack_leaf(leaf.path, values, describe)  # which says how they differ
    target = _target(leaf, [array.shape for array in arrays], describe, longest)
    alike = {array.shape[1:] for array in arrays} == {target[1:]}
    if alike and not (leaf.in_parts and _are_long(arrays)):
        return _laid_out(joined(arrays), target, leaf)
    return _filled(arrays, target, leaf)


def _with_one_dtype(values: list[Any], arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Give empty lists, which have no dtype of their own, that of the other arrays."""
    dtype = next((array.dtype for value, array in zip(values, arrays, strict=True) if not _is_empty_list(value)), None)
    if dtype is None:
        return arrays
    return [np.empty(0, dtype) if _is_empty_list(value) else array for value, array in zip(values, arrays, strict=True)]


def _lists_of_text(values: Sequence[Any]) -> list[Any] | None:
    """Return rows that are lists of words as arrays, which are filled up; None for any other rows."""
    if not all(type(value) is list for value in values):
        return None
    first = next((type(words[0]) for words in values if words), None)
    if first not in (str, bytes) or not all(type(word) is first for words in values for word in words):
        return None
    return [object_array(words) for words in values]


def _is_empty_list(value: Any) -> bool:
    return isinstance(value, list) and not value


def _facts(arrays: Sequence[NDArray[Any]]) -> int:
    return len({(array.dtype, array.ndim) for array in arrays})


def _laid_out(rows: VarColumn, target: tuple[int, ...], leaf: LeafPadding) -> NDArray[Any] | Parts:
    """Return rows that are short in their first axis alone."""
    fill = fill_value(leaf, rows.values)
    if leaf.in_parts and rows.nbytes >= LONG_NBYTES * len(rows) and not rows.values.dtype.hasobject:
        return PaddedParts(tuple(rows.elements()), target, fill)
    return fill_rows(rows, np.ones(len(rows), np.int64), target[0], fill)


def _filled(arrays: Sequence[NDArray[Any]], target: tuple[int, ...], leaf: LeafPadding) -> NDArray[Any] | Parts:
    """Return arrays of one dtype and number of axes as one array."""
    first = next((array for array in arrays if array.size), arrays[0])
    if leaf.in_parts and _are_long(arrays):
        return PaddedParts(tuple(arrays), target, fill_value(leaf, first))
    padded = np.full((len(arrays), *target), fill_value(leaf, first), first.dtype)
    for row, array in enumerate(arrays):
        inside: tuple[slice, ...] = tuple(map(slice, array.shape))
        padded[row][inside] = array
    return padded


def _are_long(arrays: Sequence[NDArray[Any]]) -> bool:
    """Return True if rows are worth to be left where they are."""
    return not arrays[0].dtype.hasobject and sum(array.nbytes for array in arrays) >= LONG_NBYTES * len(arrays)


def _target(
    leaf: LeafPadding, shapes: Sequence[tuple[int, ...]], describe: DescribeRow, longest: int | None
) -> tuple[int, ...]:
    """Return the shape that rows of these shapes are padded to.

    Raises:
        BatchShapeError: One does not fit into it.
    """
    found = np.array(shapes, np.int64).reshape(len(shapes), -1)
    asked = leaf.shape
    if asked is None:
        return tuple(found.max(axis=0).tolist())
    if len(asked) != found.shape[1]:
        raise _refusal(leaf, asked, 0, shapes[0], describe)
    longest_rows = found.max(axis=0).tolist()
    target = tuple(
        (most if longest is None else longest) if axis is None else axis
        for axis, most in zip(asked, longest_rows, strict=True)
    )
    if any(axis < most for axis, most in zip(target, longest_rows, strict=True)):
        row = int((found > np.array(target)).any(axis=1).argmax())
        raise _refusal(leaf, target, row, shapes[row], describe)
    return target


def _refusal(leaf: LeafPadding, asked: Shape, row: int, found: Shape, describe: DescribeRow) -> BatchShapeError:
    return BatchShapeError(
        f"{leaf.path!r} has shape {found} in {describe(row)}, which cannot be padded to {asked}; "
        "give a larger padded shape, or make the row shorter in a map"
    )
