"""Convert arrays of pandas, Polars and Arrow that the user passed as an array, without changing a value.

The conversions of these libraries turn integers with missing values into floats, and drop NULs at the end of text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import ArrowTypeError
from aiostream_data.rows.array_likes import NoNumpyFormError
from aiostream_data.rows.arrow.imported_columns import ArrowLeaf
from aiostream_data.rows.arrow.importing import read_arrow
from aiostream_data.rows.columns import VarColumn, concat_column, object_array, string_objects
from aiostream_data.rows.pandas_series import NumbersWithMissing, is_series, leaf_of_series
from aiostream_data.rows.text_arrays import BytesArray, TextArray


def needs_asking(value: Any) -> bool:
    """Return True for a Series of pandas, and for objects with the Arrow PyCapsule interface."""
    return hasattr(value, "__arrow_c_array__") or hasattr(value, "__arrow_c_stream__") or is_series(value)


def asked_array(value: Any) -> NDArray[Any] | None:
    """Convert an array of another library to NumPy. Return None if its library cannot convert it.

    Text, bytes and other objects become an object array, with None for a missing value. Missing times become NaT.

    Raises:
        NoNumpyFormError: A number is missing.
    """
    try:
        leaf = leaf_of_series(value) if is_series(value) else value
        if isinstance(leaf, NumbersWithMissing):
            return _without_categories(value)
        if isinstance(leaf, (BytesArray, TextArray)):
            return object_array(leaf.to_list())
        array = _of_arrow(leaf) if hasattr(leaf, "__arrow_c_array__") or hasattr(leaf, "__arrow_c_stream__") else None
        return np.asarray(leaf) if array is None else array
    except NoNumpyFormError:
        raise
    except Exception:  # noqa: BLE001 - the caller knows why its library refuses
        return None


def _without_categories(series: Any) -> NDArray[Any]:
    """Return an array of None for a Series without categories, in which every value is missing."""
    if len(getattr(series.dtype, "categories", (None,))):
        raise _missing_number()
    return object_array([None] * len(series))


def _of_arrow(source: Any) -> NDArray[Any] | None:
    """Convert an Arrow array. Return None for tables, lists and types that this package cannot read."""
    try:
        chunks = read_arrow(source)
    except ArrowTypeError:
        return None
    if not chunks.structure.is_leaf:
        return None
    parts = [chunk.leaves[0] for chunk in list(chunks) or [chunks.empty()]]
    first = parts[0].column
    if isinstance(first, VarColumn):
        return None if first.kind == "array" else _objects(parts)
    if first.dtype.hasobject:
        return _objects(parts)
    if all(part.valid is None or part.valid.all() for part in parts):
        numbers = concat_column([part.column for part in parts]) if len(parts) > 1 else first
        return np.asarray(numbers)
    if first.dtype.kind in "mM":
        return None
    raise _missing_number()


def _objects(parts: list[ArrowLeaf]) -> NDArray[Any]:
    return np.concatenate([string_objects(part.column, part.valid) for part in parts])


def _missing_number() -> NoNumpyFormError:
    return NoNumpyFormError("some of its numbers are missing. Fill them in the function")
