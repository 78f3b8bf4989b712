"""Convert the parsed values of one feature to a column, according to the feature's description."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.example_py import ParsedFeature
from aiostream_data.formats.features import (
    Feature,
    FeatureType,
    FixedLen,
    FixedLenSequence,
    storage_dtype,
    values_per_row,
)
from aiostream_data.rows.columns import Column, VarColumn

Fail: TypeAlias = Callable[[int, str, str], NoReturn]
"""The function ``fail(row, expected, found)`` raises an error for the given row of a feature."""


def feature_column(feature: Feature, parsed: ParsedFeature, buffer: NDArray[np.uint8], fail: Fail) -> Column:
    """Build the column of one feature, with one row per record.

    Args:
        feature: Description of the feature.
        parsed: Values of all rows, and the number of values per row. The number is -1 if a row lacks the feature.
        buffer: uint8 array that contains the values of bytes features. Scalar bytes and str columns refer to the
            buffer.
        fail: Function to call for the first row with values that do not match the dtype or shape.
    """
    if isinstance(feature, FixedLen):
        if not isinstance(feature.type, type):
            return _dense(feature, convert(parsed.data, feature.type, fail, _dense_row(feature)), parsed.counts)
        if feature.shape == ():
            return _slices(feature, parsed, buffer, fail)
        objects = _objects(parsed, feature.type, buffer, fail, _dense_row(feature))
        return _dense(feature, objects, parsed.counts)
    return _variable(feature, parsed, buffer, fail)


def convert(data: NDArray[Any], dtype: np.dtype[Any], fail: Fail, row_of: Callable[[int], int]) -> NDArray[Any]:
    """Convert int64 or float32 values to ``dtype``. Call ``fail`` for the first value that is out of range.

    Rounding a value to a smaller floating type is allowed. Conversion fails if a finite float becomes infinite, an
    integer is out of range, or a bool is not 0 or 1.
    """
    if data.dtype == dtype:
        return data
    with np.errstate(all="ignore"):
        out = data.astype(dtype)
    wrong = np.isinf(out) & np.isfinite(data) if dtype.kind == "f" else out != data
    if wrong.any():
        at = int(wrong.argmax())
        fail(row_of(at), f"a value that fits into {dtype.name}", str(data[at]))
    return out


def _dense_row(feature: FixedLen) -> Callable[[int], int]:
    width = values_per_row(feature.shape)
    return lambda value: value // width


def _dense(feature: FixedLen, data: NDArray[Any], counts: NDArray[np.int64]) -> NDArray[Any]:
    out = data.reshape(len(counts), *feature.shape)
    if feature.default is None:  # parsing fails if a row lacks a feature without a default
        return out
    lacking = counts < 0
    if lacking.any():
        out[lacking] = feature.default_array()
    return out


def _slices(feature: FixedLen, parsed: ParsedFeature, buffer: NDArray[np.uint8], fail: Fail) -> VarColumn:
    """Build a scalar bytes or str column.

    The column refers to the buffer, or to a copy that ends with the default value.
    """
    starts, nbytes = parsed.data, parsed.nbytes
    lacking = parsed.counts < 0
    if feature.type is str:
        _check_text(buffer, starts, nbytes, fail, lambda value: value)
    if lacking.any():
        default = feature.default.encode() if feature.type is str else feature.default
        starts[lacking], nbytes[lacking] = len(buffer), len(default)
        buffer = np.concatenate([buffer, np.frombuffer(default, np.uint8)])
    return VarColumn(buffer, starts, nbytes, "str" if feature.type is str else "bytes")


def _variable(feature: Feature, parsed: ParsedFeature, buffer: NDArray[np.uint8], fail: Fail) -> VarColumn:
    lengths = np.maximum(parsed.counts, 0)
    stops = np.cumsum(lengths)
    data: NDArray[Any]

    def row_of(value: int) -> int:
        return int(np.searchsorted(stops, value, side="right"))

    if isinstance(feature.type, type):
        data = _objects(parsed, feature.type, buffer, fail, row_of)
    else:
        data = convert(parsed.data, feature.type, fail, row_of)
    starts = stops - lengths
    if not isinstance(feature, FixedLenSequence) or feature.shape == ():
        return VarColumn(data, starts, lengths, "array")
    width = values_per_row(feature.shape)
    uneven = np.flatnonzero(lengths % width)
    if len(uneven):
        row = int(uneven[0])
        fail(row, f"a multiple of {width} values, for steps of shape {feature.shape}", f"{lengths[row]} values")
    return VarColumn(data.reshape(-1, *feature.shape), starts // width, lengths // width, "array")


def _objects(
    parsed: ParsedFeature,
    kind: FeatureType,
    buffer: NDArray[np.uint8],
    fail: Fail,
    row_of: Callable[[int], int],
) -> NDArray[Any]:
    if kind is str:
        _check_text(buffer, parsed.data, parsed.nbytes, fail, row_of)
    out = np.empty(len(parsed.data), storage_dtype(kind))
    out[:] = VarColumn(buffer, parsed.data, parsed.nbytes, "str" if kind is str else "bytes").elements()
    return out


def _check_text(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    nbytes: NDArray[np.int64],
    fail: Fail,
    row_of: Callable[[int], int],
) -> None:
    """Call ``fail`` for the first value that is not valid UTF-8.

    The values must be checked here, because later code does not know the row of a value.
    """
    for value, (start, length) in enumerate(zip(starts.tolist(), nbytes.tolist(), strict=True)):
        try:
            buffer[start : start + length].tobytes().decode()
        except UnicodeDecodeError as error:
            fail(row_of(value), "UTF-8 text", f"byte 0x{error.object[error.start]:02x} at {error.start}")
