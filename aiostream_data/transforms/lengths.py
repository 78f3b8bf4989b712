"""Measure the length of each row of a chunk, by one leaf or by several leaves of equal length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import BatchShapeError, PlanError
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.records import Chunk, Columns
from aiostream_data.rows.structure import Structure, StructureError, structure_of
from aiostream_data.transforms.collate import DescribeRow, without_marks

Lengths = NDArray[np.int64]

_TEXT = (bytes, str)


def leaf_numbers(structure: Structure, names: Sequence[str]) -> list[int]:
    """Return the index of each named leaf among all leaves.

    Raises:
        PlanError: A leaf name does not exist.
    """
    paths = structure.paths()
    for name in names:
        if name not in paths:
            known = f"Use one of the leaves {', '.join(map(repr, paths))}" if paths else "The elements have no leaves"
            raise PlanError(f"unknown leaf {name!r}. {known}.")
    return [paths.index(name) for name in names]


def leaves_of(chunk: Chunk, names: Sequence[str] | None) -> dict[str, Column | list[Any]]:
    """Return the named leaves of the rows, as a dict from name to column or list of values.

    Args:
        names: Names of the leaves; None for all leaves.

    Raises:
        PlanError: A leaf name does not exist.
        BatchShapeError: The rows differ in structure, or have no leaves.
    """
    chunk = without_marks(chunk)
    structure = structure_of_rows(chunk)
    names = structure.paths() if names is None else names
    if not names:
        raise BatchShapeError(
            "cannot combine the rows: the elements have no leaves. Return elements with arrays from map()."
        )
    numbers = leaf_numbers(structure, names)
    try:
        leaves: Sequence[Any] = chunk.leaves if isinstance(chunk, Columns) else structure.columns(chunk.values)
    except StructureError as error:
        raise BatchShapeError(f"cannot combine the rows: {error}. Return rows of one structure from map().") from error
    return {name: leaves[number] for name, number in zip(names, numbers, strict=True)}


def structure_of_rows(chunk: Chunk) -> Structure:
    """Return the structure of the elements in a non-empty chunk."""
    return chunk.structure.plain if isinstance(chunk, Columns) else structure_of(chunk.values[0])


def the_only_length(chunk: Chunk) -> str:
    """Return the name of the only array leaf or, without array leaves, of the only text leaf.

    Raises:
        PlanError: No leaf or more than one leaf has a length.
        BatchShapeError: The rows differ in structure.
    """
    leaves = leaves_of(chunk, None)
    arrays = [name for name, leaf in leaves.items() if _is_array(leaf)]
    return one_of(arrays or [name for name, leaf in leaves.items() if _is_text(leaf)], list(leaves))


def one_of(measured: Sequence[str], names: Sequence[str]) -> str:
    """Return the only name in ``measured``.

    Args:
        measured: Names of the leaves whose rows have a length.
        names: Names of all leaves, used in the error message.

    Raises:
        PlanError: ``measured`` is empty or has more than one entry.
    """
    if len(measured) == 1:
        return measured[0]
    listed = ", ".join(map(repr, measured or names))
    found = f"several leaves have a length ({listed})" if measured else f"no leaf ({listed}) has a length"
    raise PlanError(
        f"cannot compute the cost of an element: {found}. Pass the name of a leaf, or a function, as cost=."
    )


def _is_array(leaf: Column | list[Any]) -> bool:
    if isinstance(leaf, VarColumn):
        return leaf.kind == "array"
    if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
        return leaf.ndim > 1
    return hasattr(leaf[0], "__len__") and not isinstance(leaf[0], _TEXT) and getattr(leaf[0], "ndim", 1) > 0


def _is_text(leaf: Column | list[Any]) -> bool:
    return leaf.kind != "array" if isinstance(leaf, VarColumn) else isinstance(leaf[0], _TEXT)


def row_lengths(leaves: dict[str, Column | list[Any]], describe: DescribeRow) -> Lengths:
    """Return the length of each row. The length is the size of the first axis, or the length of the text.

    Raises:
        BatchShapeError: A leaf has no length, or several leaves of a row differ in length. The error message names the
            row.
    """
    (first, lengths), *others = [(name, _lengths(name, leaf, describe)) for name, leaf in leaves.items()]
    for name, found in others:
        if not np.array_equal(found, lengths):
            row = int((found != lengths).argmax())
            raise BatchShapeError(
                f"cannot determine the length of {describe(row)}: leaf {first!r} has {lengths[row]} values, but leaf "
                f"{name!r} has {found[row]}. Make the lengths equal in map()."
            )
    return lengths


def _lengths(name: str, leaf: Column | list[Any], describe: DescribeRow) -> Lengths:
    if isinstance(leaf, VarColumn) and leaf.kind != "str":
        return leaf.lengths
    if isinstance(leaf, np.ndarray) and leaf.ndim > 1:
        return np.full(len(leaf), leaf.shape[1], np.int64)
    values = leaf if isinstance(leaf, list) else leaf.elements() if isinstance(leaf, VarColumn) else list(leaf)
    lengths = np.empty(len(values), np.int64)
    for row, value in enumerate(values):
        try:
            lengths[row] = len(value)
        except TypeError:
            raise BatchShapeError(
                f"cannot determine the length of leaf {name!r} in {describe(row)}: the value is of type "
                f"{type(value).__name__}. Use a leaf with arrays, lists, bytes or str."
            ) from None
    return lengths
