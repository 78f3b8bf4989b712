"""Convert lists and fixed-width arrays of bytes or text, so that no value is cut or widened.

NumPy converts a list of ``bytes`` or ``str`` to an array whose rows have the length of the longest value. Such an array
also drops NULs at the end of each value.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import chain
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.array_likes import NoNumpyFormError
from aiostream_data.rows.columns import Column, VarColumn, object_array

_TEXT: Final = (bytes, str)
_TEXTS: Final = (bytes, str, type(None))
_MOST_AXES: Final = 32
_ASCII_STOP: Final = 0x80
_WIDENING: Final = 8
"""Maximum size of widened columns, as a multiple of their size before."""


def is_text_list(value: Any) -> bool:
    """Return True for a list or tuple that contains bytes or text, and apart from these only None."""
    if not isinstance(value, (list, tuple)) or not value or not isinstance(value[0], _TEXTS):
        return False
    kinds = set(map(type, value))
    return all(issubclass(kind, _TEXTS) for kind in kinds) and any(issubclass(kind, _TEXT) for kind in kinds)


def nested_text(value: Any) -> NDArray[Any] | None:
    """Convert a list or tuple of bytes or text, or nested ones, to an object array. Return None for other values.

    Raises:
        NoNumpyFormError: Nested lists differ in length.
    """
    if not isinstance(value, (list, tuple)) or not _may_be_text(value):
        return None
    shape, level = [len(value)], value
    while level and all(isinstance(part, (list, tuple)) for part in level):
        if len(set(map(len, level))) > 1:
            raise NoNumpyFormError("its parts differ in length. Pad them in map()")
        shape.append(len(level[0]))
        level = list(chain.from_iterable(level))
    return object_array(level).reshape(shape) if is_text_list(level) else None


def _may_be_text(value: Sequence[Any]) -> bool:
    """Return False if the first value inside of nested lists is not bytes or text."""
    first: Any = value
    for _ in range(_MOST_AXES):
        if not isinstance(first, (list, tuple)) or not first:
            return isinstance(first, (*_TEXTS, list, tuple))
        first = first[0]
    return False  # for example, a list that contains itself


def is_fixed_width(column: Column) -> TypeGuard[NDArray[Any]]:
    """Return True if the rows of a column are values of a fixed-width dtype of bytes or text (kinds S and U)."""
    return not isinstance(column, VarColumn) and column.ndim == 1 and column.dtype.kind in "SU"


def with_equal_widths(arrays: list[NDArray[Any] | None]) -> list[NDArray[Any] | None]:
    """Convert fixed-width arrays of bytes, or of text, to the widest of their dtypes. Return other arrays unchanged."""
    if arrays[0] is None or arrays[0].dtype.kind not in "SU":
        return arrays
    known = [array for array in arrays if array is not None]
    widest = _widest({array.dtype for array in known}) if len(known) == len(arrays) else None
    return arrays if widest is None else [array.astype(widest, copy=False) for array in known]


def of_equal_widths(columns: Sequence[Column]) -> Sequence[Column]:
    """Convert columns whose rows are fixed-width bytes, or text, to the widest of their dtypes.

    The rows stay equal. Other columns are returned unchanged, and so are columns that would take much more memory.
    """
    arrays = [column for column in columns if is_fixed_width(column)]
    widest = _widest({array.dtype for array in arrays}) if len(arrays) == len(columns) else None
    most_nbytes = _WIDENING * sum(array.nbytes for array in arrays)
    if widest is None or widest.itemsize * sum(map(len, arrays)) > most_nbytes:
        return columns
    return [array.astype(widest, copy=False) for array in arrays]


def _widest(dtypes: Set[np.dtype[Any]]) -> np.dtype[Any] | None:
    """Return the widest of some dtypes of fixed-width bytes, or of text; None if they are equal or of other kinds."""
    if len(dtypes) < 2 or {dtype.kind for dtype in dtypes} not in ({"S"}, {"U"}):
        return None
    return np.result_type(*dtypes)


def variable_rows(array: NDArray[Any]) -> Column:
    """Convert a one-dimensional array of kind S or U to a column of variable-length rows.

    The result is an object array if UTF-8 cannot represent a row.
    """
    if array.dtype.kind == "S":
        return _in_place(np.ascontiguousarray(array), np.uint8, "bytes")
    native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    if native.dtype.itemsize and native.view(np.uint32).max(initial=0) < _ASCII_STOP:
        return _in_place(native, np.uint32, "str")
    return _encoded(native.tolist())


def _in_place(array: NDArray[Any], unit: Any, kind: Any) -> VarColumn:
    """Return a column whose rows lie as far apart as in ``array``; units are bytes, or code points below 128."""
    width = array.dtype.itemsize // np.dtype(unit).itemsize
    units = array.view(unit) if width else np.empty(0, unit)
    starts = np.arange(len(array), dtype=np.int64) * width
    return VarColumn(units.astype(np.uint8, copy=False), starts, np.char.str_len(array).astype(np.int64), kind)


def _encoded(rows: list[str]) -> Column:
    try:
        encoded = list(map(str.encode, rows))
    except UnicodeEncodeError:  # a lone surrogate cannot be encoded as UTF-8
        return object_array(rows)
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    return VarColumn(np.frombuffer(b"".join(encoded), np.uint8), np.cumsum(lengths) - lengths, lengths, "str")


def python_text(values: Sequence[Any]) -> Sequence[Any]:
    """Replace NumPy scalars, and arrays without axes, of kinds S and U by ``bytes`` and ``str``."""
    if isinstance(values[0], np.ndarray) and values[0].ndim:
        return values
    if set(map(type, values)).isdisjoint((np.str_, np.bytes_, np.ndarray)):
        return values
    return [_python_text(value) for value in values]


def _python_text(value: Any) -> Any:
    if type(value) is np.ndarray and not value.ndim and value.dtype.kind in "SU":
        return value.item()
    if type(value) is np.str_:
        return str.__str__(value)  # str() of a NumPy scalar drops NULs at its end
    return bytes(value) if type(value) is np.bytes_ else value
