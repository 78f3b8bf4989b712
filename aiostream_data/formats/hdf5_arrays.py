"""One dataset of an HDF5 file: where its rows lie in the file, and its rows as columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CorruptRecordError, PlanError
from aiostream_data.formats.hdf5_chunks import SHUFFLE, ChunkSizes, ChunkTable, StoredChunk
from aiostream_data.formats.hdf5_indexes import MOST_CHUNKS
from aiostream_data.formats.npy_arrays import fixed_bytes, types_of
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.records import ByteRange
from aiostream_data.rows.structure import LEAF, Structure
from aiostream_data.safe_url import safe_url

_DENSE: Final = "biufc"
STRING_NBYTES: Final = 16
"""Size of the length and the place of a string of any length."""


@dataclass(frozen=True)
class Hdf5Array:
    """A dataset with at least one axis.

    Attributes:
        url: URL of the file, for error messages.
        path: Names of the groups and of the dataset.
        shape: Length of each axis.
        dtype: Type of the items, or of the fields of a compound type.
        is_text: True for text, False for bytes and numbers.
        is_indirect: True if the items are stored anywhere in the file, as strings of any length are.
        start: Offset of contiguous items, or None.
        has_plain_numbers: True if the stored bytes of an item are those of ``dtype``, a number.
        file_nbytes: Size of the file in bytes.
        chunk_sizes: Sizes that chunks may have, or None if the items are contiguous.
        chunks: The chunks, or None if the items are contiguous.
    """

    url: str
    path: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_text: bool
    is_indirect: bool
    start: int | None
    has_plain_numbers: bool
    file_nbytes: int
    chunk_sizes: ChunkSizes | None
    chunks: ChunkTable | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        return "/".join(self.path)

    @property
    def row_nbytes(self) -> int:
        return math.prod(self.shape[1:]) * (STRING_NBYTES if self.is_indirect else self.dtype.itemsize)

    @property
    def chunk_rows(self) -> int:
        return self.chunk_sizes.chunk_shape[0] if self.chunk_sizes else 1

    @property
    def chunk_nbytes(self) -> int:
        """Size of a decoded chunk in bytes; 0 if the items are contiguous."""
        return self.chunk_sizes.nbytes if self.chunk_sizes else 0

    @property
    def is_filtered(self) -> bool:
        """True if chunks are compressed or have checksums."""
        return self.chunk_sizes is not None and bool(self.chunk_sizes.filters)

    @property
    def types(self) -> dict[str, str | None]:
        """Types of the columns, by their paths."""
        if self.dtype.kind == "O":
            axes = f"[{', '.join(map(str, self.shape[1:]))}]" if self.shape[1:] else ""
            return {".".join(self.path): f"{'string' if self.is_text else 'bytes'}{axes}"}
        return types_of(self.dtype, self.shape[1:], ".".join(self.path))

    def ranges(self, first: int, stop: int) -> list[ByteRange]:
        """Return the ranges of the file that contain the rows ``first`` to ``stop``."""
        if self.chunks is not None:
            return self.chunks.runs(first - first % self.chunk_rows, stop)
        if self.start is None:
            return []
        return [ByteRange(self.start + first * self.row_nbytes, self.start + stop * self.row_nbytes)]

    def chunks_of(self, first: int, stop: int) -> list[StoredChunk]:
        """Return the chunks that contain the rows ``first`` to ``stop``."""
        return [] if self.chunks is None else self.chunks.of(first - first % self.chunk_rows, stop)

    @property
    def has_chunks_of_rows(self) -> bool:
        """True if each chunk consists of whole rows without filters."""
        sizes = self.chunk_sizes
        return sizes is not None and not sizes.filters and sizes.chunk_shape[1:] == self.shape[1:]

    def has_all_chunks(self, first: int, stop: int) -> bool:
        """Return True if all items of the rows ``first`` to ``stop`` have been written."""
        assert self.chunk_sizes is not None
        assert self.chunks is not None
        per_row = math.prod(self.chunk_sizes.counts[1:])
        rows = -(-stop // self.chunk_rows) - first // self.chunk_rows
        return self.chunks.count(first - first % self.chunk_rows, stop) == rows * per_row

    def leaves(self, values: NDArray[Any]) -> tuple[Structure, list[Column]]:
        """Return the structure of a row, and the columns of the rows that the library has read.

        Raises:
            CorruptRecordError: A text is not UTF-8.
        """
        if values.dtype.names is None:
            return LEAF, [self._column(values)]
        names = values.dtype.names
        parts = [self.leaves(values[name]) for name in names]
        structure = Structure("dict", names, tuple(inner for inner, _ in parts))
        return structure, [column for _, inner in parts for column in inner]

    def _column(self, values: NDArray[Any]) -> Column:
        if values.dtype.kind in _DENSE:
            return np.ascontiguousarray(values, values.dtype.newbyteorder("="))
        rows = values.ravel().tolist()
        if self.is_text:
            self._check_text(rows)
        if values.ndim > 1:
            found = np.empty(len(rows), object)
            found[:] = [row.decode() for row in rows] if self.is_text else rows
            return found.reshape(values.shape)
        if values.dtype.kind == "S":
            return fixed_bytes(np.ascontiguousarray(values), "str" if self.is_text else "bytes")
        lengths = np.array([len(row) for row in rows], np.int64)
        joined = np.frombuffer(b"".join(rows), np.uint8)
        return VarColumn(joined, np.cumsum(lengths) - lengths, lengths, "str" if self.is_text else "bytes")

    def _check_text(self, rows: Sequence[bytes]) -> None:
        try:
            for row in rows:
                row.decode()
        except UnicodeDecodeError as error:
            raise CorruptRecordError(self.url, 0, f"a text of {self.name!r} is not UTF-8: {error.reason}") from None


def described(h5py: Any, url: str, path: tuple[str, ...], dataset: Any, nbytes: int) -> Hdf5Array:
    """Return the description of an open dataset in a file of ``nbytes`` bytes.

    Raises:
        PlanError: The dataset has no rows, a type that is not supported, or data outside of the file.
        CorruptRecordError: Its data lie beyond the end of the file, or its chunks or filters are damaged.
    """
    name = "/".join(path)
    if dataset.is_virtual or dataset.id.get_create_plist().get_external_count():
        raise refused(url, name, "has its data in other files, which is not supported")
    if not dataset.shape:
        raise refused(url, name, "has no rows")
    text = h5py.check_string_dtype(dataset.dtype)
    _check_type(h5py, url, name, dataset.dtype, text is not None)
    is_indirect = text is not None and text.length is None
    item_nbytes = STRING_NBYTES if is_indirect else dataset.id.get_type().get_size()
    _check_filters(h5py, url, name, dataset, item_nbytes)
    is_plain = _has_plain_numbers(h5py, dataset)
    sizes = ChunkSizes.of(dataset, item_nbytes) if dataset.chunks else None
    found = Hdf5Array(
        url=url,
        path=path,
        shape=tuple(map(int, dataset.shape)),
        dtype=dataset.dtype,
        is_text=text is not None and (text.length is None or text.encoding == "utf-8"),
        is_indirect=is_indirect,
        start=None if dataset.chunks else dataset.id.get_offset(),
        has_plain_numbers=is_plain,
        file_nbytes=nbytes,
        chunk_sizes=sizes,
        chunks=None if sizes is None else _chunks_of(url, name, sizes, dataset, nbytes),
    )
    if found.start is not None and found.start + found.shape[0] * found.row_nbytes > nbytes:
        raise CorruptRecordError(url, found.start, f"the data of {name!r} end after the end of the file")
    return found


def _has_plain_numbers(h5py: Any, dataset: Any) -> bool:
    is_number = dataset.dtype.kind in "iuf"
    return is_number and bool(dataset.id.get_type().equal(h5py.h5t.py_create(dataset.dtype)))


def chunk_count(dataset: Any) -> int:
    """Return the largest number of chunks that a dataset can have. An axis without a limit has its current length."""
    if dataset.chunks is None:
        return 0
    limits = zip(dataset.shape, dataset.maxshape, dataset.chunks, strict=True)
    return math.prod(-(-(axis if most is None else max(axis, most)) // chunk) for axis, most, chunk in limits)


def refused(url: str, name: str, reason: str) -> PlanError:
    return PlanError(f"{safe_url(url)}: {name!r} {reason}. Choose other datasets with fields=[...].")


def _check_type(h5py: Any, url: str, name: str, dtype: np.dtype[Any], is_text: bool) -> None:
    if dtype.names is not None:
        for inner in dtype.names:
            base = dtype[inner].base
            _check_type(h5py, url, f"{name}.{inner}", base, base.kind == "S")
        return
    if dtype.kind not in _DENSE and not (is_text and dtype.kind in "SO"):
        raise refused(url, name, f"has the type {dtype}, which is not supported")


def _check_filters(h5py: Any, url: str, name: str, dataset: Any, item_nbytes: int) -> None:
    properties = dataset.id.get_create_plist()
    for number in range(properties.get_nfilters()):
        code, _, values, label = properties.get_filter(number)
        if not h5py.h5z.filter_avail(code):
            known = label.decode(errors="replace") or "unknown"
            raise refused(url, name, f"is compressed by the filter {known} ({code}), which the HDF5 library lacks")
        if code == SHUFFLE and values[:1] not in ((), (item_nbytes,)):
            raise CorruptRecordError(url, 0, f"the filters of {name!r} are damaged")


def _chunks_of(url: str, name: str, sizes: ChunkSizes, dataset: Any, nbytes: int) -> ChunkTable:
    """Find all chunks of a dataset.

    Raises:
        CorruptRecordError: A chunk is not inside of the file, its size does not fit, or two chunks have the same place.
    """
    starts: list[int] = []
    stored_sizes: list[int] = []
    offsets: list[tuple[int, ...]] = []
    masks: list[int] = []
    most = min(math.prod(sizes.counts), MOST_CHUNKS)

    def add(stored: Any) -> None:
        if len(starts) == most:
            raise CorruptRecordError(url, 0, f"the index of {name!r} lists more than {most} chunks")
        starts.append(stored.byte_offset)
        stored_sizes.append(stored.size)
        offsets.append(stored.chunk_offset)
        masks.append(stored.filter_mask)

    dataset.id.chunk_iter(add)
    columns = [np.array(column, np.uint64) for column in (starts, stored_sizes, masks)]
    places = np.array(offsets, np.uint64).reshape(len(starts), len(sizes.shape))
    table = columns[0], columns[1], places, columns[2]
    if len(starts) and (bad := sizes.bad_chunk(*table, nbytes)) >= 0:
        raise CorruptRecordError(url, min(starts[bad], nbytes), f"the chunks of {name!r} are damaged")
    return ChunkTable(*table)
