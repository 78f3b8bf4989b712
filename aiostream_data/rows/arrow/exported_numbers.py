"""Arrow fields of NumPy arrays of numbers, booleans, dates and durations."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.arrow_nodes import ArrowField
from aiostream_data.errors import ArrowDataError, ArrowTypeError
from aiostream_data.rows.arrow.bitmaps import packed, packed_bits

Valid: TypeAlias = NDArray[np.bool_] | None

FORMATS: Final[dict[np.dtype[Any], str]] = {
    np.dtype(np.int8): "c",
    np.dtype(np.uint8): "C",
    np.dtype(np.int16): "s",
    np.dtype(np.uint16): "S",
    np.dtype(np.int32): "i",
    np.dtype(np.uint32): "I",
    np.dtype(np.int64): "l",
    np.dtype(np.uint64): "L",
    np.dtype(np.float16): "e",
    np.dtype(np.float32): "f",
    np.dtype(np.float64): "g",
    **{np.dtype(f"datetime64[{unit}]"): f"ts{unit[0]}:" for unit in ("s", "ms", "us", "ns")},
    **{np.dtype(f"timedelta64[{unit}]"): f"tD{unit[0]}" for unit in ("s", "ms", "us", "ns")},
}
"""Arrow formats of the dtypes whose memory Arrow can share."""

_DAYS: Final = np.dtype("datetime64[D]")


def number_field(path: str, name: str, array: NDArray[Any], valid: Valid) -> ArrowField:
    """Return the field of an array with one axis. ``NaT`` becomes a missing value.

    Raises:
        ArrowTypeError: Arrow has no equal type.
        ArrowDataError: A date is out of range.
    """
    native = array.dtype.newbyteorder("=")
    if native == _DAYS or native in FORMATS or native == np.bool_:
        array = np.require(array, native, ["C", "ALIGNED"])
    else:
        raise ArrowTypeError(path, f"the leaf has dtype {array.dtype}. {_remedy(native)}")
    if native.kind in "mM":
        valid = _without_nat(array, valid)
    bitmap, missing = packed_bits(valid)
    if native == np.bool_:
        return ArrowField(name, "b", len(array), (bitmap, packed(array)), null_count=missing)
    if native == _DAYS:
        return ArrowField(name, "tdD", len(array), (bitmap, _days(path, array, valid)), null_count=missing)
    return ArrowField(name, FORMATS[native], len(array), (bitmap, array.view(np.uint8)), null_count=missing)


def _without_nat(array: NDArray[Any], valid: Valid) -> Valid:
    known: NDArray[np.bool_] = ~np.isnat(array)
    if known.all():
        return valid
    return known if valid is None else valid & known


def _days(path: str, dates: NDArray[Any], valid: Valid) -> NDArray[np.uint8]:
    """Return dates as int32 days since 1970."""
    days = dates.view(np.int64)
    if valid is not None:
        days = np.where(valid, days, 0)
    narrow = days.astype(np.int32)
    if (wrong := np.flatnonzero(narrow != days)).size:
        row = int(wrong[0])
        reason = f"the date {dates[row]} of row {row} does not fit into 32 bits. Convert the dates to datetime64[s]"
        raise ArrowDataError(path, reason, row)
    return narrow.view(np.uint8)


def _remedy(dtype: np.dtype[Any]) -> str:
    if dtype.kind in "mM":
        return f"Convert the leaf to {'timedelta64' if dtype.kind == 'm' else 'datetime64'}[s], [ms], [us] or [ns]"
    if dtype.kind == "c":
        return "Split complex numbers into two arrays, .real and .imag"
    if dtype.names is not None:
        return "Pass a dict with one array per field"
    return "Convert the leaf to float64" if dtype.kind == "f" else "Convert the leaf to numbers, bytes or str"
