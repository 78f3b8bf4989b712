"""Leaves of a batch whose rows are bytes or text, in the form that the user chose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import BatchShapeError, PlanError
from aiostream_data.rows.columns import VarColumn, object_array
from aiostream_data.rows.lent_memory import LendsMemory
from aiostream_data.rows.surrogates import SURROGATE, first_surrogate
from aiostream_data.rows.text_arrays import WITH_MISSING, BytesArray, Strings, TextArray, cut, with_missing
from aiostream_data.rows.text_lists import python_text

_TEXT: Final = (bytes, str)


def are_strings(kinds: AbstractSet[type]) -> bool:
    """Return True if all types are those of bytes, or all are those of text, apart from missing values."""
    some = kinds - {type(None)}
    return bool(some) and any(all(issubclass(kind, text) for kind in some) for text in _TEXT)


def leaf_of_strings(path: str, values: Sequence[Any], describe: Callable[[int], str], form: Strings) -> Any | None:
    """Convert values to a leaf of a batch if all are bytes or text. Return None for any other values.

    Raises:
        BatchShapeError: A value is missing, and the form has no missing values.
    """
    values = python_text(values)
    if not are_strings(set(map(type, values))):
        return None
    if form not in WITH_MISSING and None in values:
        raise missing_value(path, describe(values.index(None)))
    try:
        return strings_of(values, form)
    except PlanError:
        row = first_surrogate(values)
        if row is None:
            raise
        raise BatchShapeError(
            f"cannot batch leaf {path!r}: the text of {describe(row)} {SURROGATE}. Replace the surrogate in map(), or "
            "use strings='objects'."
        ) from None


def string_leaf(
    column: VarColumn,
    form: Strings,
    valid: NDArray[np.bool_] | None = None,
    *,
    copy: bool = True,
    pool: LendsMemory | None = None,
) -> Any:
    """Convert rows of bytes or text to a leaf of a batch. The leaf owns its memory.

    Args:
        copy: False if nothing else uses the memory of ``column``.
        valid: For each row, True if the row has a value; None if all rows have values. Only the forms in
            :data:`WITH_MISSING` have missing values.
        pool: Pool of memory for large leaves.
    """
    if form == "objects" or (form == "string_dtype" and column.kind == "bytes"):
        return column.objects() if valid is None else object_array(with_missing(column.elements(), valid))
    packed = column if not copy and column.is_packed else column.compact(pool)
    splits = np.append(packed.starts, len(packed.values))
    kind = TextArray if column.kind == "str" else BytesArray
    return _in_form(kind.trusted(packed.values, splits, None if valid is None else valid.copy()), form)


def string_leaves(
    column: VarColumn, bounds: Sequence[tuple[int, int]], form: Strings, pool: LendsMemory | None = None
) -> list[Any]:
    """Convert adjacent ranges of rows to one leaf per range. All leaves share one buffer.

    Args:
        pool: Pool of memory for large leaves.
    """
    first = bounds[0][0]
    whole = column.slice(first, bounds[-1][1])
    if form == "objects":
        objects = whole.objects()
        return [objects[start - first : stop - first] for start, stop in bounds]
    leaf = string_leaf(whole, "columns", pool=pool)
    leaves = cut(leaf, [(start - first, stop - first) for start, stop in bounds])
    return leaves if form == "columns" else [_in_form(each, form) for each in leaves]


def strings_of(rows: Sequence[Any], form: Strings) -> Any:
    """Convert bytes or text to a leaf of a batch. In the forms of :data:`WITH_MISSING`, None is a missing value."""
    present = next((row for row in rows if row is not None), None)
    if form == "objects" or present is None or (form == "string_dtype" and isinstance(present, bytes)):
        return object_array(rows)
    kind: Any = TextArray if isinstance(present, str) else BytesArray
    return _in_form(kind.from_list(rows), form)


def _in_form(leaf: BytesArray | TextArray, form: Strings) -> Any:
    if form == "columns":
        return leaf
    if form == "objects" or (isinstance(leaf, BytesArray) and form == "string_dtype"):
        return object_array(leaf.to_list())
    if form == "string_dtype":
        return np.array(leaf.to_list(), np.dtypes.StringDType())
    return leaf.as_ragged() if form == "ragged" else leaf.to_padded()


def missing_value(path: str, where: str) -> BatchShapeError:
    """Build the error for a record without a value in a leaf that needs one."""
    return BatchShapeError(
        f"cannot batch leaf {path!r}: {where} has no value. Replace None in map(), or drop such rows in filter()."
    )
