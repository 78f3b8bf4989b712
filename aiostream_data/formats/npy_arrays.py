"""One array of a NumPy file: the byte ranges of its rows, and its rows as columns."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.codecs.deflate import deflate_library
from aiostream_data.codecs.npy_header import NpyHeader
from aiostream_data.errors import CorruptRecordError
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.records import ByteRange
from aiostream_data.rows.structure import LEAF, Structure

_MAX_STRIDES: Final = 256
"""Maximum number of ranges of a group of rows in Fortran order. An array with more items per row is read whole."""

_RANGE_NBYTES: Final = 32 << 10
"""Size of a range of a group of rows in Fortran order."""

_DENSE: Final = "biufcmM"
"""Kinds of dtypes that columns can contain."""

_MAX_CHARACTER: Final = 0x10FFFF
_SURROGATES: Final = 0xD800
"""First of 2,048 numbers that are not characters."""


class Deflated(NamedTuple):
    """A compressed member of an archive.

    Attributes:
        place: Range of the compressed bytes in the file.
        nbytes: Size of the member after decompression, with its header.
        crc: Checksum of the member.
    """

    place: ByteRange
    nbytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array in a file, with at least one axis.

    Attributes:
        url: URL of the file, for error messages.
        name: Name of the array in an archive, or "".
        header: Its header.
        start: Offset of its items in the file, or of the compressed member.
        deflated: The compressed member, or None.
    """

    url: str
    name: str
    header: NpyHeader
    start: int
    deflated: Deflated | None = None

    @property
    def rows(self) -> int:
        return self.header.shape[0]

    @property
    def row_nbytes(self) -> int:
        return self._row_items * self.header.dtype.itemsize

    @property
    def _row_items(self) -> int:
        return math.prod(self.header.shape[1:])

    @property
    def _is_strided(self) -> bool:
        """True if the bytes of a row are not contiguous."""
        return self.header.is_fortran and self._row_items > 1

    @property
    def is_whole(self) -> bool:
        """True if all rows have to be read together."""
        return self.deflated is not None or (self._is_strided and self._row_items > _MAX_STRIDES)

    @property
    def min_rows(self) -> int:
        """Minimum number of rows to read together, so that ranges are not too small."""
        return _RANGE_NBYTES // max(1, self.header.dtype.itemsize) if self._is_strided else 1

    @property
    def copied_nbytes(self) -> int:
        """Memory that decoding of a row needs in addition to its stored bytes."""
        dtype = self.header.dtype
        is_shared = dtype.kind in _DENSE and dtype.isnative and not self._is_strided and self.deflated is None
        return 0 if is_shared else 2 * self.row_nbytes + 16 * self._row_items

    def ranges(self, first: int, stop: int) -> list[ByteRange]:
        """Return the byte ranges of rows ``first`` to ``stop``."""
        if self.deflated is not None:
            return [self.deflated.place]
        if not self._is_strided or (first, stop) == (0, self.rows):
            return [ByteRange(self.start + first * self.row_nbytes, self.start + stop * self.row_nbytes)]
        size = self.header.dtype.itemsize
        columns = (self.start + number * self.rows * size for number in range(self._row_items))
        return [ByteRange(place + first * size, place + stop * size) for place in columns]

    def leaves(
        self, parts: Sequence[memoryview], rows: int, fields: tuple[str, ...] | None = None
    ) -> tuple[Structure, list[Column]]:
        """Return the structure of a row, and its columns.

        Args:
            parts: Bytes of the ranges of the rows.
            rows: Number of rows.
            fields: Fields of a structured array, or None for all.

        Raises:
            CorruptRecordError: A compressed member or a text is damaged.
        """
        if self.deflated is not None:
            parts = [self._decompressed(self.deflated, parts[0])]
        flat = np.frombuffer(parts[0], np.uint8) if len(parts) == 1 else np.concatenate(list(map(_bytes, parts)))
        shape = (rows, *self.header.shape[1:])
        order: Any = "F" if self._is_strided else "C"
        array: NDArray[Any] = np.ndarray(shape, self.header.dtype, flat, order=order)
        return self._columns(array, fields)

    def _decompressed(self, deflated: Deflated, stored: memoryview) -> memoryview:
        library = deflate_library()
        decompressor = library.decompressobj(-zlib.MAX_WBITS)
        try:
            found = decompressor.decompress(stored, deflated.nbytes + 1)
        except library.error as error:
            raise self._error(f"the array {self.name!r} cannot be decompressed: {error}") from error
        if len(found) != deflated.nbytes or zlib.crc32(found) != deflated.crc:
            raise self._error(f"the array {self.name!r} is damaged: its size or checksum is wrong")
        return memoryview(found)[self.header.nbytes :]

    def _columns(self, array: NDArray[Any], fields: tuple[str, ...] | None = None) -> tuple[Structure, list[Column]]:
        if array.dtype.names is not None:
            names = fields or array.dtype.names
            parts = [self._columns(array[name]) for name in names]
            structure = Structure("dict", names, tuple(inner for inner, _ in parts))
            return structure, [column for _, inner in parts for column in inner]
        return LEAF, [self._column(array)]

    def _column(self, array: NDArray[Any]) -> Column:
        if array.dtype.kind in _DENSE:
            return np.ascontiguousarray(array, array.dtype.newbyteorder("="))
        if array.dtype.kind == "U":
            self._check_text(array)
        if array.ndim > 1:
            return array.astype(object)
        if array.dtype.kind == "U":
            return fixed_bytes(np.char.encode(array, "utf-8"), "str")
        return fixed_bytes(np.ascontiguousarray(array), "bytes")

    def _check_text(self, array: NDArray[Any]) -> None:
        """Raise if a character is not one of Unicode. NumPy does not check this."""
        if not array.dtype.itemsize:
            return
        points = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).view(np.uint32)
        if points.max(initial=0) > _MAX_CHARACTER or ((points & ~np.uint32(0x7FF)) == _SURROGATES).any():
            raise self._error("a text contains a character that Unicode does not have")

    def _error(self, reason: str) -> CorruptRecordError:
        return CorruptRecordError(self.url, self.start, reason)


def _bytes(part: memoryview) -> NDArray[np.uint8]:
    return np.frombuffer(part, np.uint8)


def fixed_bytes(array: NDArray[Any], kind: Any) -> VarColumn:
    """Return a column of bytes or text. Zero bytes at the end are removed, except those of untyped bytes."""
    size = array.dtype.itemsize
    is_padded = array.dtype.kind == "S"
    lengths = np.char.str_len(array) if is_padded else np.full(len(array), size)
    starts = np.arange(len(array), dtype=np.int64) * size
    values = np.frombuffer(array, np.uint8) if array.nbytes else np.empty(0, np.uint8)
    return VarColumn(values, starts, lengths.astype(np.int64, copy=False), kind)


def types_of(dtype: np.dtype[Any], shape: tuple[int, ...], path: str) -> dict[str, str | None]:
    """Describe the columns of an array, by their paths."""
    if dtype.names is None:
        size = f"[{', '.join(map(str, shape))}]" if shape else ""
        return {path or "element": f"{dtype.newbyteorder('=')}{size}"}
    found: dict[str, str | None] = {}
    for name in dtype.names:
        field = dtype[name]
        inner = shape + field.shape
        found |= types_of(field.base, inner, f"{path}.{name}" if path else name)
    return found
