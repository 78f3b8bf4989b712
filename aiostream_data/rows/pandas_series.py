"""Read a Series of pandas without losing values: numbers with missing values are not rounded to floats.

No data frame library is imported: the methods of the given object are sufficient.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.columns import object_array
from aiostream_data.rows.surrogates import first_surrogate
from aiostream_data.rows.text_arrays import BytesArray, TextArray

_NAMES: Final = frozenset({"Series", "Index", "ExtensionArray"})


class NumbersWithMissing(NamedTuple):
    """Numbers, some of which are missing.

    Attributes:
        values: One number per row; any number for a missing value.
        valid: For each row, True if the row has a value.
    """

    values: NDArray[Any]
    valid: NDArray[np.bool_]


def is_series(leaf: Any) -> bool:
    """Return True for a Series, an Index or an ExtensionArray of pandas, or of a subclass."""
    named = [kind.__name__ for kind in type(leaf).__mro__ if kind.__module__.partition(".")[0] == "pandas"]
    return not _NAMES.isdisjoint(named) and hasattr(leaf, "isna")


def leaf_of_series(series: Any) -> Any:
    """Return a Series as an array, a column of text or bytes, Arrow data, or :class:`NumbersWithMissing`.

    NumPy arrays are not copied. Text and bytes become columns, unless a text contains a surrogate. Other objects stay
    as they are, and a missing one becomes None.
    """
    if hasattr(series, "to_series"):  # an Index
        return leaf_of_series(series.to_series())
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and not dtype.hasobject:
        return series.to_numpy(copy=False)
    name = type(dtype).__name__
    if name == "SparseDtype":
        return np.asarray(series)
    if name == "ArrowDtype":
        return getattr(series, "array", series).__arrow_array__()
    inner = getattr(dtype, "numpy_dtype", None)  # of nullable numbers
    if isinstance(inner, np.dtype) and inner.kind in "biuf":
        return _of_nullable(series, inner)
    if getattr(dtype, "tz", None) is not None:
        return getattr(series, "dt", series).tz_convert(None).to_numpy()
    if hasattr(dtype, "categories") and hasattr(series, "cat"):
        return _of_categories(series, dtype.categories)
    return _of_objects(series)


def _of_categories(series: Any, categories: Any) -> Any:
    """Return the categories of the rows. NumPy numbers have no missing value, so that such rows get marks."""
    dtype = categories.dtype
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biufc":
        return leaf_of_series(series.astype(dtype))
    codes = series.cat.codes.to_numpy()
    has_value = codes >= 0
    values = categories.to_numpy()
    rows = values[np.where(has_value, codes, 0)] if len(values) else np.zeros(len(codes), dtype)
    return rows if has_value.all() else NumbersWithMissing(rows, has_value)


def _of_nullable(series: Any, dtype: np.dtype[Any]) -> Any:
    missing = np.asarray(series.isna())
    if not missing.any():
        return series.to_numpy(dtype=dtype)
    return NumbersWithMissing(series.to_numpy(dtype=dtype, na_value=dtype.type(0)), ~missing)


def _of_objects(series: Any) -> Any:
    missing = np.asarray(series.isna())
    values = [None if is_missing else value for value, is_missing in zip(series, missing, strict=True)]
    kinds = {type(value) for value in values if value is not None}
    if kinds == {str} and first_surrogate(values) is None:
        return TextArray.from_list(values)
    return BytesArray.from_list(values) if kinds == {bytes} else object_array(values)
