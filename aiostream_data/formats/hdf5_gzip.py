"""Decompress the gzip chunks of an HDF5 dataset, and check their sizes.

The HDF5 library does not compare the size of a decompressed chunk with the size that the dataset needs. It delivers
other bytes of the memory of the process in place of the missing ones. It also decompresses one chunk at a time in the
whole process, so this module decodes the chunks of plain numbers itself, without the lock of the library.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.hdf5_arrays import Hdf5Array
from aiostream_data.formats.hdf5_chunks import CHECKSUM_NBYTES, FLETCHER32, GZIP, SHUFFLE, ChunkSizes, StoredChunk
from aiostream_data.formats.hdf5_heaps import check_lengths
from aiostream_data.rows.records import ByteRange

_PLAIN: Final = {GZIP, SHUFFLE}
"""Filters of the chunks that this module decodes itself."""

Bytes = NDArray[np.uint8]
Content = Callable[[ByteRange], memoryview]
"""Function that returns the bytes of a range of the file."""


def gzip_rows(array: Hdf5Array, first: int, stop: int, content: Content) -> NDArray[Any] | None:
    """Decode the rows ``first`` to ``stop`` of a dataset. Return None if the library must decode them.

    The sizes of gzip chunks are also checked in this case. Chunks with filters other than gzip, shuffle and Fletcher-32
    are not checked.

    Raises:
        CorruptRecordError: A chunk cannot be decompressed, or has a wrong size.
    """
    sizes = array.chunk_sizes
    if sizes is None or GZIP not in sizes.filters or not set(sizes.filters) <= {*_PLAIN, FLETCHER32}:
        return None
    chunks = list(array.chunks_of(first, stop))
    is_decoded = array.has_plain_numbers and set(sizes.filters) <= _PLAIN and array.has_all_chunks(first, stop)
    is_decoded &= not any(map(sizes.may_be_stored_as_is, chunks))
    rows = np.zeros((stop - first, *array.shape[1:]), array.dtype) if is_decoded else None
    for chunk in chunks:
        if sizes.may_be_stored_as_is(chunk):
            continue
        data = _inflated(array, sizes, chunk, content(chunk.place))
        if rows is not None:
            _copy(_items(array, sizes, chunk, data), chunk.offset, rows, first)
        elif array.is_indirect:
            check_lengths(array.url, chunk.place.start, data, array.file_nbytes)  # the library does not shuffle them
    return rows


def _inflated(array: Hdf5Array, sizes: ChunkSizes, chunk: StoredChunk, stored: memoryview) -> Bytes:
    """Return the bytes of a chunk after decompression, still shuffled and without checksums."""
    used = sizes.used_by(chunk.filter_mask)
    data: bytes | memoryview = stored
    for code in reversed(used):
        if code == FLETCHER32:
            data = memoryview(data)[: max(0, len(data) - CHECKSUM_NBYTES)]
        elif code == GZIP:
            stream = zlib.decompressobj()
            try:
                data = stream.decompress(data, sizes.nbytes + used.count(FLETCHER32) * CHECKSUM_NBYTES + 1)
            except zlib.error as error:
                raise _damaged(array, chunk, str(error)) from None
            if not stream.eof:
                raise _damaged(array, chunk, "it is incomplete or too long")
    if len(data) != sizes.nbytes:
        raise _damaged(array, chunk, f"it has {len(data)} instead of {sizes.nbytes} bytes")
    return np.frombuffer(data, np.uint8)


def _damaged(array: Hdf5Array, chunk: StoredChunk, reason: str) -> CorruptRecordError:
    return CorruptRecordError(array.url, chunk.place.start, f"a gzip chunk of {array.name!r} is damaged: {reason}")


def _items(array: Hdf5Array, sizes: ChunkSizes, chunk: StoredChunk, data: Bytes) -> NDArray[Any]:
    """Return the items of a chunk from its shuffled bytes."""
    if SHUFFLE in sizes.used_by(chunk.filter_mask) and array.dtype.itemsize > 1:
        data = np.ascontiguousarray(data.reshape(array.dtype.itemsize, -1).T).ravel()
    return data.view(array.dtype).reshape(sizes.chunk_shape)


def _copy(items: NDArray[Any], offset: Sequence[int], rows: NDArray[Any], first: int) -> None:
    """Copy the items of a chunk to their place in ``rows``, which begin with the row ``first`` of the dataset."""
    starts = (offset[0] - first, *offset[1:])
    wanted = tuple(starmap(_overlap, zip(starts, items.shape, rows.shape, strict=True)))
    target = tuple(slice(start + part.start, start + part.stop) for start, part in zip(starts, wanted, strict=True))
    rows[target] = items[wanted]


def _overlap(start: int, length: int, total: int) -> slice:
    """Return the part of an axis of a chunk that lies within an axis of ``total`` items. It begins at ``start``."""
    return slice(max(0, -start), max(0, min(length, total - start)))
