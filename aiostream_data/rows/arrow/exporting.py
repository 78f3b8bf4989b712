"""Convert a batch to Arrow fields.

The fields share the memory of numbers, of dates with a unit of seconds or less, and of ragged values with their row
splits. Text and ``bytes`` objects, booleans and days are copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.arrow_nodes import ArrowField, field_texts
from aiostream_data.arguments import shown
from aiostream_data.errors import ArrowDataError, ArrowTypeError
from aiostream_data.rows.array_likes import NoNumpyFormError, array_of
from aiostream_data.rows.arrow.bitmaps import packed_bits
from aiostream_data.rows.arrow.exported_numbers import Valid, number_field
from aiostream_data.rows.arrow.exported_text import bytes_field, text_field
from aiostream_data.rows.split_rows import SplitRows
from aiostream_data.rows.structure import Structure, structure_of

_TEXT_FORMATS = {"bytes": "Z", "str": "U"}


def export_element(element: Any) -> ArrowField:
    """Return a struct field with the leaves of a batch. A batch that is one leaf becomes a struct of one field.

    Raises:
        ArrowTypeError: A leaf has no Arrow form.
        ArrowDataError: The leaves differ in their number of rows, or a value does not fit into its Arrow type.
    """
    structure = structure_of(element)
    if structure.is_leaf:
        leaf = leaf_field("element", "element", element)
        return _struct("", (leaf,), leaf.length)
    fields = list(map(leaf_field, structure.paths(), _names(structure, ""), structure.flatten(element)))
    if not fields:
        raise ArrowTypeError("element", "the batch has no leaves. Pass a batch with at least one array")
    _check_lengths(structure.paths(), fields)
    return _nested(structure, "", iter(fields), fields[0].length)


def _nested(structure: Structure, name: str, leaves: Any, length: int) -> ArrowField:
    """Return the field of a structure. ``leaves`` iterates over the fields of its leaves."""
    if structure.is_leaf:
        found: ArrowField = next(leaves)
        return found
    keys = structure.names or range(len(structure.children))
    children = [_nested(child, str(key), leaves, length) for key, child in zip(keys, structure.children, strict=True)]
    return _struct(name, tuple(children), length)


def _names(structure: Structure, name: str) -> list[str]:
    """Return the name of each leaf, in leaf order."""
    if structure.is_leaf:
        return [name]
    keys = structure.names or range(len(structure.children))
    return [leaf for key, child in zip(keys, structure.children, strict=True) for leaf in _names(child, str(key))]


def _struct(name: str, children: tuple[ArrowField, ...], length: int) -> ArrowField:
    return ArrowField(name, "+s", length, (None,), children)


def _check_lengths(paths: list[str], fields: list[ArrowField]) -> None:
    for path, field in zip(paths, fields, strict=True):
        if field.length != fields[0].length:
            raise ArrowDataError(
                path,
                f"the leaf has {field.length} rows, but {paths[0]!r} has {fields[0].length}. "
                "Pass a batch whose leaves have one row per element",
            )


def leaf_field(path: str, name: str, leaf: Any) -> ArrowField:
    """Return the field of one leaf of a batch.

    Args:
        path: Path of the leaf, for error messages.
        name: Name of the field.
        leaf: An array, a masked array, a RaggedArray, a BytesArray or a TextArray.

    Raises:
        ArrowTypeError: The leaf has no Arrow form.
        ArrowDataError: A value does not fit into its Arrow type.
    """
    _check_name(path, name)
    if isinstance(leaf, SplitRows):
        return _ragged_field(path, name, leaf)
    if isinstance(leaf, np.ma.MaskedArray) and leaf.ndim:
        mask = np.ma.getmaskarray(leaf)
        return _dense_field(path, name, np.asarray(leaf.data), ~mask if mask.any() else None)
    return _dense_field(path, name, _array(path, leaf), None)


def _check_name(path: str, name: str) -> None:
    try:
        field_texts(ArrowField(name, "", 0, ()))
    except ValueError as error:
        raise ArrowTypeError(path, f"an Arrow field cannot have this name: {error}. Rename the leaf") from error


def _array(path: str, leaf: Any) -> NDArray[Any]:
    try:
        array = leaf if type(leaf) is np.ndarray else array_of(leaf)
    except NoNumpyFormError as error:
        raise ArrowTypeError(path, f"the leaf has no Arrow form: {error}") from error
    if array is None or array.ndim == 0:
        raise ArrowTypeError(
            path,
            f"the leaf {shown(leaf)} of type {type(leaf).__name__} is not an array. Pass a batch whose leaves are "
            "arrays with one row per element",
        )
    return array


def _dense_field(path: str, name: str, array: NDArray[Any], valid: Valid) -> ArrowField:
    """Return the field of an array. All axes after the first become lists of fixed size.

    Args:
        valid: None, or an array of the same shape that is False for missing values.
    """
    if array.ndim == 1:
        return _flat_field(path, name, array, valid)
    flat = array.reshape(-1)
    field = _flat_field(path, "item", flat, None if valid is None else valid.reshape(-1))
    for axis in range(array.ndim - 1, 0, -1):
        length = int(np.prod(array.shape[:axis], dtype=np.int64))
        outer = name if axis == 1 else "item"
        field = ArrowField(outer, f"+w:{array.shape[axis]}", length, (None,), (field,))
    return field


def _flat_field(path: str, name: str, array: NDArray[Any], valid: Valid) -> ArrowField:
    kind = array.dtype.kind
    if kind in "SUT":
        return text_field(path, name, array, valid)
    if kind == "O":
        return _object_field(path, name, array, valid)
    return number_field(path, name, array, valid)


def _object_field(path: str, name: str, array: NDArray[Any], valid: Valid) -> ArrowField:
    rows = array.tolist()
    if valid is not None:
        rows = [row if is_valid else None for row, is_valid in zip(rows, valid.tolist(), strict=True)]
    kinds = {type(row) for row in rows} - {type(None)}
    if not kinds:
        return ArrowField(name, "n", len(rows), (), null_count=len(rows))
    if all(issubclass(kind, bytes) for kind in kinds):
        return bytes_field(name, "Z", rows)
    if all(issubclass(kind, str) for kind in kinds):
        return text_field(path, name, array, valid)
    found = " and ".join(sorted(kind.__name__ for kind in kinds))
    raise ArrowTypeError(
        path, f"the leaf contains Python objects of type {found}. Convert them to numbers, bytes or str in map()"
    )


def _ragged_field(path: str, name: str, ragged: SplitRows) -> ArrowField:
    if not isinstance(ragged.values, np.ndarray) or not isinstance(ragged.row_splits, np.ndarray):
        kind = type(ragged).__name__  # type: ignore[unreachable]
        raise ArrowTypeError(path, f"the values of the {kind} are on a device. Copy them to host memory first")
    splits = np.ascontiguousarray(ragged.row_splits, np.int64)
    valid, missing = packed_bits(getattr(ragged, "valid", None))
    head = (valid, splits.view(np.uint8))
    text_format = _TEXT_FORMATS.get(getattr(ragged, "kind", "array"))
    if text_format is not None:
        content = np.ascontiguousarray(ragged.values, np.uint8)
        return ArrowField(name, text_format, len(ragged), (*head, content), null_count=missing)
    values = leaf_field(path, "item", ragged.values)
    return ArrowField(name, "+L", len(ragged), head, (values,), null_count=missing)
