"""Columns of MosaicML MDS shards: their encodings, and values of a whole column of a chunk at once."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.errors import DecodeError
from aiostream_data.rows.columns import Column, VarColumn, object_array

SCALARS: Final[dict[str, np.dtype[Any]]] = {
    name: np.dtype(name)
    for name in (
        *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64"),
    )
} | {"int": np.dtype(np.int64)}
"""Encodings of numbers, little-endian."""

IMAGES: Final = ("jpeg", "png")
"""Encodings of encoded images, which are delivered as bytes."""

_BYTES: Final = ("bytes", *IMAGES)
_OBJECTS: Final = ("json", "pil")
_TEXTS: Final = ("str_int", "str_float", "str_decimal")
_ARRAY_DTYPES: Final = {
    number: f"{kind}{bits}"
    for bits in (8, 16, 32, 64)
    for number, kind in ((bits, "uint"), (bits + 1, "int"), (bits + 2, "float"))
    if (bits, kind) != (8, "float")
}
_SHAPE_DTYPES: Final = ("<u1", "<u2", "<u4", "<u8")
_ARRAY: Final = re.compile(r"ndarray(?::([a-z]+[0-9]+)(?::([0-9]{1,10}(?:,[0-9]{1,10}){0,31}))?)?")
_MODES: Final = {b"L": 1, b"RGB": 3, b"RGBA": 4}
_INT64: Final = np.iinfo(np.int64)


@dataclass(frozen=True)
class MdsColumn:
    """A column of the samples.

    Attributes:
        name: Name of the column.
        encoding: Name of the encoding, as in ``index.json``.
    """

    name: str
    encoding: str

    @cached_property
    def array(self) -> tuple[np.dtype[Any] | None, tuple[int, ...] | None] | None:
        """dtype and shape of an ``ndarray`` column, None if they differ between rows; None for other columns."""
        found = _ARRAY.fullmatch(self.encoding)
        if found is None or (found[1] is not None and found[1] not in _ARRAY_DTYPES.values()):
            return None
        shape = None if found[2] is None else tuple(map(int, found[2].split(",")))
        return None if found[1] is None else np.dtype(found[1]), shape

    @cached_property
    def nbytes(self) -> int | None:
        """Size of a value in bytes; None if it differs between rows."""
        if self.encoding in SCALARS:
            return SCALARS[self.encoding].itemsize
        if self.array is None or self.array[0] is None or self.array[1] is None:
            return None
        return self.array[0].itemsize * math.prod(self.array[1])

    @property
    def problem(self) -> str | None:
        """Reason why the column cannot be read, or None."""
        if self.encoding == "pkl":
            return "contains pickles, which can run any code"
        known = (*SCALARS, *_BYTES, *_OBJECTS, *_TEXTS, "str")
        if self.encoding not in known and self.array is None:
            return f"has the encoding {self.encoding!r}, which is not supported"
        return None

    @property
    def is_columnar(self) -> bool:
        """True if the values of several rows form a column. Otherwise each value is a Python object."""
        return self.encoding not in _OBJECTS and (self.array is None or self.nbytes is not None)

    @property
    def spec(self) -> tuple[tuple[int, ...], Any, bool]:
        """Shape, dtype and ``ragged`` flag of a value of a columnar column."""
        if self.array is not None:
            dtype, shape = self.array
            return shape or (), dtype, False
        dtypes = {**SCALARS, "str_int": np.dtype(np.int64), "str_float": np.dtype(np.float64)}
        return (), dtypes.get(self.encoding, object), False

    def column(self, values: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Column:
        """Return the values of several rows, at ``values[starts[i] : starts[i] + lengths[i]]``, as one column.

        Bytes and text refer to ``values``.

        Raises:
            BadValue: A value is invalid.
        """
        if self.encoding in _BYTES:
            return VarColumn(values, starts, lengths)
        if self.encoding == "str":
            bad = _native.first_invalid_utf8(values, starts, lengths)
            if bad >= 0:
                raise BadValue(bad, "the text is not valid UTF-8")
            return VarColumn(values, starts, lengths, "str")
        if self.nbytes is not None:
            shape, dtype, _ = self.spec
            packed, _ = _native.compact(values, starts, lengths)
            found: NDArray[Any] = packed.view(dtype).reshape(len(starts), *shape)
            return found
        objects = self.objects(values, starts, lengths)
        return object_array(objects) if self.encoding == "str_decimal" else np.array(objects, self.spec[1])

    def objects(self, values: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[Any]:
        """Return the values of several rows as Python objects, which do not refer to ``values``.

        Raises:
            BadValue: A value is invalid.
        """
        decode = self._decoder()
        found = []
        for row, (start, nbytes) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            try:
                found.append(decode(values[start : start + nbytes].tobytes()))
            except (ValueError, RecursionError) as error:  # DecodeError and UnicodeDecodeError are ValueErrors
                raise BadValue(row, str(error)) from error
        return found

    def _decoder(self) -> Callable[[bytes], Any]:
        if self.array is not None:
            dtype, shape = self.array
            return lambda data: decode_array(data, dtype, shape)
        decoders: dict[str, Callable[[bytes], Any]] = {
            "json": json.loads,
            "pil": decode_raw_image,
            "str_int": _integer,
            "str_float": _float,
            "str_decimal": _decimal,
        }
        return decoders[self.encoding]


class BadValue(Exception):
    """A value of a column is invalid. The caller catches this error, and names the file and the column.

    Attributes:
        row: Number of the row in the chunk.
        reason: Description of the value.
    """

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row = row
        self.reason = reason


def decode_array(data: bytes, dtype: np.dtype[Any] | None, shape: Sequence[int] | None) -> NDArray[Any]:
    """Decode an ``ndarray`` value whose dtype or shape precedes its numbers.

    Raises:
        DecodeError: The value is truncated, or declares an unknown dtype or another size.
    """
    at = 0
    if dtype is None:
        if not data or data[0] not in _ARRAY_DTYPES:
            raise DecodeError(f"the array declares the unknown dtype {data[0] if data else 'nothing'}")
        dtype, at = np.dtype(_ARRAY_DTYPES[data[0]]), 1
    if shape is None:
        if at >= len(data):
            raise DecodeError("the array ends before its shape")
        axes, kind = data[at] >> 2, np.dtype(_SHAPE_DTYPES[data[at] & 3])
        at += 1
        stop = at + axes * kind.itemsize
        if stop > len(data) or axes > 32:
            raise DecodeError(f"the array declares {axes} axes, but ends before its shape, or has more than 32")
        shape, at = np.frombuffer(data[at:stop], kind).tolist(), stop
    if math.prod(shape) * dtype.itemsize != len(data) - at:
        raise DecodeError(f"an array of shape {tuple(shape)} and {dtype} does not match its {len(data) - at} bytes")
    return np.frombuffer(data, dtype, offset=at).reshape(shape).copy()


def decode_raw_image(data: bytes) -> NDArray[np.uint8]:
    """Decode a ``pil`` value: width, height, length of the mode, mode, and pixels ``[height, width, channels]``.

    Raises:
        DecodeError: The value is truncated, or its mode is not L, RGB or RGBA.
    """
    if len(data) < 12:
        raise DecodeError("the image ends before its size")
    width, height, nbytes = np.frombuffer(data, "<u4", 3).tolist()
    channels = _MODES.get(data[12 : 12 + nbytes]) if nbytes <= 4 else None
    if channels is None:
        raise DecodeError("the image has a mode that is not supported; supported are L, RGB and RGBA")
    start = 12 + nbytes
    if width * height * channels != len(data) - start:
        raise DecodeError(f"an image of {height} x {width} pixels does not match its {len(data) - start} bytes")
    return np.frombuffer(data, np.uint8, offset=start).reshape(height, width, channels).copy()


def _integer(data: bytes) -> int:
    text = data.decode()
    if len(text) > 20 or not _INT64.min <= int(text) <= _INT64.max:
        raise DecodeError(f"the integer {text[:40]} does not fit into 64 bits")
    return int(text)


def _float(data: bytes) -> float:
    return float(data.decode())


def _decimal(data: bytes) -> Decimal:
    try:
        return Decimal(data.decode())
    except InvalidOperation:
        raise DecodeError("the text is not a decimal number") from None
